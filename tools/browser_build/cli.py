"""The command line of `tools/browser.py`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from course.cli.console import out, print_error, progress_line
from course.errors import CourseError

from browser_build.build import build

app = typer.Typer(
    name="tools/browser.py",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Exit codes: 0 good, 1 a check failed, 2 wrong use.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root() -> None:
    """Build what the pages load: Python for the browser, exercises, editor.

    Needs Node.js 20 or newer with npm.

    \b
    Examples:
      tools/browser.py build
      tools/browser.py build --to /tmp/web
    """


@app.command("build")
def _build(
    context: typer.Context,
    to: Annotated[
        Path | None, typer.Option(help="The folder to write [build/web].")
    ] = None,
) -> None:
    """Build everything; nothing is done where nothing changed."""
    start = time.perf_counter()
    with progress_line() as say:
        say("building the browser files")
        built = build(context.obj, to)
    verb = "built" if built.is_new else "nothing changed:"
    size = f"{built.num_files} files, {built.num_bytes / 1e6:.1f} MB"
    seconds = f"{time.perf_counter() - start:.1f} s"
    out().print(f"{verb} {built.path} ({size}, {seconds})", markup=False)


def main(root: Path) -> int:
    """Run the command in `sys.argv` on the checkout in `root`: the exit code."""
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
