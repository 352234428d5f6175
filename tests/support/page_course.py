"""The small course of `mini_course`, with pages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from course.manifest import Course
from course.pages.check import Checker
from course.pages.content import Contents
from course.pages.errors import PageError
from markdown import Markdown

from support.mini_course import SLUGS, MiniCourse

REPO = Path(__file__).resolve().parents[2]
HOOK = REPO / "tools" / "course" / "pages" / "hook.py"
EXTENSIONS = ["sane_lists", "pymdownx.superfences", "admonition", "pymdownx.details"]

# Every page shows all that its chapter adds.
PAGES = [
    "# The counter\n\n::: code counter.py\n\n::: code __init__.py\n",
    "# The store\n\n::: code store.py\n\n::: diff counter.py\n",
    "# The report\n\n::: code report.py :head lines\n",
]
MKDOCS = """\
site_name: mini
strict: true
theme:
  name: mkdocs
  locale: en
plugins: []
hooks: [{hook}]
markdown_extensions:
  - course.pages.extension:
      root: {root}
  - pymdownx.superfences
  - pymdownx.details
  - admonition
"""


class PageCourse(MiniCourse):
    """Change `pages`, `stages` and `extra`, then `write`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.pages = list(PAGES)

    def write(self) -> PageCourse:  # type: ignore[override]
        for index, text in enumerate(self.pages):
            self.put(self.page(index + 1), text)
        super().write()
        return self

    def page(self, number: int) -> str:
        return f"docs/{number:02}_{SLUGS[number - 1]}.md"

    def add_problem(self) -> None:
        """The exercise `counter-add`, of chapter 2."""
        inside = Path("practice/problems/counter-add")
        shutil.copytree(REPO / "tests/support/problems/counter-add", self.root / inside)

    @property
    def contents(self) -> Contents:
        return Contents(Course.load(self.root))

    def html(self, number: int, front_matter: str = "") -> str:
        """The page of a chapter as Python-Markdown makes it."""
        text = (self.root / self.page(number)).read_text()
        extension = "course.pages.extension"
        md = Markdown(
            extensions=[extension, *EXTENSIONS],
            extension_configs={extension: {"root": str(self.root)}},
        )
        return md.convert(text.removeprefix(front_matter))

    def faults(self, rule: str) -> list[str]:
        """What one rule of the checks finds: `directives`, `shown`, …"""
        found = list(getattr(Checker(self.contents), rule)())
        assert all(isinstance(fault, PageError) for fault in found)
        return [fault.message for fault in found]

    def build(self) -> subprocess.CompletedProcess[str]:
        """`mkdocs build` in the course's folder."""
        root = json.dumps(str(self.root))
        self.put("mkdocs.yml", MKDOCS.format(hook=json.dumps(str(HOOK)), root=root))
        return run_builder("mkdocs", self.root)

    def _entry(self, index: int) -> str:
        if index >= len(self.pages):
            return super()._entry(index)
        page = f"page = {self.page(index + 1)!r}\nretired"
        return super()._entry(index).replace("retired", page, 1)


def run_builder(
    name: str, folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """`mkdocs build` or `zensical build` in a folder."""
    tools = {"PYTHONPATH": str(REPO / "tools"), "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        [sys.executable, "-m", name, "build", *options],
        cwd=folder,
        env=os.environ | tools,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
