"""The checks of what the pages say, against what their stages have.

Each yields `PageError`s: page, line, what is wrong. The rules are in docs/authoring.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

from course.errors import CourseError
from course.folder import list_files
from course.manifest import Chapter
from course.pages.content import Contents
from course.pages.errors import PageError
from course.pages.names import Names, names_of
from course.pages.numbers import UNIT, unsourced
from course.pages.problems import problems
from course.pages.render import Renderer
from course.pages.stages import REST
from course.pages.syntax import Inline, Page, code_spans, inlines, mask_code
from course.stack import PACKAGE

_BESIDE = ("docs", "examples", "practice", "steps", "tests", "tools")
_TOP = ("Makefile", "README.md", "CONTRIBUTING.md", "pyproject.toml", "mkdocs.yml")
_PLACE = re.compile(r"chapter (\d+)")
_NUMBER = re.compile(r"\d+(?:[,.]\d+)*")


class Checker:
    """Checks pages one by one; `paths` limits it to these."""

    def __init__(self, contents: Contents, paths: list[str] | None = None) -> None:
        self.contents = contents
        self.course, self.stages = contents.course, contents.stages
        self.renderer = Renderer(contents)
        self.paths = contents.pages() if paths is None else paths
        self.names = cache(self._names)
        self.page = cache(contents.page)

    def rules(self) -> list[tuple[str, Callable[[], Iterator[PageError]]]]:
        return [
            ("what a page shows exists at its chapter's stage", self.directives),
            ("every line a chapter adds is on its page, or omitted there", self.shown),
            ("names in code style exist at the page's stage", self.code_style),
            ("numbers say where they come from", self.numbers),
            ("every exercise is on its chapter's page", self.exercises),
        ]

    def pages(self) -> Iterator[Page]:
        """The pages that can be taken apart; `directives` says why others cannot."""
        for path in self.paths:
            try:
                yield self.page(path)
            except PageError:
                continue

    def directives(self) -> Iterator[PageError]:
        """Every directive and every `{{…}}` can be put in."""
        for path in self.paths:
            try:
                page = self.page(path)
            except PageError as error:
                yield error
                continue
            for directive in page.directives:
                try:
                    self.renderer.directive(page, directive)
                except PageError as error:
                    yield error
            for number, line in page.prose:
                try:
                    for item in inlines(page, number, line):
                        self.renderer.inline(page, item)
                except PageError as error:
                    yield error

    # Guarantee 12

    def shown(self) -> Iterator[PageError]:
        """Every line that a chapter adds is shown on its page, or listed as omitted."""
        for chapter, page in self._chapter_pages():
            try:
                yield from _Coverage(self.contents, chapter, page).faults()
            except PageError:
                continue  # `directives` says it

    # Guarantee 7

    def code_style(self) -> Iterator[PageError]:
        """Names in code style exist at the stage, or say where they are.

        A page about the whole course is held against the finished package.
        """
        for page in self.pages():
            chapter = self.contents.chapter_of(page.path) or self.course.last
            names = self.names(chapter.number)
            for number, line in page.prose:
                for text in code_spans(line):
                    if fault := names.fault(text):
                        hint = f'or write {{{{elsewhere: {text}, "where it is"}}}}'
                        what = f"`{text}`: {fault}"
                        yield PageError(page.path, number, what, f"correct it, {hint}")
                for item in self._inlines(page, number, line):
                    if item.kind == "elsewhere":
                        yield from self._elsewhere(page, item)

    def _elsewhere(self, page: Page, item: Inline) -> Iterator[PageError]:
        place = _PLACE.match(item.source or "")
        if not place:
            return
        try:
            names = self.names(int(place[1]))
        except CourseError as error:
            yield page.at(item, error.message)
            return
        if fault := names.fault(item.value):
            yield page.at(item, f"`{item.value}`: chapter {place[1]}: {fault}")

    # Numbers

    def numbers(self) -> Iterator[PageError]:
        """Numbers in prose come from a recorded run, or say where from."""
        for page in self.pages():
            for number, line in page.prose:
                items = list(self._inlines(page, number, line))
                text = mask_code(line)
                for item in items:
                    yield from self._number_fault(page, item, text)
                for item in reversed(items):
                    text = f"{text[: item.span[0]]}{{}}{text[item.span[1] :]}"
                for found in unsourced(text):
                    yield PageError(
                        page.path,
                        number,
                        f"{found!r} does not say where it comes from",
                        "take it from a recorded run with {{run:KEY.figure}}, from the "
                        "example's output with {{out:…}}, name its source with "
                        '{{given: …, "source"}}, or {{eg: …}} for a made-up example',
                    )

    def _number_fault(self, page: Page, item: Inline, line: str) -> Iterator[PageError]:
        if item.kind == "eg" and not _NUMBER.fullmatch(item.value):
            yield page.at(item, f"{{{{eg: {item.value}}}}} must be a number alone")
        if item.kind == "eg" and UNIT.match(line, item.span[1]):
            what = "has a unit: measurements are recorded, not made up"
            yield page.at(item, f"{{{{eg: {item.value}}}}} {what}")

    # Exercises

    def exercises(self) -> Iterator[PageError]:
        """Every problem of a chapter is on the chapter's page."""
        found = problems(self.course.root)
        for chapter, page in self._chapter_pages():
            shown = {d.words[:1] for d in page.directives if d.name == "exercise"}
            for problem in found:
                if problem.chapter == chapter.number and (problem.slug,) not in shown:
                    yield page.at(1, f"::: exercise {problem.slug} is missing")

    def _chapter_pages(self) -> Iterator[tuple[Chapter, Page]]:
        for page in self.pages():
            if chapter := self.contents.chapter_of(page.path):
                yield chapter, page

    def _inlines(self, page: Page, number: int, line: str) -> list[Inline]:
        try:
            return list(inlines(page, number, line))
        except PageError:
            return []  # `directives` says it

    def _names(self, number: int) -> Names:
        chapter = self.course.chapter(number)
        root = self.course.root
        folders = [name for name in _BESIDE if (root / name).is_dir()]
        beside = list_files(self.stages.stack.repo, root, root, *folders)
        beside += [name for name in _TOP if (root / name).is_file()]
        return names_of(self.stages, chapter, beside)


