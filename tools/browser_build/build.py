"""Puts together what the pages load, in one folder, and only if something changed.

manifest.json     what was built from what, and the sha256 of every file
exercise.js .css  the exercise component; runtime.js, worker.js, chunks/ behind it
live.js .css      the live drawings, on the same runtime
runtime/          Pyodide, the stage wheels, their pyodide-lock.json
python/           grading.py, what tests share, and what else runs in the worker
chapters/NN/      problems.json
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from course.errors import CourseError
from course.manifest import Course

from browser_build.node import NodeTools
from browser_build.problems import problems_by_chapter
from browser_build.wheels import make_stdlib, make_wheels, stage_sources
from practice.grading import WORLDS

RUNTIME = ("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm")
ENTRIES = (
    "exercise.js",
    "exercise.css",
    "live.js",
    "live.css",
    "runtime.js",
    "worker.js",
)

_INPUTS = ("steps", "practice", "tools/browser_build", "tools/course")
_SKIPPED = {"node_modules", "__pycache__"}


@dataclass(frozen=True)
class Built:
    """Where it is, and whether anything had to be done."""

    path: Path
    is_new: bool
    num_files: int
    num_bytes: int


def build(root: Path, dest: Path | None = None) -> Built:
    """Build the browser files of the checkout `root` into `dest` (build/web).

    Nothing is done when `dest` holds exactly what these inputs give. Otherwise the new
    folder replaces the old one when it is complete, and never before.

    Raises:
        CourseError, CheckFailed: what is missing or wrong, and what to do next.
    """
    dest = dest or root / "build" / "web"
    cache = root / "build" / "web-cache"
    inputs = fingerprint(root)
    with _only_one(cache):
        if not is_current(dest, inputs):
            _check_replaceable(dest)
            draft = dest.with_name(dest.name + ".new")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            _fill(root, draft, cache)
            _write_manifest(draft, inputs)
            shutil.rmtree(dest, ignore_errors=True)
            draft.rename(dest)
            return _built(dest, is_new=True)
    return _built(dest, is_new=False)


def fingerprint(root: Path) -> str:
    """A hash of every file that the result depends on."""
    whole = hashlib.sha256()
    for file in [root / "pyproject.toml", *_input_files(root)]:
        name = file.relative_to(root).as_posix()
        whole.update(f"{name} {_sha256(file)}\n".encode())
    return whole.hexdigest()


def is_current(dest: Path, inputs: str) -> bool:
    """Whether `dest` was built from these inputs, and no file of it changed since."""
    try:
        manifest = json.loads((dest / "manifest.json").read_text())
        return manifest["inputs"] == inputs and manifest["files"] == _files(dest)
    except (OSError, ValueError, KeyError):
        return False


def _fill(root: Path, dest: Path, cache: Path) -> None:
    course = Course.load(root)
    node = NodeTools(root / "practice" / "web")
    node.install()
    node.bundle(ENTRIES, dest)

    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    wheels = make_wheels(node, stage_sources(course), version, cache)
    _copy([node.pyodide / name for name in RUNTIME], dest / "runtime")
    _copy(sorted(make_stdlib(node, cache).iterdir()), dest / "runtime")
    _copy(sorted(wheels.iterdir()), dest / "runtime")

    shutil.copytree(
        node.web / "python",
        dest / "python",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    names = ("grading", *WORLDS)
    _copy([root / "practice" / f"{name}.py" for name in names], dest / "python")
    for number, problems in problems_by_chapter(root).items():
        target = dest / "chapters" / f"{number:02}" / "problems.json"
        target.parent.mkdir(parents=True)
        target.write_text(json.dumps(problems, ensure_ascii=False, indent=1) + "\n")


def _write_manifest(dest: Path, inputs: str) -> None:
    python = json.loads((dest / "runtime" / "python.json").read_text())
    manifest = {
        "version": 1,
        "python": python["version"],
        "inputs": inputs,
        "files": _files(dest),
    }
    (dest / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def _check_replaceable(dest: Path) -> None:
    """Never remove a folder that this tool did not write."""
    if dest.is_dir() and any(dest.iterdir()) and not (dest / "manifest.json").exists():
        raise CourseError(
            f"{dest} holds other files (there is no manifest.json)",
            "name an empty or a new folder with --to, or remove it",
        )


def _built(dest: Path, *, is_new: bool) -> Built:
    sizes = [(dest / name).stat().st_size for name in _files(dest)]
    return Built(dest, is_new, len(sizes), sum(sizes))


def _input_files(root: Path) -> Iterator[Path]:
    for top in _INPUTS:
        for folder, folders, names in os.walk(root / top):
            folders[:] = sorted(set(folders) - _SKIPPED)
            yield from (Path(folder, name) for name in sorted(names))


def _files(dest: Path) -> dict[str, str]:
    """Path -> sha256 of every file of a build but the manifest itself."""
    files = (f for f in dest.rglob("*") if f.is_file() and f.name != "manifest.json")
    return {f.relative_to(dest).as_posix(): _sha256(f) for f in sorted(files)}


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _copy(files: list[Path], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for file in files:
        shutil.copyfile(file, folder / file.name)


@contextmanager
def _only_one(cache: Path) -> Iterator[None]:
    """Two builds at once (the site's and a test's) wait for each other."""
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
