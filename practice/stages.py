"""What a run may import: the torch-free package as of a chapter, and the core.

A library is a folder of compiled modules. It is made once for every content it can
have, below `build/practice`, and every run gets a copy of its own.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import py_compile
import tempfile
from pathlib import Path

from course.manifest import MANIFEST, Course
from course.modules import Modules
from course.stack import Stack

from practice.grading import WORLDS

_HERE = Path(__file__).resolve().parent
_SHARED = ("grading.py", *(f"{name}.py" for name in WORLDS))
_CORE = (*_SHARED, "child.py")
LIBRARY = "library"  # the folder with _SHARED and minisgl; child.pyc lies beside it


def library(root: Path, chapter: int) -> Path:
    """The folder for a chapter: `child.pyc`, and `library/` to put on `sys.path`."""
    course = Course.load(root)
    course.chapter(chapter)
    target = root / "build" / "practice" / f"{chapter:02d}-{_key(course, chapter)}"
    if not target.exists():
        _make(course, chapter, target)
    return target


def torch_free(course: Course, chapter: int) -> dict[str, bytes]:
    """Path -> source of the stage's modules that need nothing but the library.

    The list is the finished package's; a chapter has those that exist there.
    """
    stack = Stack(course)
    names, _ = Modules.of(stack.files(course.last.number)).torch_free()
    stage = Modules.of(stack.files(chapter))
    files = stack.files(chapter)
    paths = [stage.by_name[name].path for name in names if name in stage.by_name]
    return {path: files[path] for path in paths}


def _key(course: Course, chapter: int) -> str:
    """Names everything a library is made of, without building the stage."""
    digest = hashlib.sha256(importlib.util.MAGIC_NUMBER)
    paths = [course.root / MANIFEST, *(_HERE / name for name in _CORE)]
    paths += [course.root / chapter.patch for chapter in course.chapters]
    for path in paths:
        data = path.read_bytes() if path.exists() else b""
        digest.update(f"{path.name} {len(data)} ".encode() + data)
    return digest.hexdigest()[:16]


def _make(course: Course, chapter: int, target: Path) -> None:
    files = {
        f"{LIBRARY}/{path}": data for path, data in torch_free(course, chapter).items()
    }
    files["child.py"] = (_HERE / "child.py").read_bytes()
    files |= {f"{LIBRARY}/{name}": (_HERE / name).read_bytes() for name in _SHARED}
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".make-") as made:
        whole = Path(made) / "whole"
        for path, data in files.items():
            source = whole / path
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_bytes(data)
            _compile(source, path.removeprefix(f"{LIBRARY}/"))
        try:
            os.rename(whole, target)
        except OSError:
            if not target.exists():  # else another judge was faster
                raise


def _compile(source: Path, name: str) -> None:
    """Put a .pyc in the place of a source: Python loads it without asking for one."""
    py_compile.compile(
        str(source),
        str(source.with_suffix(".pyc")),
        dfile=name,
        doraise=True,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    source.unlink()
