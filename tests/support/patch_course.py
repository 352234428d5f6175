"""A small course whose patches are written by plain git, not by the tool under test."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

from course.git import EMPTY_TREE, clean_environment
from course.manifest import Course
from course.stack import Stack

Stage = Mapping[str, str | bytes]

SLUGS = ("one", "two", "three", "four")
GIT_CONFIG = (
    *("-c", "diff.suppressBlankEmpty=true"),
    *("-c", "core.autocrlf=false"),
    *("-c", "core.attributesFile=/dev/null"),
    *("-c", "core.excludesFile=/dev/null"),
)
GITIGNORE = "/build/\n__pycache__/\n"

REQ = '''\
class Req:
    """A request."""

    def step(self) -> int:
        return 1
'''
POOL = '''\
from minisgl.core import Req


class Pool:
    """Holds requests."""

    def take(self, req: Req) -> int:
        return req.step()
'''
ONE = {"minisgl/__init__.py": "", "minisgl/core.py": REQ}
TWO = {**ONE, "minisgl/pool.py": POOL}
THREE = {**TWO, "minisgl/core.py": REQ.replace("return 1", "return 3")}
NAMES = (["core.Req"], ["pool.Pool"], ["core.Req.step"], ["core.Req"])


class PatchCourse:
    """Chapters 1, 2, 3… with the stages given, and everything `verify` wants."""

    def __init__(self, root: Path, *stages: Stage, names: tuple = NAMES) -> None:
        self.root = root
        self.stages = stages or (ONE, TWO, THREE)
        self.write(".gitignore", GITIGNORE)
        self.write("steps/chapters.toml", manifest(len(self.stages), names))
        for number, patch in enumerate(git_patches(*self.stages), 1):
            self.write(f"steps/0{number}_{SLUGS[number - 1]}.patch", patch)
            self._write_belongings(number, names[number - 1])
        self.write_package(self.stages[-1])

    @property
    def course(self) -> Course:
        return Course.load(self.root)

    @property
    def stack(self) -> Stack:
        return Stack(self.course)

    def write(self, path: str, content: str | bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def replace(self, path: str, old: str, new: str) -> None:
        text = self.read(path)
        assert old in text, (old, text)
        self.write(path, text.replace(old, new))

    def write_package(self, stage: Stage) -> None:
        shutil.rmtree(self.root / "minisgl", ignore_errors=True)
        for path, content in stage.items():
            self.write(path, content)

    def state(self) -> dict[str, bytes]:
        """Every file outside `build/`: what a command may not change in secret."""
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and path.relative_to(self.root).parts[0] != "build"
        }

    def _write_belongings(self, number: int, names: list[str]) -> None:
        stem = f"ch0{number}_{SLUGS[number - 1]}"
        self.write(f"examples/{stem}.py", "print(1)\n")
        self.write(f"examples/{stem}.out", "1\n")
        self.write(f"tests/test_{stem}.py", "def test_it():\n    assert True\n")
        hints = "".join(f'"{name}" = ["a?", "b?", "c?"]\n' for name in names)
        self.write(f"steps/hints/0{number}_{SLUGS[number - 1]}.toml", hints)


def manifest(num_chapters: int, names: tuple = NAMES) -> str:
    return "\n".join(
        entry(number, SLUGS[number - 1], names[number - 1])
        for number in range(1, num_chapters + 1)
    )


def entry(number: int, slug: str, names: list[str]) -> str:
    """One [[chapter]] of a manifest."""
    stem = f"ch{number:02d}_{slug}"
    return (
        f'[[chapter]]\nnumber = {number}\nslug = "{slug}"\ntitle = "The {slug}"\n'
        f'part = "A part"\nexample = "examples/{stem}.py"\n'
        f'tests = ["tests/test_{stem}.py"]\nnames = {names!r}\n'
    )


def git_patches(*stages: Stage) -> list[bytes]:
    """The diff from each stage to the next, from the empty tree on."""
    return list(_git_patches(tuple(tuple(stage.items()) for stage in stages)))


@cache
def _git_patches(
    stages: tuple[tuple[tuple[str, str | bytes], ...], ...],
) -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        git(Path(folder), "init", "-q")
        trees = [EMPTY_TREE]
        for number, stage in enumerate(stages):
            top = Path(folder) / str(number)
            for path, content in stage:
                file = top / path
                file.parent.mkdir(parents=True, exist_ok=True)
                data = content.encode() if isinstance(content, str) else content
                file.write_bytes(data)
            git(top, "add", "-A", ".")
            trees.append(git(top, "write-tree", f"--prefix={number}/").decode().strip())
        diffs = [
            git(Path(folder), "diff", "--no-renames", a, b) for a, b in pairwise(trees)
        ]
    return [re.sub(rb"(?m)^index .*\n", b"", diff) for diff in diffs]


def git(top: Path, *args: str) -> bytes:
    done = subprocess.run(
        ["git", *GIT_CONFIG, *args],
        cwd=top,
        env=clean_environment() | {"GIT_LITERAL_PATHSPECS": "0"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout


def new_file(path: str, *lines: str, mode: str = "100644") -> str:
    """A patch, by hand, that creates one file."""
    added = "".join(f"+{line}\n" for line in lines)
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n"
        f"+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n{added}"
    ).replace("+1,1 @@", "+1 @@")
