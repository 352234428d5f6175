"""Live drawings: at build time the chapter's own Python draws them, as in the browser.

The drivers are `practice/web/python/live/KIND.py`. Here they run under CPython, on the
torch-free modules of the chapter's stage, in a process of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from course.errors import CourseError
from course.pages.problems import LIBRARY, library

DRIVERS = "practice/web/python"
_SHARED = "play"  # what all drivers import
_TIMEOUT_S = 30
_RUN = """\
import json, sys
kind, stage, drivers, asked = sys.argv[1:]
sys.path[:0] = [stage, drivers]
from importlib import import_module
from live.play import BadInput
try:
    said = import_module(f"live.{kind}").run(json.loads(asked))
except BadInput as bad:
    said = {"bad": str(bad)}
print(json.dumps(said))
"""


class LiveError(Exception):
    """What cannot be drawn; `line` is that of the operations, from 0, or None."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what)
        self.line = line


def kinds(root: Path) -> list[str]:
    """The kinds of drawings there are."""
    found = (root / DRIVERS / "live").glob("*.py")
    return sorted(path.stem for path in found if path.stem != _SHARED)


def played(
    root: Path,
    chapter: int,
    kind: str,
    options: Sequence[tuple[str, str]],
    operations: Sequence[str],
) -> dict[str, Any]:
    """What the driver says to these operations: see `play` in live/play.py.

    Raises LiveError for an option or a line that it does not know.
    """
    stage = library(root, chapter) / LIBRARY
    asked = {"options": dict(options), "operations": list(operations)}
    drivers = root / DRIVERS
    stamps = tuple(f.stat().st_mtime_ns for f in sorted(drivers.glob("live/*.py")))
    said = _played(stage, drivers, kind, json.dumps(asked), stamps)
    if "bad" in said:
        raise LiveError(said["bad"])
    for line, step in enumerate(said["steps"][1:]):
        if step["is_bad"]:
            raise LiveError(step["error"], line)
    return said


@lru_cache(maxsize=64)
def _played(
    stage: Path, drivers: Path, kind: str, asked: str, stamps: tuple[int, ...]
) -> dict[str, Any]:
    """`stamps` are the drivers' times: a changed one is asked again."""
    command = [sys.executable, "-I", "-B", "-c", _RUN, kind]
    command += [str(stage.resolve()), str(drivers.resolve()), asked]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        last = (done.stderr.strip() or "no output").splitlines()[-1]
        raise CourseError(
            f"the live drawing {kind} broke: {last}",
            f"does this chapter have what {DRIVERS}/live/{kind}.py imports?",
        )
    return json.loads(done.stdout)
