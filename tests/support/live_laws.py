"""What holds for every live drawing, and how its tests play one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from live.play import BadInput, World, play

BAD = [
    ("", "there is no operation ''"),
    ("nothing 1", "there is no operation 'nothing'"),
]


class Player:
    """Plays operations on new worlds of one type."""

    def __init__(self, world_type: type[World], **options: str) -> None:
        self.world_type, self.options = world_type, options

    def __call__(self, *operations: str) -> list[dict[str, Any]]:
        """The steps of these operations, without the beginning."""
        return self.whole(*operations)["steps"][1:]

    def whole(self, *operations: str) -> dict[str, Any]:
        asked = {"options": self.options, "operations": list(operations)}
        said = play(self.world_type, json.loads(json.dumps(asked)))
        assert json.loads(json.dumps(said)) == said
        return said

    def last(self, *operations: str) -> dict[str, Any]:
        return self(*operations)[-1]

    def text(self, *operations: str) -> str:
        """What is there in the end, as text."""
        return self.last(*operations)["text"]

    def refuses(self, line: str, why: str, *before: str) -> None:
        """A line that cannot be read: it says why, and nothing changes."""
        step = self.last(*before, line)
        assert step["is_bad"] and why in step["error"], step["error"]
        again = self.last(*before, line, line)
        assert step["sizes"] == again["sizes"] and step["text"] == again["text"]

    def refuses_option(self, why: str) -> None:
        with pytest.raises(BadInput, match=why):
            self.whole()

    def test_of(self, *operations: str) -> str:
        """The test that repeats the steps; it must pass."""
        written = self.whole(*operations)["test"]
        run_test(written)
        return written


def run_test(written: str) -> None:
    names: dict[str, Callable[[], None]] = {}
    exec(compile(written, "copied test", "exec"), names)  # what a reader would run
    names["test_the_steps"]()
