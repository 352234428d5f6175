"""Commands for the author: edit, save, abort."""

from __future__ import annotations

from typing import Annotated

import typer

from course.author import Author
from course.cli.console import load_course, out
from course.stack import PACKAGE


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("edit")(edit)
    app.command("save")(save)
    app.command("abort")(abort)


def edit(
    context: typer.Context,
    number: Annotated[int, typer.Argument(metavar="N", help="A chapter number.")],
    adopt: Annotated[
        bool, typer.Option("--adopt", help=f"Start from {PACKAGE}/ as it stands.")
    ] = False,
) -> None:
    """Open chapter N for a change: its files go into a work folder.

    With --adopt, for the last chapter only, changes made in minisgl/ itself become
    part of it: edit N --adopt, then save.

    Examples: tools/steps.py edit 3; tools/steps.py edit 5 --adopt
    """
    work = Author(load_course(context)).begin_edit(number, adopt=adopt)
    _say(f"chapter {number} is open in {work / PACKAGE}")
    _say("next: change it there, then tools/steps.py save (or tools/steps.py abort)")


def save(context: typer.Context) -> None:
    """Carry the open edit through all later chapters, then write patches and minisgl/.

    After a conflict: resolve it in the work folder and save again.

    Example: tools/steps.py save
    """
    saved = Author(load_course(context)).save()
    if not saved.written and not saved.removed:
        _say("no change: nothing was written")
        return
    for path in saved.written:
        _say(f"wrote {path}")
    for path in saved.removed:
        is_patch = path.endswith(".patch")
        _say(f"removed {path}{': nothing is left of it' if is_patch else ''}")
    _say("next: tools/steps.py verify and tools/steps.py check")


def abort(context: typer.Context) -> None:
    """Drop the open edit and its work folder; steps/ and minisgl/ stay as they are.

    Example: tools/steps.py abort
    """
    Author(load_course(context)).abort()
    _say("the edit is dropped; nothing else changed")


def _say(text: str) -> None:
    out().print(text, markup=False, soft_wrap=True)
