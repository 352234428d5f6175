"""Runs in a fresh interpreter: one example, or one pytest session, of one stage.

    python child.py STAGE EVENTS example SCRIPT
    python child.py STAGE EVENTS tests RETIRED PYTEST_ARGUMENT...

`minisgl` comes from the folder STAGE or from nowhere, whatever else is installed.
What happens is written to the file EVENTS, one JSON object a line, so that no verdict
is read from printed text. A record without an "end" line is of a run cut short.
RETIRED is a JSON object, test id to reason. Standard library and pytest only: this
file is run by path, not imported.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TEXT_LIMIT = 20_000  # characters of one traceback
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


class StageFinder:
    """Finds the package in the stage's folder; anything else is not looked for."""

    def __init__(self, stage: str) -> None:
        self.stage = stage

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "minisgl":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, [self.stage])
        if spec is None:
            raise ModuleNotFoundError("No module named 'minisgl' at this stage")
        return spec


class Events:
    """The record of a run of the package in the folder `stage`."""

    def __init__(self, path: str, stage: str) -> None:
        self.stage = stage
        self.file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - for the whole run

    def write(self, event: str, **fields: object) -> None:
        self.file.write(json.dumps({"event": event, **fields}) + "\n")
        self.file.flush()

    def end(self, status: int) -> None:
        """The run is whole; and where `minisgl` came from, None if it was not used."""
        package = sys.modules.get("minisgl")
        origin = str(getattr(package, "__file__", None) or "") if package else None
        self.write("end", status=status, minisgl=origin, stage=self.stage)


class Recorder:
    """A pytest plugin that records what was planned, started and found out."""

    def __init__(self, events: Events, retired: dict[str, str]) -> None:
        self.events = events
        self.retired = retired
        self.result: dict[str, str] = {}

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            text = str(report.longrepr)
            self._write(report.nodeid, "error", _last_line(text), text)
        elif report.skipped and self._is_skipped_by_package(report):
            self._write(report.nodeid, "error", "minisgl skipped the tests")
        elif report.skipped:
            self._write(report.nodeid, "skipped", _skip_reason(report))

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        kept, retired = [], []
        for item in items:
            name = item.nodeid.partition("[")[0]
            (retired if name in self.retired else kept).append(item)
        for item in retired:
            reason = self.retired[item.nodeid.partition("[")[0]]
            self._write(item.nodeid, "retired", reason)
        items[:] = kept
        config.hook.pytest_deselected(items=retired)
        self.events.write("plan", tests=[item.nodeid for item in items])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.events.write("start", id=nodeid)
        self.result = {"outcome": "passed", "message": "", "text": ""}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called for set-up, call and tear-down; the worst of the three counts."""
        if report.failed:
            text = report.longreprtext
            self.result = {
                "outcome": "failed",
                "message": _message(report),
                "text": text,
            }
        elif report.skipped and self._is_skipped_by_package(report):
            self.result |= {"outcome": "failed", "message": "minisgl skipped the test"}
        elif report.skipped:
            self.result |= {"outcome": "skipped", "message": _skip_reason(report)}
        if report.when == "teardown":
            self._write(report.nodeid, **self.result)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.events.end(int(exitstatus))

    def _is_skipped_by_package(self, report: Any) -> bool:
        """Only a test may skip itself."""
        place = report.longrepr[0] if isinstance(report.longrepr, tuple) else ""
        return Path(place).is_relative_to(self.events.stage)

    def _write(self, nodeid: str, outcome: str, message: str, text: str = "") -> None:
        text = text.replace(os.path.relpath(self.events.stage) + os.sep, "")
        text = text[-_TEXT_LIMIT:]
        self.events.write(
            "test", id=nodeid, outcome=outcome, message=message, text=text
        )


def run_example(events: Events, script: str) -> int:
    """Run `script` as the main program; returns its exit status."""
    sys.argv = [script]
    sys.path.insert(1, str(Path(script).parent))
    status = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        status = _exit_status(error)
    except BaseException as error:
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename != script:
            trace = trace.tb_next
        traceback.print_exception(type(error), error, trace or error.__traceback__)
        status = 1
    sys.stdout.flush()
    events.end(status)
    return status


def run_tests(events: Events, retired: str, arguments: list[str]) -> int:
    import pytest

    return pytest.main(arguments, plugins=[Recorder(events, json.loads(retired))])


def _exit_status(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


def _message(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message if crash else _last_line(report.longreprtext)


def _skip_reason(report: Any) -> str:
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail}".rstrip(": ")
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    return str(reason).removeprefix("Skipped: ")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("E").strip() if lines else ""


def _end_with_parent() -> None:
    """If the runner is killed, nothing of it stays behind (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(argv: list[str]) -> int:
    _end_with_parent()
    stage, record, kind, *rest = argv
    sys.meta_path.insert(0, StageFinder(stage))
    if sys.path[:1] != [stage]:
        sys.path.insert(0, stage)
    events = Events(record, stage)
    run: Callable[..., int] = run_example if kind == "example" else run_tests
    return run(events, rest[0], *([rest[1:]] if kind == "tests" else []))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
