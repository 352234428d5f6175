"""What a child says about a run, and the result that follows from it.

Events come in one possible order: the plan, the loading of the answer, test after test,
the end. Each carries the word that only the judge's own code in the child was given.
Anything else breaks the record, and a broken record is no result.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from practice import grading

SIZE_LIMIT = 8 << 20  # bytes of a whole record; an honest one has some kilobytes
_STATUSES = ("passed", "failed", "error", "timed out")
_FAILURE_TEXTS = ("call", "expected", "actual", "look")
_FAILURE_DRAWINGS = ("expected_drawing", "actual_drawing")


class BadRecord(Exception):
    """The child sent something that no grading core sends."""


class Record:
    """A run as it is told: the tests so far, and the one that is running."""

    def __init__(
        self,
        slug: str,
        planned: int,
        word: str,
        tick: Callable[[str], None] = lambda doing: None,
    ) -> None:
        self.slug = slug
        self.planned = planned
        self.tests: list[dict[str, Any]] = []
        self._word = word
        self._tick = tick
        self._rest = b""
        self._size = 0
        self._started: int | None = None  # the last step: -1 loading, then the tests
        self._doing = "starting"
        self._done = 0  # tests that came to an end
        self._printed = ""  # by what is running
        self._found: dict[str, Any] | None = None  # a failure that is being shrunk
        self._end: dict[str, Any] | None = None

    @property
    def is_whole(self) -> bool:
        return self._end is not None

    def take(self, data: bytes) -> bool:
        """Take in bytes of the channel; True if a new step began. Raises BadRecord."""
        self._size += len(data)
        if self._size > SIZE_LIMIT:
            raise BadRecord("it is too long")
        *lines, self._rest = (self._rest + data).split(b"\n")
        is_new = False
        for line in lines:
            is_new |= self._take_line(line)
        return is_new

    # what follows from it

    def verdict(self) -> dict[str, Any]:
        """The result of a whole record."""
        assert self._end is not None, "the record is not whole"
        executed, output = self._end["checks"]["executed"], self._end["output"]
        if self._done == len(self.tests):
            return grading.verdict(
                self.slug, self.tests, self.planned, executed, output
            )
        return self._result("rejected", self._end["message"], executed, output)

    def stopped(self, seconds: float) -> dict[str, Any]:
        """The result of a run in which one step took too long."""
        if not self.tests:
            return self.no_result("the tests of this problem did not start in time")
        problem = f"did not end within {seconds:g} s"
        self._close("timed out", f"{problem}: look for a loop that nothing makes end")
        return self._result("rejected", f"{self._doing}: {problem}")

    def died(self, how: str) -> dict[str, Any]:
        """The result of a run that broke off."""
        problem = f"your answer {how}"
        self._close("error", problem)
        return self.no_result(f"{self._doing}: {problem}")

    def no_result(self, why: str) -> dict[str, Any]:
        return self._result("no result", why)

    def _result(
        self, status: str, message: str, executed: int = 0, output: str | None = None
    ) -> dict[str, Any]:
        if output is None:
            output = self._printed if self._started == -1 else ""
        return grading.result_of(
            self.slug, status, message, self.tests, self.planned, executed, output
        )

    def _close(self, status: str, message: str) -> None:
        """Say of the running test how it ended; a failure that it met goes first."""
        if self._started is None or not 0 <= self._started == self._done:
            return
        test = self.tests[self._done]
        test |= {"status": status, "message": message, "output": self._printed}
        if self._found is not None:
            test |= {"status": "failed", "failure": self._found}
            test["message"] = grading.message_of(self._found)

    # events

    def _take_line(self, line: bytes) -> bool:
        try:
            event = json.loads(line)
            if not isinstance(event, dict) or event.get("word") != self._word:
                raise BadRecord("something else wrote to it")
            if self._end is not None:
                raise BadRecord("it goes on after its end")
            kind, index = event["event"], event.get("index")
            if kind == "plan" and not self.tests:
                self._plan(event["tests"])
            elif kind == "start" and index == self._next():
                self._start(index, _text(event["name"]))
            elif kind == "output" and index == self._started:
                room = grading.OUTPUT_LIMIT - len(self._printed)
                self._printed += _text(event["text"])[: max(0, room)]
            elif kind == "found" and index == self._started:
                self._found = _failure(event["failure"])
            elif kind == "test" and index == self._started == self._done:
                self.tests[index] = _test(event["record"], self.tests[index]["name"])
                self._done += 1
            elif kind == "broken":
                raise BadRecord(f"the tests of this problem broke\n{event['text']}")
            elif kind == "end" and self._started is not None:
                self._end = _ending(event["result"])
            else:
                raise BadRecord(f"{kind} comes out of turn")
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise BadRecord(f"it cannot be read ({type(error).__name__})") from None
        return kind in ("start", "test")

    def _plan(self, tests: Any) -> None:
        self.tests = [grading.not_run(_text(test["name"])) for test in tests]

    def _next(self) -> int | None:
        """The step that may start now: the one before it must have ended."""
        if not self.tests:
            return None
        step = -1 if self._started is None else self._started + 1
        return step if self._done == max(step, 0) else None

    def _start(self, index: int, name: str) -> None:
        self._started, self._doing = index, name
        self._printed, self._found = "", None
        self._tick(name)


# events have these shapes, and no others


def _test(record: Any, name: str) -> dict[str, Any]:
    if record["status"] not in _STATUSES or record["name"] != name:
        raise ValueError
    failure = record["failure"]
    return {
        "name": name,
        "status": record["status"],
        "time_ms": float(record["time_ms"]),
        "message": _text(record["message"]),
        "output": _text(record["output"]),
        "failure": None if failure is None else _failure(failure),
    }


def _failure(failure: Any) -> dict[str, Any]:
    operations = failure["operations"]
    return {
        **{key: _text(failure[key]) for key in _FAILURE_TEXTS},
        "operations": operations if operations is None else [*map(_text, operations)],
        **{key: failure[key] and _text(failure[key]) for key in _FAILURE_DRAWINGS},
    }


def _ending(result: Any) -> dict[str, Any]:
    executed = result["checks"]["executed"]
    if type(executed) is not int:
        raise TypeError
    return {
        "message": _text(result["message"]),
        "output": _text(result["output"]),
        "checks": {"executed": executed},
    }


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value
