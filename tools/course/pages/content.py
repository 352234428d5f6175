"""What a directive shows, found in the stages and files of the course.

Everything here may raise `PageError`, which names page and line. How it looks is in
`render`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from course.errors import CourseError
from course.manifest import Chapter, Course
from course.pages.errors import PageError, Unknown, nearest
from course.pages.runs import Recorded, RunError
from course.pages.stages import REST, Span, Stages, Text
from course.pages.syntax import Directive, Inline, Page, parse
from course.stack import PACKAGE

DOCS = "docs"


@dataclass(frozen=True)
class Listing:
    """Lines of one file, in order; gaps between the spans are shown as `…`."""

    path: str  # minisgl/core.py, examples/ch01_core.py, docs/runs/key.json
    text: Text
    spans: Sequence[Span]
    names: Sequence[str] = ()
    is_region: bool = False


@dataclass(frozen=True)
class Omitted:
    """A line of `::: omitted`: a name that the page does not show, and why."""

    path: str
    name: str  # a name, :head, :rest or * for the whole file
    reason: str
    line: int


@dataclass
class Contents:
    """The course, and what its pages can show of it."""

    course: Course
    stages: Stages = field(init=False)

    def __post_init__(self) -> None:
        self.stages = Stages(self.course)
        self.recorded = cache(lambda key: Recorded.load(self.course.root, key))

    # Pages

    def chapter_of(self, path: str) -> Chapter | None:
        """The chapter whose page this is; None for pages about the whole course."""
        found = [c for c in self.course.chapters if c.page == path]
        return found[0] if found else None

    def pages(self) -> list[str]:
        """Every page under docs/, sorted."""
        root = self.course.root
        found = (root / DOCS).glob("**/*.md")
        return sorted(p.relative_to(root).as_posix() for p in found)

    def page(self, path: str) -> Page:
        return parse((self.course.root / path).read_text(encoding="utf-8"), path)

    def need_chapter(self, page: Page, directive: Directive | Inline) -> Chapter:
        if chapter := self.chapter_of(page.path):
            return chapter
        raise page.at(
            directive,
            f"this is no chapter's page: give a chapter page = {page.path!r} in "
            "steps/chapters.toml",
        )

    # Listings

    def listing(self, page: Page, directive: Directive) -> Listing:
        """What `code`, `example`, `output`, `test` and `run` show."""
        try:
            found = getattr(self, f"_{directive.name}")(page, directive)
        except (Unknown, CourseError) as error:
            raise self._located(page, directive, error) from None
        if not any(t.strip() for s in found.spans for t in found.text.between(s)):
            raise page.at(directive, f"{found.path}: there is nothing in it to show")
        return found

    def diff(self, page: Page, directive: Directive) -> tuple[str, str]:
        """Path and text of the chapter's diff of a file."""
        chapter = self.need_chapter(page, directive)
        [name] = self._words(page, directive, "PATH", 1, 1)
        try:
            full = name if name.startswith(f"{PACKAGE}/") else f"{PACKAGE}/{name}"
            if full not in self.stages.removed(chapter.number):
                full = self.stages.path(chapter.number, name)
            return full, self.stages.stack.shown_diff(chapter.number, full).decode()
        except (Unknown, CourseError) as error:
            raise self._located(page, directive, error) from None

    def no_words(self, page: Page, directive: Directive) -> None:
        self._words(page, directive, "nothing", 0, 0)

    def one_word(self, page: Page, directive: Directive, what: str) -> str:
        return self._words(page, directive, what, 1, 1)[0]

    def omitted(self, page: Page, directive: Directive) -> list[Omitted]:
        """The entries of an `omitted` block; each must name what the stage has."""
        chapter = self.need_chapter(page, directive)
        self.no_words(page, directive)
        found = []
        for line, text in enumerate(directive.body, directive.line + 1):
            if not text.strip():
                continue
            head, colon, reason = text.partition(": ")
            words = head.split()
            if not colon or len(words) != 2 or not reason.strip():
                raise page.at(line, f"{text!r} is not `PATH NAME: reason`")
            try:
                path = self.stages.path(chapter.number, words[0])
                if words[1] not in ("*", REST):
                    self.stages.text(chapter.number, path).find(words[1])
            except Unknown as error:
                raise page.at(line, str(error)) from None
            found.append(Omitted(path, words[1], reason.strip(), line))
        return found

    # Inline figures and names

    def inline(self, page: Page, item: Inline) -> str:
        """The text of `{{run:…}}`, `{{out:…}}`, `{{given:…}}` and `{{eg:…}}`."""
        if item.kind == "run":
            return self._figure(page, item)
        if item.kind == "out":
            chapter = self.need_chapter(page, item)
            try:
                output = self.stages.repo_text(chapter.recorded).text
            except Unknown as error:
                raise page.at(item, str(error)) from None
            if not _stands_in(item.value, output):
                raise page.at(item, f"{chapter.recorded} does not print {item.value}")
        return item.value

    def _figure(self, page: Page, item: Inline) -> str:
        key, dot, name = item.value.partition(".")
        if not dot:
            raise page.at(item, f"{{{{run:{item.value}}}}} must be run:KEY.figure")
        try:
            return self.recorded(key).figure(name)
        except RunError as error:
            raise self._located(page, item, error) from None

    # One method a directive

    def _code(self, page: Page, directive: Directive) -> Listing:
        chapter = self.need_chapter(page, directive)
        name, *names = self._words(page, directive, "PATH [NAME …]", 1, None)
        path = self.stages.path(chapter.number, name)
        text = self.stages.text(chapter.number, path)
        return self._parts(page, directive, path, text, names)

    def _example(self, page: Page, directive: Directive) -> Listing:
        chapter = self.need_chapter(page, directive)
        self.no_words(page, directive)
        text = self.stages.repo_text(chapter.example)
        return self._parts(page, directive, chapter.example, text, ())

    def _output(self, page: Page, directive: Directive) -> Listing:
        chapter = self.need_chapter(page, directive)
        self.no_words(page, directive)
        text = self.stages.repo_text(chapter.recorded)
        return self._parts(page, directive, chapter.recorded, text, ())

    def _test(self, page: Page, directive: Directive) -> Listing:
        chapter = self.need_chapter(page, directive)
        names = self._words(page, directive, "NAME …", 1, None)
        texts = [self.stages.repo_text(path) for path in chapter.tests]
        for text in texts:
            if names[0] in text.spans:
                return self._parts(page, directive, text.path, text, names)
        known = [name for text in texts for name in text.spans]
        where = " and ".join(chapter.tests)
        raise Unknown(f"{where} has no {names[0]}", names[0], known)

    def _run(self, page: Page, directive: Directive) -> Listing:
        key = self.one_word(page, directive, "KEY")
        recorded = self.recorded(key)
        text = Text(key, recorded.output.encode())
        return self._parts(page, directive, key, text, ())

    def _parts(
        self,
        page: Page,
        directive: Directive,
        path: str,
        text: Text,
        names: Sequence[str],
    ) -> Listing:
        spans = [s for name in names for s in text.find(name)] or [text.whole]
        spans = _joined(text, spans)
        if not directive.options:
            return Listing(path, text, spans, names)
        if len(names) > 1:
            raise page.at(directive, "from= and to= go with one name only")
        return Listing(path, text, [_region(text, spans, directive)], names, True)

    # Errors

    def _words(
        self, page: Page, directive: Directive, takes: str, low: int, high: int | None
    ) -> tuple[str, ...]:
        count = len(directive.words)
        if count < low or (high is not None and count > high):
            given = " ".join(directive.words) or "nothing"
            raise page.at(directive, f"::: {directive.name} takes {takes}, not {given}")
        return directive.words

    def _located(
        self, page: Page, where: Directive | Inline, error: Exception
    ) -> PageError:
        if isinstance(error, PageError):
            return error
        if isinstance(error, CourseError):
            return PageError(page.path, where.line, error.message, error.hint)
        return page.at(where, str(error))


