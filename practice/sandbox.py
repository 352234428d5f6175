"""Grades an answer in a process of its own, with limits, and trusts it with nothing.

The child says over a pipe what it is about to do and what came of it, each time with a
word that was made for this run. The verdict is worked out here, from those records; a
run without a complete record has no result.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from practice.problems import Problem
from practice.record import BadRecord, Record
from practice.stages import LIBRARY, library

TEST_SECONDS = 5.0  # for one test, and for loading the answer
_START_SECONDS = 10.0  # for the interpreter and the tests to load, on a busy machine


def grade(
    root: Path,
    problem: Problem,
    answer: str,
    *,
    seconds: float = TEST_SECONDS,
    tick: Callable[[str], None] = lambda doing: None,
) -> dict[str, Any]:
    """The result of `answer`, in the form that `grading.run` returns.

    No test takes longer than `seconds`: one that does is stopped, named, and the last.
    `tick` is told the name of each test before it starts.
    """
    word = secrets.token_hex(16)
    record = Record(problem.slug, problem.checks, word, tick)
    request = {
        "word": word,
        "run": {
            "slug": problem.slug,
            "answer": answer,
            "tests": problem.tests,
            "defines": problem.required,
            "checks": problem.checks,
            "holes": problem.holes,
        },
    }
    with _child(library(root, problem.chapter), request) as (process, channel):
        try:
            in_time = _read(record, channel, seconds)
        except BadRecord as fault:
            return record.no_result(f"the run has no good record: {fault}")
        if not in_time:
            return record.stopped(seconds)
        if not record.is_whole:
            return record.died(_end_of(process))
    return record.verdict()


def _read(record: Record, channel: int, seconds: float) -> bool:
    """Read until the record is whole or the child is gone; False: it took too long."""
    deadline = time.monotonic() + seconds + _START_SECONDS
    while not record.is_whole:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([channel], [], [], left)[0]:
            return False
        data = os.read(channel, 1 << 16)
        if not data:
            return True
        if record.take(data):
            deadline = time.monotonic() + seconds
    return True


@contextmanager
def _child(
    made: Path, request: dict[str, Any]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start the child in an empty folder; on leaving, it and what it started are gone.

    It gets a copy of the library of its own, so that it can spoil nobody else's.
    """
    with tempfile.TemporaryDirectory(prefix="judge-") as folder:
        home, empty = Path(folder) / "home", Path(folder) / "empty"
        shutil.copytree(made, home)
        empty.mkdir()
        channel, inner = os.pipe()
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", str(home / "child.pyc")],
                cwd=empty,
                env={"LANG": "C.UTF-8", "TZ": "UTC"},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(inner,),
                start_new_session=True,
            )
        except BaseException:
            os.close(channel)
            raise
        finally:
            os.close(inner)
        try:
            request |= {"channel": inner, "library": str(home / LIBRARY)}
            with suppress(BrokenPipeError), process.stdin as stdin:
                stdin.write(json.dumps(request).encode())
            yield process, channel
        finally:
            os.close(channel)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _end_of(process: subprocess.Popen[bytes]) -> str:
    """How a child ended that said nothing more, for people."""
    try:
        status = process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return "closed the judge's channel"
    if status >= 0:
        return f"ended the process, with exit status {status}"
    name = signal.Signals(-status).name
    if name in ("SIGSEGV", "SIGBUS", "SIGABRT"):
        return f"crashed the interpreter ({name}), as recursion too deep does"
    return f"was stopped by the system ({name})"
