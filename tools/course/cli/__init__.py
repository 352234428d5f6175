"""The command line of `tools/steps.py`: thin, one module per group of commands.

Every module has `register(app)`, which adds its commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from course.author import recover
from course.cli import author, learn, run, stages
from course.cli.console import err, print_error
from course.errors import CourseError

_EPILOG = "Exit codes: 0 good, 1 a check failed, 2 wrong use."

app = typer.Typer(
    name="tools/steps.py",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root(
    context: typer.Context,
    root: Annotated[
        Path | None, typer.Option(help="The course's folder.", hidden=True)
    ] = None,
) -> None:
    """Rebuild minisgl chapter by chapter from its diffs; check it, learn with it,
    change it.

    Examples:

    * tools/steps.py list — the chapters

    * tools/steps.py show 3 — what chapter 3 changes

    * tools/steps.py check — build and test every chapter

    * tools/steps.py start 8 — write chapter 8 yourself

    * tools/steps.py edit 3 — change chapter 3 for everybody
    """
    if root is not None:
        context.obj = root
    if context.invoked_subcommand and recover(context.obj):
        err().print("an interrupted save was undone; its edit is still open")


for _module in (stages, run, learn, author):
    _module.register(app)


def main(root: Path) -> int:
    """Run the command in `sys.argv` on the course in `root`: the exit code."""
    try:
        app(obj=root)
    except CourseError as error:
        print_error(error)
        return error.exit_code
    except OSError as error:
        print_error(CourseError(str(error), "check the disk and its permissions"))
        return 2
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 1
    return 0
