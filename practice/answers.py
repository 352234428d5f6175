"""A learner's answers: files in `learn/practice`, or anywhere."""

from __future__ import annotations

import shlex
from pathlib import Path

from course.errors import CourseError
from course.runner import write_whole

from practice.problems import Problem
from practice.progress import FOLDER

SIZE_LIMIT = 256 << 10  # bytes; the longest module of the engine has a tenth of it


def place(root: Path, slug: str) -> Path:
    """Where the answer to a problem is, if the learner names no file."""
    return root / FOLDER / f"{slug}.py"


def start(root: Path, problem: Problem) -> Path:
    """Write the starter for a learner to go on from; never over something."""
    path = place(root, problem.slug)
    if path.exists():
        raise CourseError(
            f"{path} is there already, and it is yours: nothing was changed",
            f"practice/judge.py check {problem.slug}; or move it away to begin anew",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, problem.starter.encode())
    return path


def read(path: Path, slug: str) -> str:
    """The text of an answer. Raises CourseError for what cannot be one."""
    name = shlex.quote(str(path))
    if not path.exists():
        raise CourseError(
            f"there is no {path}",
            f"practice/judge.py start {slug} makes learn/practice/{slug}.py; "
            f"practice/judge.py check {slug} FILE takes another file",
        )
    if not path.is_file():
        raise CourseError(
            f"{path} is not a file",
            f"name the file: practice/judge.py check {slug} {name}/answer.py",
        )
    if path.stat().st_size > SIZE_LIMIT:
        raise CourseError(
            f"{path} has {path.stat().st_size:,} bytes; an answer has at most "
            f"{SIZE_LIMIT:,}",
            "leave out what is not code",
        )
    data = path.read_bytes()
    if b"\0" in data:
        raise CourseError(f"{path} is binary, not Python", "name a file of Python")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise CourseError(
            f"{path}, line {line}, is not UTF-8", "save it as UTF-8 in your editor"
        ) from None
