"""What came of a run: single tests, a whole session, the verdict on a job.

Everything is read from the record that the child wrote, never from printed text.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from course.jobs import Ended


@dataclass(frozen=True)
class TestResult:
    """One test: outcome passed, failed, error (while collected), skipped or retired."""

    __test__ = False  # not a test itself, whatever its name

    id: str
    outcome: str
    message: str = ""
    text: str = ""

    @property
    def is_bad(self) -> bool:
        return self.outcome in ("failed", "error")

    @property
    def file(self) -> str:
        return self.id.partition("::")[0]


@dataclass(frozen=True)
class TestRecord:
    """What a pytest session recorded; `end` is None if it was cut short."""

    __test__ = False

    tests: list[TestResult]
    end: dict[str, Any] | None
    current: str

    @classmethod
    def of(cls, events: Sequence[dict[str, Any]]) -> TestRecord:
        tests = [
            TestResult(e["id"], e["outcome"], e["message"], e["text"])
            for e in events
            if e["event"] == "test"
        ]
        end = next((e for e in events if e["event"] == "end"), None)
        started = [e["id"] for e in events if e["event"] == "start"]
        done = {test.id for test in tests}
        return cls(tests, end, next((i for i in started if i not in done), ""))

    def having(self, outcome: str) -> list[TestResult]:
        return [test for test in self.tests if test.outcome == outcome]

    @property
    def bad(self) -> list[TestResult]:
        return [test for test in self.tests if test.is_bad]


@dataclass
class Result:
    """The verdict on one job. `problem` is one line, `detail` what to look at."""

    title: str
    chapter: int
    kind: str
    stage: int
    rerun: str
    ok: bool = True
    cached: bool = False
    seconds: float = 0.0
    passed: int = 0
    skipped: list[TestResult] = field(default_factory=list)
    retired: list[TestResult] = field(default_factory=list)
    failures: list[TestResult] = field(default_factory=list)
    problem: str = ""
    detail: str = ""

    def fail(self, problem: str, detail: str = "") -> Result:
        self.ok, self.problem, self.detail = False, problem, detail
        return self

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Result:
        for name in ("skipped", "retired", "failures"):
            data[name] = [TestResult(**test) for test in data[name]]
        return cls(**data)


def example_problem(ended: Ended) -> str:
    """Why a run of an example is not one to look at; "" if it is."""
    if ended.stopped:
        return ended.stopped
    end = next((e for e in ended.events if e["event"] == "end"), None)
    if end is None:
        return f"left before its end, {_status(ended.status)}"
    if end["status"] or ended.status:
        return f"failed, {_status(end['status'] or ended.status)}"
    return _origin_problem(end)


def session_problem(record: TestRecord, ended: Ended) -> str:
    """Why a pytest session is not one to count; "" if it is."""
    where = f" in {record.current}" if record.current else ""
    if ended.stopped:
        return ended.stopped
    status = record.end["status"] if record.end else ended.status
    if record.end is None or status in (2, 3):  # interrupted, broken off
        return f"the tests stopped before their end{where}, {_status(status)}"
    if status not in (0, 1, 5):
        return f"pytest could not run, {_status(status)}"
    if status == 5 and not record.tests:
        return "no test ran"
    return _origin_problem(record.end)


def output_diff(recorded: bytes, printed: bytes) -> str:
    """A unified diff of two outputs."""
    before, after = (text_of(t).splitlines(keepends=True) for t in (recorded, printed))
    lines = list(difflib.unified_diff(before, after, "recorded", "printed"))
    marked = [x if x.endswith("\n") else f"{x}\n\\ no newline at end\n" for x in lines]
    return "".join(marked) or "only the bytes differ (line ends, or not UTF-8)\n"


def tail(text: str, lines: int = 25) -> str:
    return "\n".join(text.splitlines()[-lines:])


def text_of(data: bytes) -> str:
    return data.decode(errors="replace")


def _origin_problem(end: dict[str, Any]) -> str:
    """Guards against an installed `minisgl` that answers for the stage's own."""
    origin, stage = end["minisgl"], end["stage"]
    if origin is None or Path(origin).is_relative_to(stage):
        return ""
    return f"minisgl came from {origin or 'a folder without __init__.py'}, not {stage}"


def _status(status: int) -> str:
    return f"ended by signal {-status}" if status < 0 else f"exit status {status}"
