"""A course with two problems and a small package, in a temporary folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from practice.problems import PROBLEMS, Problem, load
from support.mini_course import MiniCourse

EXAMPLES = Path(__file__).parent / "problems"
TORCH_FREE = 'MODULES = ("minisgl", "minisgl.counter", "minisgl.store")\n'


class PracticeCourse(MiniCourse):
    """`free-list` stands alone; `counter-add` is a method of the package."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.stages[2]["minisgl/torch_free.py"] = TORCH_FREE
        self.write()
        shutil.copytree(EXAMPLES, root / PROBLEMS)

    def problem(self, slug: str) -> Problem:
        return load(self.root / PROBLEMS / slug)

    def edit(self, path: str, old: str, new: str) -> None:
        """Change a file of the problems, which must have `old` in it."""
        file = self.root / PROBLEMS / path
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")
