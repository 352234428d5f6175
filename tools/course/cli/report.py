"""What `check` shows: a live line per running job, then a table in chapter order."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from course.jobs import Running
from course.manifest import Chapter
from course.results import Result
from course.runner import GUARANTEES, KINDS


class Board:
    """Progress while jobs run; use it in a `with`.

    On a terminal there is one live line per running job, and failures appear as they
    happen. Elsewhere every job that ends is a line.
    """

    def __init__(self, console: Console, total: int) -> None:
        self.console, self.total, self.done = console, total, 0
        self.live = Live(console=console, refresh_per_second=8, transient=True)
        self.spinners: dict[str, Spinner] = {}

    def __enter__(self) -> Board:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live.is_started:
            self.live.stop()

    def tick(self, running: Sequence[Running]) -> None:
        if not self.live.is_started:
            return
        table = Table.grid(padding=(0, 2))
        for child in running:
            spinner = self.spinners.setdefault(child.work.title, Spinner("dots"))
            done, planned = child.progress
            count = f"{done}/{planned}" if planned else ""
            table.add_row(
                spinner,
                child.work.title,
                Text(count, style="cyan", justify="right"),
                Text(f"{child.seconds:.0f} s", style="dim", justify="right"),
                Text(child.current.rpartition("::")[2], style="dim"),
            )
        left = Text(f"{self.done} of {self.total} done", style="dim")
        self.live.update(Group(table, left))

    def ended(self, result: Result) -> None:
        self.done += 1
        if not self.live.is_started or not result.ok:
            self.console.print(line(result))


def line(result: Result) -> Text:
    """One job, one line."""
    text = Text()
    text.append(*_verdict(result))
    text.append(f"  {result.title:<34}")
    text.append(summary(result), style="" if result.ok else "red")
    if not result.cached:
        text.append(f"  {result.seconds:.1f} s", style="dim")
    return text


def summary(result: Result) -> str:
    """What there is to say about a job besides its verdict."""
    if not result.ok:
        return result.problem
    if result.kind != "tests":
        return ""
    counts = {"passed": result.passed, "skipped": len(result.skipped)}
    counts["retired"] = len(result.retired)
    return ", ".join(f"{n} {what}" for what, n in counts.items() if n)


def table(chapters: Iterable[Chapter], results: Sequence[Result]) -> Table:
    """All jobs, one row a chapter, in chapter order."""
    found = {(result.chapter, result.kind): result for result in results}
    view = Table("chapter", "example", "tests", "fails before", "seconds", box=None)
    view.columns[-1].justify = "right"
    for chapter in chapters:
        row = [found.get((chapter.number, kind)) for kind in KINDS]
        if not any(row):
            continue
        seconds = sum(r.seconds for r in row if r and not r.cached)
        view.add_row(
            f"{chapter.number:02} {chapter.slug}",
            *map(_cell, row),
            f"{seconds:.1f}" if seconds else "",
        )
    return view


def failures(results: Sequence[Result]) -> list[Text]:
    """What went wrong, and the command that runs just that again."""
    return [_failure(result) for result in results if not result.ok]


def notes(results: Sequence[Result]) -> list[str]:
    """Skipped tests by reason, and retired tests; each test once."""
    skips: dict[str, set[str]] = {}
    retired: dict[str, str] = {}
    for result in results:
        for test in result.skipped:
            skips.setdefault(test.message or "no reason given", set()).add(test.id)
        retired |= {test.id: test.message for test in result.retired}
    lines = [f"skipped  {len(ids)}: {why}" for why, ids in sorted(skips.items())]
    for index, ids in enumerate(ids for _, ids in sorted(skips.items())):
        lines[index] += f"\n         {_by_file(ids)}"
    return lines + [f"retired  {name}: {why}" for name, why in sorted(retired.items())]


def guarantees(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The guarantees that these results are about, and whether they hold."""
    found = []
    for kind, (number, text) in GUARANTEES.items():
        mine = [result for result in results if result.kind == kind]
        if mine:
            good = sum(result.ok for result in mine)
            found.append(
                {
                    "number": number,
                    "text": text,
                    "ok": good == len(mine),
                    "held": good,
                    "checked": len(mine),
                }
            )
    return found


def _verdict(result: Result) -> tuple[str, str]:
    if not result.ok:
        return "FAIL  ", "bold red"
    return ("cached", "green dim") if result.cached else ("ok    ", "green")


def _cell(result: Result | None) -> Text:
    if result is None:
        return Text("-", style="dim")
    word, style = _verdict(result)
    cell = Text(word.strip(), style=style)
    if result.ok and result.kind == "tests":
        cell.append(f" ({summary(result)})", style="dim")
    return cell


def _failure(result: Result) -> Text:
    text = Text()
    text.append(f"\n{result.title}, at stage {result.stage}\n", style="bold red")
    text.append(f"  {result.problem}\n")
    if len(result.failures) > 1:
        for test in result.failures:
            text.append(f"    {test.id}: {_first_line(test.message)}\n")
    if result.detail:
        shown = "".join(f"    {x}\n" for x in result.detail.rstrip().splitlines())
        text.append(shown, style="dim")
    text.append(f"  again: {result.rerun}\n")
    if result.failures and "--test" not in result.rerun:
        chapter, test = result.chapter, result.failures[0].id
        text.append(f"  only the first test: {_test_command(chapter, test)}\n")
    return text


def _test_command(chapter: int, test: str) -> str:
    return f"tools/steps.py check {chapter} --test {shlex.quote(test)}"


def _by_file(ids: Iterable[str]) -> str:
    counts: dict[str, int] = {}
    for name in sorted(ids):
        file = name.partition("::")[0]
        counts[file] = counts.get(file, 0) + 1
    return ", ".join(f"{file} ({count})" for file, count in counts.items())


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""
