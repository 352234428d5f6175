"""How a result looks in a terminal: words and signs first, colour second."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from practice.problems import Problem

_MARKS = {
    "passed": ("ok     ", "green"),
    "failed": ("FAIL   ", "bold red"),
    "error": ("FAIL   ", "bold red"),
    "timed out": ("TIME   ", "bold red"),
    "not run": ("not run", "dim"),
}
_GAP = 4  # columns between two pictures side by side


def show_result(console: Console, problem: Problem, result: dict[str, Any]) -> None:
    """Every test in a line, and the first that did not pass in full."""
    for test in result["tests"]:
        console.print(Text.assemble(_MARKS[test["status"]], " ", test["name"]))
    first = next(
        (t for t in result["tests"] if t["status"] not in ("passed", "not run")), None
    )
    console.print()
    if first:
        _show_failure(console, first)
    style = "green" if result["status"] == "accepted" else "bold red"
    _show_output(console, "printed while loading", result["output"])
    word = result["status"].capitalize()
    console.print(Text(f"{word}: {result['message']}", style=style))
    if result["status"] == "accepted" and problem.applies_to:
        command = f"practice/judge.py apply {problem.slug}"
        console.print(Text(f"into your own package: {command}", style="dim"))


def _show_failure(console: Console, test: dict[str, Any]) -> None:
    failure = test["failure"]
    console.print(Text(test["name"], style="bold"))
    if failure is None:
        console.print(_indented(test["message"]))
    else:
        if failure["operations"] and len(failure["operations"]) > 1:
            console.print(_indented("after"))
            for number, text in enumerate(failure["operations"][:-1], 1):
                console.print(_indented(f"{number:3d}  {text}"))
        for name, key in [
            ("called", "call"),
            ("expected", "expected"),
            ("got", "actual"),
            ("look at", "look"),
        ]:
            if failure[key]:
                console.print(_labelled(name, failure[key]))
        if test["status"] == "error" and "\n" in test["message"]:
            console.print(_indented(test["message"].partition("\n")[2]))
        _show_drawings(console, failure)
    _show_output(console, "your answer printed", test["output"])
    console.print()


def _show_drawings(console: Console, failure: dict[str, Any]) -> None:
    """Both pictures, side by side where there is room."""
    ours, theirs = failure["expected_drawing"], failure["actual_drawing"]
    if ours is None and theirs is None:
        return
    left = ["expected", *(ours or "(no picture)").split("\n")]
    right = ["yours", *(theirs or "(no picture)").split("\n")]
    width = max(map(len, left))
    console.print()
    if console.is_terminal and width + _GAP + max(map(len, right)) + 2 > console.width:
        lines = [*left, "", *right]
    else:
        rows = max(len(left), len(right))
        left += [""] * (rows - len(left))
        right += [""] * (rows - len(right))
        lines = [
            f"{a:{width}}{' ' * _GAP}{b}".rstrip()
            for a, b in zip(left, right, strict=True)
        ]
    for line in lines:
        console.print(Text(f"  {line}"), overflow="ignore", crop=False)


def _show_output(console: Console, label: str, text: str) -> None:
    if text:
        console.print(_indented(f"{label}:"))
        console.print(_indented(text.rstrip("\n"), 4))


def _labelled(name: str, text: str) -> Padding:
    return _indented(f"{name:10s}{text}".replace("\n", "\n" + " " * 10))


def _indented(text: str, by: int = 2) -> Padding:
    return Padding(Text(text), (0, 0, 0, by), expand=False)
