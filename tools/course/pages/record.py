"""Record a run: what a command printed, when, and on what machine."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from course.errors import CheckFailed
from course.manifest import Course
from course.pages.runs import RUNS, Recorded, Run
from course.stack import Stack

_LIMIT_S = 1800


def record(course: Course, key: str) -> Recorded:
    """Run it and write `docs/runs/KEY.json`; the recording, its figures found.

    With a `chapter`, `import minisgl` finds that chapter's stage. Raises `RunError`,
    or `CheckFailed` when the command fails; then nothing is written.
    """
    run = Run.load(course.root, key)
    fingerprint = run.fingerprint(course.root)
    with tempfile.TemporaryDirectory(prefix="run-") as folder:
        package = course.root
        if run.chapter is not None:
            package = Path(folder)
            Stack(course).export(run.chapter, package)
        output = _run(course.root, package, run)
    recorded = Recorded(run, datetime.date.today().isoformat(), _machine(), output)
    for name in run.figures:
        recorded.figure(name)
    data = {
        "fingerprint": fingerprint,
        "command": " ".join(["python", *run.command]),
        "date": recorded.date,
        "machine": recorded.machine,
        "output": output,
    }
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    (course.root / RUNS / f"{key}.json").write_text(text, encoding="utf-8")
    return recorded


def _run(root: Path, package: Path, run: Run) -> str:
    # the package first: an editable install must not answer for it
    path = os.pathsep.join([str(package), str(root / "examples"), str(root / "tools")])
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | offline
    command = [sys.executable, "-P", *run.command]
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env=env,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CheckFailed(
            f"{run.key}: no end after {_LIMIT_S} s", "make the run shorter"
        ) from None
    if done.returncode:
        raise CheckFailed(
            f"{run.key}: {' '.join(run.command)} ended with code {done.returncode}",
            "see what it printed, above; nothing was recorded",
        )
    return done.stdout


def _machine() -> str:
    """What the figures depend on, without naming the machine."""
    parts = [f"{platform.system()} {platform.machine()}"]
    parts.append(f"{os.cpu_count()} cores")
    parts.append(f"Python {platform.python_version()}")
    try:
        parts.append(f"torch {metadata.version('torch')}")
    except metadata.PackageNotFoundError:
        return ", ".join(parts)
    import torch

    if torch.cuda.is_available():
        parts.append(torch.cuda.get_device_name(0))
    return ", ".join(parts)
