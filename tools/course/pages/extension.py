"""The Python-Markdown extension that puts the course's directives into a page.

It works in every builder that uses Python-Markdown: nothing but the text of the page is
asked for. The page is the file of docs/ whose text this is; so front matter that the
builder has cut off still counts in line numbers.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

from course.errors import CourseError
from course.manifest import Course
from course.pages.content import Contents
from course.pages.render import ROOT, Html, Renderer, page_url
from course.pages.syntax import Page, inlines

_SHOWN = (
    "steps/*",
    "examples/*",
    "tests/*.py",
    "docs/runs/*",
    "practice/web/python/live/*",
)
CHECKOUT = Path(__file__).resolve().parents[3]


class CourseExtension(Extension):
    """`root` is the folder of the course; the default is this checkout."""

    def __init__(self, **options: object) -> None:
        self.config = {"root": [str(CHECKOUT), "the folder of the course"]}
        super().__init__(**options)

    def extendMarkdown(self, md: Markdown) -> None:
        expand = _Expand(md, Path(self.getConfig("root")))
        # after Markdown's own normalize_whitespace (30), which would cut what is put
        # in, and before fenced code (25), so that lines are still those of the file
        md.preprocessors.register(expand, "course", 28)


class _Expand(Preprocessor):
    def __init__(self, md: Markdown, root: Path) -> None:
        super().__init__(md)
        self.root = root

    def run(self, lines: list[str]) -> list[str]:
        text = "\n".join(lines)
        if "::" not in text and "{{" not in text:
            return lines
        renderer = _renderer(self.root, _state(self.root))
        page, first = self._page(renderer.contents, text)
        return self._expanded(renderer, page)[first:]

    def _page(self, contents: Contents, text: str) -> tuple[Page, int]:
        """The page with this text, and how many lines of it the builder cut off."""
        found = []
        for path in contents.pages():
            whole = _normal((self.root / path).read_text(encoding="utf-8"))
            cut = whole.removesuffix(_normal(text))
            if cut != whole and (not cut or cut.startswith("---\n")):
                found.append((path, cut.count("\n")))
        if not found:
            raise CourseError(
                "a text with directives is no page of docs/",
                "was the page changed while the site was built? build it again",
            )
        if len(found) > 1:
            raise CourseError(
                f"{' and '.join(path for path, _ in found)} have the same text",
                "give them different titles: they cannot be told apart",
            )
        [(path, first)] = found
        return contents.page(path), first

    def _expanded(self, renderer: Renderer, page: Page) -> list[str]:
        """The lines of the file, from the first on, with everything put in."""
        lines = list(page.lines)
        inside = {n for d in page.directives for n in range(d.line, d.last + 1)}
        for number, line in page.prose:
            if number not in inside:
                lines[number - 1] = self._with_inlines(renderer, page, number, line)
        for directive in reversed(page.directives):
            found = renderer.directive(page, directive)
            if isinstance(found, Html):
                found = self.md.htmlStash.store(found.replace(ROOT, self._root(page)))
            else:
                found = "\n".join(
                    self._with_inlines(renderer, page, directive.line, text)
                    for text in found.split("\n")
                )
            # blank lines around it keep it apart from the text before and after
            new = ["", *found.split("\n"), ""]
            lines[directive.line - 1 : directive.last] = new
        return lines

    def _root(self, page: Page) -> str:
        """From the page to the site's root, as a link in HTML must say it here.

        MkDocs corrects the links of Markdown only, and HTML has to say where things
        will be: each page in a folder of its own. Zensical corrects all links, from
        where the sources are.
        """
        is_final = "relpath" in self.md.treeprocessors  # MkDocs puts it there
        path = page_url(page.path) if is_final else page.path.removeprefix("docs/")
        return "../" * path.count("/")

    def _with_inlines(
        self, renderer: Renderer, page: Page, number: int, line: str
    ) -> str:
        for item in reversed(list(inlines(page, number, line))):
            html = self.md.htmlStash.store(renderer.inline(page, item))
            line = line[: item.span[0]] + html + line[item.span[1] :]
        return line


def _normal(text: str) -> str:
    """A text as Markdown's normalize_whitespace leaves it."""
    return re.sub(r"(?m)^ +$", "", text.expandtabs(4)).rstrip()


@lru_cache(maxsize=1)
def _renderer(root: Path, state: object) -> Renderer:
    """One for all pages, until a file that pages show something of changes."""
    return Renderer(Contents(Course.load(root)))


def _state(root: Path) -> tuple[tuple[str, int], ...]:
    """What tells whether the files that pages show are still the same."""
    files = (path for pattern in _SHOWN for path in root.glob(pattern))
    return tuple((str(path), path.stat().st_mtime_ns) for path in sorted(files))


def makeExtension(**options: object) -> CourseExtension:
    """Called by Python-Markdown."""
    return CourseExtension(**options)
