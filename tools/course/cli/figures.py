"""The command line of `tools/figures.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from course.cli.console import load_course, out, print_error
from course.errors import CourseError
from course.pages.record import record
from course.pages.runs import Recorded, run_keys

app = typer.Typer(
    name="tools/figures.py",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def figures(
    context: typer.Context,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY", help="Runs to record; none: list all."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Show what is recorded; run nothing.")
    ] = False,
) -> None:
    """Run what docs/runs/KEY.toml says, and keep what it prints in docs/runs/KEY.json.

    Examples: tools/figures.py; tools/figures.py ch03_reserved
    """
    course = load_course(context)
    if not keys:
        for key in run_keys(course.root):
            out().print(key, markup=False)
    for key in keys or ():
        recorded = Recorded.load(course.root, key) if show else record(course, key)
        where = f"{key}: recorded {recorded.date}, {recorded.machine}"
        out().print(where, markup=False, soft_wrap=True)
        for name in recorded.run.figures:
            text = f"  {{{{run:{key}.{name}}}}}  {recorded.figure(name)}"
            out().print(text, markup=False, soft_wrap=True)


def main(root: Path) -> int:
    """Run the command in `sys.argv` on the course in `root`: the exit code."""
    try:
        app(obj=root)
    except CourseError as error:
        print_error(error)
        return error.exit_code
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 1
    return 0