def self_test(page: Page, directive: Directive) -> tuple[list[str], list[str]]:
    """The Markdown lines of questions and of answers."""
    marks = [i for i, text in enumerate(directive.body) if text.strip() == "---"]
    if len(marks) != 1:
        raise page.at(directive, "::: self-test needs one line --- before the answers")
    questions = list(directive.body[: marks[0]])
    answers = list(directive.body[marks[0] + 1 :])
    counts = [sum(_is_item(text) for text in part) for part in (questions, answers)]
    if counts[0] != counts[1] or not counts[0]:
        raise page.at(
            directive,
            f"::: self-test has {counts[0]} questions and {counts[1]} answers; number "
            "both: 1. 2. 3.",
        )
    return questions, answers


def _region(text: Text, spans: Sequence[Span], directive: Directive) -> Span:
    """From the line that holds one text to the line that holds another."""
    first, last = spans[0].first, spans[-1].last
    for option, wanted in directive.options.items():
        lines = text.lines[first - 1 : last]
        found = [i for i, line in enumerate(lines, first) if wanted in line]
        if len(found) != 1:
            count = "no line" if not found else f"{len(found)} lines"
            close = "" if found else nearest(wanted, (t.strip() for t in lines))
            holds = "hold" if len(found) > 1 else "holds"
            raise Unknown(
                f"{text.path}: {count} of {first}–{last} {holds} "
                f"{option}={wanted!r}{close}",
                "",
                (),
            )
        if option == "from":
            first = found[0]
        else:
            last = found[0]
    return Span(first, last)


def _joined(text: Text, spans: Sequence[Span]) -> list[Span]:
    """Spans in the order of the file; those with only blanks between become one."""
    joined: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.first, -s.last)):
        if joined:
            gap = text.lines[joined[-1].last : span.first - 1]
            if span.first <= joined[-1].last or not any(t.strip() for t in gap):
                last = max(joined[-1].last, span.last)
                joined[-1] = Span(joined[-1].first, last)
                continue
        joined.append(span)
    return joined


def _stands_in(value: str, output: str) -> bool:
    """Whether a value is printed, and not as a part of a longer number."""
    at = output.find(value)
    while at >= 0:
        before, after = output[:at][-1:], output[at + len(value) :][:1]
        glued = (before.isdigit() or before == ".") and value[:1].isdigit()
        longer = after.isdigit() and value[-1:].isdigit()
        if not glued and not longer:
            return True
        at = output.find(value, at + 1)
    return False


def _is_item(text: str) -> bool:
    return text[:1].isdigit() and ". " in text[:4]
