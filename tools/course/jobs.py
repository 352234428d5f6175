"""Child processes: several at a time, each in a group of its own that ends with it.

One thread starts them, looks at them a few times a second and stops what hangs. A child
gets an environment made here, not the caller's, so that a user's settings for Python,
pytest or a plugin cannot change a verdict.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

_TICK = 0.03  # seconds between two looks
_OUTPUT_LIMIT = 32 * 2**20  # bytes of each of stdout and stderr
# What a child may know of its caller; names that end in "_" are prefixes.
_INHERITED = (
    "CUDA_",
    "DYLD_",
    "HOME",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "NVIDIA_",
    "PATH",
    "TMPDIR",
    "USER",
)
_FIXED = {
    "COLUMNS": "80",
    "HF_HUB_OFFLINE": "1",
    "LANG": "C.UTF-8",
    "MKL_NUM_THREADS": "1",
    "NO_COLOR": "1",
    "OMP_NUM_THREADS": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONNOUSERSITE": "1",
    "PYTHONUTF8": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_OFFLINE": "1",
    "TZ": "UTC",
}


def child_environment(**more: str) -> dict[str, str]:
    """The environment of a child: a few inherited names, fixed settings, and `more`."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if any(name.startswith(k) if k.endswith("_") else name == k for k in _INHERITED)
    }
    return inherited | _FIXED | more


@dataclass(frozen=True)
class Command:
    """What to run; `cwd` is the scratch folder made for it."""

    argv: list[str]
    env: dict[str, str]


class Work(Protocol):
    """One thing to run in a child process."""

    @property
    def title(self) -> str:
        """How people call it: `03 pool: tests`."""

    def prepare(self, scratch: Path, events: Path) -> Command:
        """Fill the empty folder `scratch` and say what to run in it."""


@dataclass
class Ended:
    """How a child ended. `stopped` says why we ended it, if we did.

    `status` is the exit status, negative for a signal. `events` is the child's record.
    """

    status: int
    seconds: float
    stopped: str
    events: list[dict[str, Any]]
    stdout: bytes
    stderr: str


@dataclass
class Running:
    """A child at work, with its scratch folder and the events read so far."""

    work: Work
    folder: Path
    timeout: float
    events: list[dict[str, Any]] = field(default_factory=list)

    def start(self) -> None:
        scratch = self.folder / "work"
        scratch.mkdir()
        command = self.work.prepare(scratch, self.folder / "events")
        with self._open("stdout") as out, self._open("stderr") as err:
            self.process = subprocess.Popen(
                command.argv,
                cwd=scratch,
                env=command.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.started = self.last_sign = time.monotonic()
        self._read = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def progress(self) -> tuple[int, int]:
        """Tests done, and tests planned (0 before that is known)."""
        done = sum(e["event"] == "test" for e in self.events)
        planned = sum(len(e["tests"]) for e in self.events if e["event"] == "plan")
        return done, planned

    @property
    def current(self) -> str:
        """Id of the test that is running, "" between tests and in an example."""
        last = self.events[-1] if self.events else {}
        return str(last["id"]) if last.get("event") == "start" else ""

    def look(self) -> Ended | None:
        """Read the record; the end, if the child ended or had to be stopped."""
        status = self.process.poll()
        if self._read_events():
            self.last_sign = time.monotonic()
        if status is None and (reason := self._must_stop()):
            return self.stop(reason)
        return None if status is None else self._end("")

    def stop(self, reason: str) -> Ended:
        return self._end(reason)

    def _must_stop(self) -> str:
        if time.monotonic() - self.last_sign > self.timeout:
            where = f" in {self.current}" if self.current else ""
            return f"nothing happened for {self.timeout:g} s{where}"
        for name in ("stdout", "stderr"):
            if (self.folder / name).stat().st_size > _OUTPUT_LIMIT:
                return f"it wrote more than {_OUTPUT_LIMIT >> 20} MiB to {name}"
        return ""

    def _end(self, reason: str) -> Ended:
        # also after a normal end: a child may have left others behind
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        status = self.process.wait()
        self._read_events()
        return Ended(
            status=status,
            seconds=self.seconds,
            stopped=reason,
            events=self.events,
            stdout=(self.folder / "stdout").read_bytes()[:_OUTPUT_LIMIT],
            stderr=(self.folder / "stderr").read_text(errors="replace"),
        )

    def _open(self, name: str) -> Any:
        return open(self.folder / name, "wb")

    def _read_events(self) -> bool:
        """Take in whole new lines; whether there were any."""
        path = self.folder / "events"
        if not path.exists():
            return False
        with path.open("rb") as file:
            file.seek(self._read)
            lines, newline, _ = file.read().rpartition(b"\n")
        self._read += len(lines + newline)
        self.events += [event for line in lines.splitlines() if (event := _event(line))]
        return bool(newline)


def run_all(
    works: Sequence[Work],
    *,
    jobs: int,
    timeout: float,
    folder: Path,
    ended: Callable[[Work, Ended], None],
    tick: Callable[[list[Running]], None] = lambda running: None,
) -> None:
    """Run `works` in order, `jobs` at a time, and report each end.

    A child that shows no sign of life (no test finished) for `timeout` seconds is
    stopped. Scratch folders are made below `folder` and removed.

    Raises KeyboardInterrupt on Ctrl-C or a request to end, after all children ended.
    """
    folder.mkdir(parents=True, exist_ok=True)
    waiting, running = deque(works), list[Running]()
    with _signals_noted() as signals:
        try:
            while (waiting or running) and not signals:
                while waiting and len(running) < jobs:
                    place = Path(tempfile.mkdtemp(dir=folder))
                    running.append(Running(waiting.popleft(), place, timeout))
                    running[-1].start()
                for child in list(running):
                    if end := child.look():
                        running.remove(child)
                        shutil.rmtree(child.folder, ignore_errors=True)
                        ended(child.work, end)
                tick(running)
                time.sleep(_TICK)
        finally:
            for child in running:
                if hasattr(child, "process"):
                    child.stop("interrupted")
                shutil.rmtree(child.folder, ignore_errors=True)
    if signals:
        raise KeyboardInterrupt


@contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """Collect requests to end instead of being thrown out between two statements."""
    noted: list[int] = []
    before = {}
    with suppress(ValueError):  # not in the main thread: nothing to collect there
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handler = signal.signal(number, lambda received, _: noted.append(received))
            before[number] = handler
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
