"""What is compiled for Pyodide: its standard library, and one wheel per chapter with
the torch-free modules of that stage.

Pyodide itself compiles and packs, under Node, so that neither the Python nor the zlib
of this machine shows in the result: the same modules give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from course.errors import CheckFailed
from course.manifest import Course
from course.modules import Modules
from course.stack import Stack

from browser_build.node import NodeTools

_REQUIREMENTS = "packaging/requirements.txt"
_COMPILE_AGAIN = "rm -r build/web-cache practice/web/node_modules, then build again"


class MagicError(CheckFailed):
    """Bytecode that the Python beside it would not import."""


def stage_sources(course: Course) -> dict[str, dict[str, str]]:
    """Wheel name (`minisgl_stage08`) -> path -> text of the torch-free modules."""
    stack = Stack(course)
    sources = {}
    for chapter in course.chapters:
        files = stack.files(chapter.number)
        modules = Modules.of(files)
        names, faults = modules.torch_free()
        if faults:
            raise CheckFailed(
                f"chapter {chapter.label}: {faults[0]}", "tools/steps.py verify"
            )
        paths = [modules.by_name[name].path for name in names]
        name = f"minisgl_stage{chapter.number:02}"
        sources[name] = {path: files[path].decode() for path in paths}
    return sources


def make_wheels(
    node: NodeTools, sources: dict[str, dict[str, str]], version: str, cache: Path
) -> Path:
    """A folder with all wheels and pyodide-lock.json; made only if it is not there.

    Its python.json says which Python compiled them.

    Args:
        sources: what `stage_sources` gives.
        version: of the package, for the wheels' names.
        cache: a folder that keeps the downloads and the last result.
    """
    info = json.loads((node.pyodide / "pyodide-lock.json").read_text())["info"]
    asked = json.dumps({"version": version, "info": info, "stages": sources})
    inputs = {"stages.json": asked.encode()}
    return _made(node, cache, "make_wheels.py", inputs, check_magic)


def make_stdlib(node: NodeTools, cache: Path) -> Path:
    """A folder with the compiled python_stdlib.zip; made only if it is not there."""
    name = "python_stdlib.zip"
    inputs = {name: (node.pyodide / name).read_bytes()}
    return _made(node, cache, "make_stdlib.py", inputs, lambda folder: None)


def _made(
    node: NodeTools,
    cache: Path,
    script: str,
    inputs: dict[str, bytes],
    check: Callable[[Path], None],
) -> Path:
    """What a script of packaging/ makes of these files, checked and kept."""
    parts = [*inputs.values(), node.package["dependencies"]["pyodide"].encode()]
    for part in (_REQUIREMENTS, "packaging/run.mjs", f"packaging/{script}"):
        parts.append((node.web / part).read_bytes())
    name = script.removesuffix(".py")
    made = cache / f"{name}-{_digest(parts)}"
    if not made.exists():
        work = cache / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        for file, content in inputs.items():
            (work / file).write_bytes(content)
        node.run_script("packaging/run.mjs", script, work, _downloads(node, cache))
        check(work / "out")
        for old in cache.glob(f"{name}-*"):
            shutil.rmtree(old)
        (work / "out").rename(made)
    return made


def check_magic(folder: Path) -> None:
    """Every compiled wheel must hold bytecode of the Python that is served.

    A wrong magic number is accepted by everything until the module is imported, in a
    reader's browser. `folder` holds the wheels, the lock file, and python.json.
    """
    python = json.loads((folder / "python.json").read_text())
    locked = json.loads((folder / "pyodide-lock.json").read_text())
    if python["version"] != locked["info"]["python"]:
        raise MagicError(
            f"the wheels were compiled by Python {python['version']}, "
            f"the lock file is for {locked['info']['python']}",
            _COMPILE_AGAIN,
        )
    for package in locked["packages"].values():
        name = package["file_name"]
        for path, content in _bytecode(folder / name):
            magic = int.from_bytes(content[:2], "little")
            if magic != python["magic"]:
                raise MagicError(
                    f"{name}: {path} has magic number {magic}, "
                    f"Python {python['version']} has {python['magic']}",
                    _COMPILE_AGAIN,
                )


def _downloads(node: NodeTools, cache: Path) -> Path:
    """The wheels that those scripts import, downloaded once, checked by hash."""
    requirements = node.web / _REQUIREMENTS
    tools = cache / f"tools-{_digest([requirements.read_bytes()])}"
    if not tools.exists():
        draft = cache / "tools-new"
        shutil.rmtree(draft, ignore_errors=True)
        options = "--quiet --no-deps --only-binary=:all: --python-version=3.13"
        command = [sys.executable, "-m", "pip", "download", *options.split()]
        command += ["--require-hashes", f"--requirement={requirements}", "-d", draft]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise CheckFailed(
                f"pip could not download {_REQUIREMENTS}: {said[-1] if said else ''}",
                "check that the package index can be reached, then build again",
            )
        draft.rename(tools)
    return tools


def _bytecode(wheel: Path) -> list[tuple[str, bytes]]:
    """(path, content) of every module of a compiled wheel; there must be one."""
    with zipfile.ZipFile(wheel) as opened:
        paths = [p for p in opened.namelist() if p.endswith(".pyc")]
        if not paths:
            raise MagicError(f"{wheel.name} holds no bytecode", _COMPILE_AGAIN)
        return [(path, opened.read(path)) for path in paths]


def _digest(parts: list[bytes]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:16]
