"""The learner's commands: `start`, `grade`, `hint` and `solution`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from course import learner
from course.cli import report
from course.cli.console import out
from course.cli.run import Timeout, open_runner
from course.errors import CheckFailed, CourseError
from course.learner import Grade
from course.results import TestResult
from course.runner import Runner, select

Number = Annotated[int, typer.Argument(metavar="N", help="The chapter.")]
Name = Annotated[
    str, typer.Argument(help="A name, or its end: RadixPrefixCache.evict, evict.")
]
_MARKS = {
    "passed": ("ok     ", "green"),
    "failed": ("FAIL   ", "bold red"),
    "error": ("FAIL   ", "bold red"),
    "skipped": ("skipped", "yellow"),
    "retired": ("retired", "dim"),
}


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("start")(start)
    app.command("grade")(grade)
    app.command("hint")(hint)
    app.command("solution")(solution)


def start(
    context: typer.Context,
    number: Number,
    to: Annotated[
        Path | None, typer.Option(help="The folder to make [default: learn/NN_slug].")
    ] = None,
    mine: Annotated[
        Path | None,
        typer.Option("--from", help="Go on from this workspace of chapter N-1."),
    ] = None,
) -> None:
    """Make a workspace in which to write a chapter yourself.

    It has the package as it is before the chapter, stubs for what the chapter adds, the
    example, the tests, and a README that says what to write. With --from, your own code
    stands in place of the course's; it must pass the chapter before.

    Examples:

    * tools/steps.py start 8

    * tools/steps.py start 8 --to ~/radix

    * tools/steps.py start 9 --from learn/08_radix_cache
    """
    runner, console = open_runner(context), out()
    select(runner.course, [number])
    target = to or learner.default_workspace(runner.course, number)
    learner.refuse_to_overwrite(number, target)
    files = learner.read_workspace(mine) if mine else None
    previous = runner.course.previous(number)
    if mine and files and previous:
        _must_pass(runner, previous, mine, files, console)
    learner.start(runner, number, target, files)
    console.print(f"Chapter {number} is ready in {target}", style="green")
    console.print(f"  read   {target / 'README.md'}: what to write, in which order")
    console.print(f"  then   {_grade_command(runner, number, target)}")


def grade(
    context: typer.Context,
    number: Number,
    folder: Annotated[
        Path | None, typer.Argument(help="Your workspace [default: learn/NN_slug].")
    ] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show how your package differs from ours.")
    ] = False,
    timeout: Timeout = 120,
) -> None:
    """Test your own package with the tests of chapters 1 to N.

    Only the folder minisgl of a workspace is read; the tests are the course's own.

    Examples:

    * tools/steps.py grade 8

    * tools/steps.py grade 8 ~/radix --diff
    """
    runner, console = open_runner(context), out()
    select(runner.course, [number])
    place = folder or learner.default_workspace(runner.course, number)
    if not place.is_dir():
        raise CourseError(
            f"there is no folder {place}", f"tools/steps.py start {number}"
        )
    files = learner.read_workspace(place)
    with report.Board(console, 1) as board:
        marks = learner.grade(runner, number, files, timeout=timeout, tick=board.tick)
    _show_tests(runner, marks, console)
    if diff:
        text = learner.tree_diff(runner, number, files)
        console.print(_diff(text) if text else "Your package equals the course's.")
    if not marks.result.ok:
        _show_failure(runner, marks, console)
        raise CheckFailed(
            f"chapter {number} does not pass yet: {marks.result.problem}",
            f"write on, then {_grade_command(runner, number, place)}",
        )
    _show_passed(runner, number, place, console)


def hint(context: typer.Context, number: Number, name: Name) -> None:
    """Give a hint for a name of a chapter; ask again for the next one.

    Examples:

    * tools/steps.py hint 8 RadixPrefixCache.evict
    """
    runner, console = open_runner(context), out()
    select(runner.course, [number])
    full, hints, total = learner.Hints(runner.course).next(number, name)
    console.print(f"{full}, hint {len(hints)} of {total}")
    for text in hints[:-1]:
        console.print(Text(f"  {text}", style="dim"))
    console.print(f"  {hints[-1]}", markup=False)
    again = f"tools/steps.py hint {number} {full}"
    if len(hints) == total:
        again = f"tools/steps.py solution {number} {full}"
    console.print(Text(f"more: {again}", style="dim"))


def solution(context: typer.Context, number: Number, name: Name) -> None:
    """Show a name as the chapter has it, and what the chapter changed in it.

    Examples:

    * tools/steps.py solution 8 RadixPrefixCache.evict
    """
    runner, console = open_runner(context), out()
    select(runner.course, [number])
    found = learner.solution(runner, number, name)
    console.print(Text(f"{found.name}, in {found.path}", style="bold"))
    console.print(Syntax(found.text, "python", background_color="default"))
    if found.diff:
        console.print(Text(f"what chapter {number} changed in it", style="bold"))
        console.print(_diff(found.diff))


def _must_pass(
    runner: Runner, number: int, place: Path, files: dict[str, bytes], console: Console
) -> None:
    with report.Board(console, 1) as board:
        marks = learner.grade(runner, number, files, timeout=120, tick=board.tick)
    if not marks.result.ok:
        raise CheckFailed(
            f"{place} does not pass chapter {number} yet: {marks.result.problem}",
            _grade_command(runner, number, place),
        )


def _show_tests(runner: Runner, marks: Grade, console: Console) -> None:
    """One line per earlier chapter that passes; one per test of all others."""
    for chapter in runner.course.through(marks.chapter.number):
        tests = marks.tests_of(chapter)
        good = all(test.outcome in ("passed", "retired") for test in tests)
        head = f"{chapter.number:02d} {chapter.title}"
        if good and tests and chapter != marks.chapter:
            console.print(
                Text.assemble(_MARKS["passed"], f" {head}: {len(tests)} tests")
            )
            continue
        console.print(Text(head, style="bold"))
        for test in tests:
            console.print(_test_line(test))


def _test_line(test: TestResult) -> Text:
    text = Text.assemble("  ", _MARKS[test.outcome], " ", _sentence(test))
    if test.outcome in ("skipped", "retired"):
        text.append(f": {test.message}", style="dim")
    return text


def _sentence(test: TestResult) -> str:
    """`tests/test_x.py::test_a_split_keeps_pages[4]` is "a split keeps pages [4]"."""
    name = test.id.partition("::")[2] or test.id
    plain, bracket, values = name.partition("[")
    words = plain.rpartition("::")[2].removeprefix("test_").replace("_", " ")
    return f"{words} {bracket}{values}".rstrip()


def _show_failure(runner: Runner, marks: Grade, console: Console) -> None:
    console.print()
    if first := marks.first_bad:
        console.print(Text(f"first failure: {first.id}", style="bold red"))
        console.print(Text(first.text.rstrip() or first.message))
    else:
        console.print(Text(marks.result.problem, style="bold red"))
        console.print(Text(marks.result.detail))
    console.print()
    if marks.unwritten:
        console.print(f"still to write: {', '.join(marks.unwritten)}", markup=False)
    if command := learner.next_help(runner.course, marks):
        console.print(f"help: {command}", markup=False)


def _show_passed(runner: Runner, number: int, place: Path, console: Console) -> None:
    console.print(f"\nChapter {number} is yours: every test passes.", style="green")
    later = [chapter.number for chapter in runner.course.after(number)]
    if not later:
        console.print("That was the last chapter there is.")
        return
    own = f"--from {shlex.quote(str(place))}"
    console.print(f"next, on your own code: tools/steps.py start {later[0]} {own}")
    console.print(f"or on the course's:     tools/steps.py start {later[0]}")


def _grade_command(runner: Runner, number: int, place: Path) -> str:
    default = learner.default_workspace(runner.course, number)
    where = "" if place == default else f" {shlex.quote(str(place))}"
    return f"tools/steps.py grade {number}{where}"


def _diff(text: str) -> Syntax:
    return Syntax(text, "diff", background_color="default")
