"""Where commands print, and how they find their course."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from course.errors import CourseError
from course.manifest import Course

# Piped output is read by programs: never wrapped, so that a path stays in one piece.
_WIDE = 10_000


def _console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDE
    return Console(stderr=stderr, width=width, highlight=False)


def out() -> Console:
    """The console for results."""
    return _console()


def err() -> Console:
    """The console for progress and errors."""
    return _console(stderr=True)


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """One live line on a terminal; nothing where nobody watches."""
    console = err()
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("") as status:
        yield status.update


def load_course(context: typer.Context) -> Course:
    """The course this command works on."""
    return Course.load(context.find_root().obj)


def print_error(error: CourseError) -> None:
    """Message and next step, on stderr. Lines are not wrapped: they hold paths."""
    console = err()
    console.print("[bold red]error:[/]", end=" ", soft_wrap=True)
    console.print(error.message, markup=False, soft_wrap=True)
    console.print("[bold]next:[/]", end=" ", soft_wrap=True)
    console.print(error.hint, markup=False, soft_wrap=True)