class _Coverage:
    """Which added lines of a chapter its page shows, and which it says it omits."""

    def __init__(self, contents: Contents, chapter: Chapter, page: Page) -> None:
        self.contents, self.chapter, self.page = contents, chapter, page
        self.stages = contents.stages
        self.missing = self._missing()

    def faults(self) -> Iterator[PageError]:
        for directive in self.page.directives:
            if directive.name != "omitted":
                continue
            for entry in self.contents.omitted(self.page, directive):
                lines = self.missing.get(entry.path, set())
                hidden = {n for n in lines if self._covers(entry.path, entry.name, n)}
                if not hidden:
                    what = f"{entry.path} {entry.name} is shown, or not of this chapter"
                    yield self.page.at(entry.line, f"{what}: take it out")
                self.missing[entry.path] = lines - hidden
        for path, lines in self.missing.items():
            yield from self._unshown(path, lines)

    def _missing(self) -> dict[str, set[int]]:
        """Path -> lines that the chapter adds and no directive shows."""
        shown: dict[str, set[int]] = {}
        whole = set()
        for directive in self.page.directives:
            if directive.name == "code":
                listing = self.contents.listing(self.page, directive)
                for span in listing.spans:
                    lines = range(span.first, span.last + 1)
                    shown.setdefault(listing.path, set()).update(lines)
            elif directive.name == "diff":
                whole.add(self.contents.diff(self.page, directive)[0])
        missing = {}
        for path in self.stages.changed(self.chapter.number):
            text = self.stages.text(self.chapter.number, path)
            added = {
                n
                for n in self.stages.added(self.chapter.number, path)
                if text.lines[n - 1].strip()
            }
            if path not in whole:
                missing[path] = added - shown.get(path, set())
        return missing

    def _covers(self, path: str, name: str, line: int) -> bool:
        text = self.stages.text(self.chapter.number, path)
        if name == "*":
            return True
        if name == REST:
            return text.unit(line) == REST
        return any(line in span for span in text.find(name))

    def _unshown(self, path: str, lines: set[int]) -> Iterator[PageError]:
        text = self.stages.text(self.chapter.number, path)
        units: dict[str, list[int]] = {}
        for line in sorted(lines):
            units.setdefault(text.unit(line), []).append(line)
        inside = path.removeprefix(f"{PACKAGE}/")
        for unit, numbers in units.items():
            where = ", ".join(map(str, numbers[:8])) + ", …" * (len(numbers) > 8)
            plural = "s" * (len(numbers) > 1)
            yield PageError(
                self.page.path,
                1,
                f"{path} {unit} is not shown (line{plural} {where})",
                f"show it: ::: code {inside} {'' if unit == REST else unit}".rstrip()
                + f", or list it in ::: omitted as `{inside} {unit}: reason`",
            )
