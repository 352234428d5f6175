"""The commands that run stages: `check` and `record`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from course.cli import report
from course.cli.console import load_course, out, progress_line
from course.cli.stages import print_result
from course.errors import CheckFailed, CourseError
from course.recording import Recording
from course.recording import record as record_outputs
from course.results import Result
from course.runner import KINDS, Job, Runner, select, write_whole
from course.stack import Stack
from course.verify import Result as Rule
from course.verify import verify

Chapters = Annotated[
    list[int] | None, typer.Argument(metavar="N", help="Chapters; all if none.")
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="At a time [default: cores].")
]
Timeout = Annotated[
    float,
    typer.Option(min=0.1, help="Stop a job in which nothing happens for so many s."),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("check")(check)
    app.command("record")(record)


def check(
    context: typer.Context,
    chapters: Chapters = None,
    jobs: Jobs = None,
    only: Annotated[
        Literal["example", "tests", "before"] | None,
        typer.Option(help="Run only this kind of job."),
    ] = None,
    test: Annotated[
        list[str] | None,
        typer.Option(help="Run only this test (a pytest id) at the chapter's stage."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write a report to this file.")
    ] = None,
    timeout: Timeout = 600,
) -> None:
    """Run every chapter at its own stage: its example, and all tests up to it.

    What passed before and has not changed is not run again ("cached"). Without any
    choice it proves what `verify` proves, too.

    Examples:

    * tools/steps.py check

    * tools/steps.py check 3 4 --jobs 2

    * tools/steps.py check 4 --only example

    * tools/steps.py check 4 --test tests/test_ch04_attention.py::test_decode
    """
    runner, console = open_runner(context), out()
    numbers = select(runner.course, chapters or [])
    if json_file and not json_file.absolute().parent.is_dir():
        raise CourseError(f"there is no folder for {json_file}", "make it first")
    rules = [] if chapters or only or test else _verify(runner)
    kinds = ("tests",) if test else (only,) if only else KINDS
    todo = runner.jobs(numbers, kinds)
    if test:
        todo = [Job(runner, job.chapter, "tests", tuple(test)) for job in todo]
    with report.Board(console, len(todo)) as board:
        results = runner.run(
            todo,
            jobs=jobs or cores(),
            timeout=timeout,
            ended=board.ended,
            tick=board.tick,
        )
    _show(runner, results, console)
    if json_file:
        write_report(json_file, rules, results)
    _fail_if_any_broke(rules, results)


def record(
    context: typer.Context,
    chapters: Chapters = None,
    jobs: Jobs = None,
    timeout: Timeout = 600,
) -> None:
    """Record again what the examples print, and show what changed.

    Every example runs twice; one that fails, or that prints two different things, keeps
    the recording it has.

    Examples:

    * tools/steps.py record

    * tools/steps.py record 3
    """
    runner, console = open_runner(context), out()
    numbers = select(runner.course, chapters or [])
    recordings = record_outputs(runner, numbers, jobs=jobs or cores(), timeout=timeout)
    for recording in recordings:
        _show_recording(recording, console)
    if bad := [r.chapter.example for r in recordings if r.problem]:
        raise CheckFailed(f"not recorded: {', '.join(bad)}", "correct it first")


def open_runner(context: typer.Context) -> Runner:
    """A runner of the course that the command works on."""
    course = load_course(context)
    return Runner(course, Stack(course))


def cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def write_report(path: Path, rules: Sequence[Rule], results: Sequence[Result]) -> None:
    """The report of `check --json`: rules, guarantees, then every job."""
    held = [rule.is_good for rule in rules] + [result.ok for result in results]
    data = {
        "ok": all(held),
        "rules": [{"ok": rule.is_good, **asdict(rule)} for rule in rules],
        "guarantees": report.guarantees(results),
        "results": [result.as_json() for result in results],
    }
    try:
        write_whole(path, (json.dumps(data, indent=1) + "\n").encode())
    except OSError as error:
        raise CourseError(
            f"cannot write {path}: {error.strerror}", "name a file in a folder you own"
        ) from error


def _fail_if_any_broke(rules: Sequence[Rule], results: Sequence[Result]) -> None:
    """Raises CheckFailed with what broke and the command that shows the first again."""
    again = "tools/steps.py verify"
    broken = [(rule.rule, again) for rule in rules if not rule.is_good]
    broken += [(result.title, result.rerun) for result in results if not result.ok]
    if broken:
        titles = "; ".join(title for title, _ in broken)
        problem = f"{len(broken)} of {len(rules) + len(results)} failed: {titles}"
        raise CheckFailed(problem, broken[0][1])


def _verify(runner: Runner) -> list[Rule]:
    """What `verify` proves, shown as it does."""
    rules = []
    with progress_line() as progress:
        for rule in verify(runner.course, progress):
            print_result(rule)
            rules.append(rule)
    return rules


def _show(runner: Runner, results: Sequence[Result], console: Console) -> None:
    console.print()
    console.print(report.table(runner.course.chapters, results))
    for text in report.failures(results):
        console.print(text)
    for note in report.notes(results):
        console.print(Text(note, style="yellow"))
    for found in report.guarantees(results):
        mark = "ok  " if found["ok"] else "FAIL"
        count = f"{found['held']} of {found['checked']}"
        text = f"{mark} guarantee {found['number']}: {found['text']}: {count}"
        console.print(text, soft_wrap=True)
    cached = sum(result.cached for result in results)
    if cached:
        console.print(f"{cached} of {len(results)} cached: unchanged since they passed")


def _show_recording(recording: Recording, console: Console) -> None:
    path = recording.path
    if recording.problem:
        console.print(f"refused    {path}: {recording.problem}", style="red")
        console.print(Text(recording.detail, style="dim"))
    elif recording.is_changed:
        console.print(f"recorded   {path}", style="green")
        console.print(Syntax(recording.diff, "diff", background_color="default"))
    else:
        console.print(f"unchanged  {path}")
