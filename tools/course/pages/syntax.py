"""The text of a page, taken apart: directives, inline figures and names, prose.

A directive is a line that begins with `:::` in the first column. A block directive ends
at a line `:::`. Fenced code is left alone: a directive in it is an example.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from course.pages.errors import PageError, nearest

# name -> the options it takes
SINGLE: Mapping[str, tuple[str, ...]] = {
    "code": ("from", "to"),
    "diff": (),
    "files": (),
    "example": ("from", "to"),
    "output": ("from", "to"),
    "test": (),
    "run": ("from", "to"),
    "exercise": (),
    "problems": (),
}
BLOCK: Mapping[str, tuple[str, ...]] = {
    "self-test": (),
    "draw": (),
    "live": ("components", "page_size", "pages", "window"),
    "omitted": (),
    "map": (),
}
INLINE = ("run", "out", "given", "eg", "elsewhere")

_FENCE = re.compile(r" *(`{3,}|~{3,})(.*)")
_MARKER = re.compile(r"\s*::+")
_DIRECTIVE = re.compile(r"::: ([a-z-]+)(?: +(.*))?")
_OPTION = re.compile(r"([a-z_]+)=(.*)", re.DOTALL)
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_INLINE = re.compile(r"\{\{(.*?)\}\}")
_INLINE_PARTS = re.compile(r'\s*([a-z]+):\s*([^"]*?)\s*(?:,\s*"([^"]+)"\s*)?')
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FRONT_MATTER = re.compile(r"---\n.*?\n---\n+", re.DOTALL)


@dataclass(frozen=True)
class Directive:
    """One directive: `line` and `last` are its lines in the file, from 1."""

    name: str
    words: tuple[str, ...]
    options: Mapping[str, str]
    body: tuple[str, ...]
    line: int
    last: int


@dataclass(frozen=True)
class Inline:
    """`{{kind: value, "source"}}` in prose."""

    kind: str
    value: str
    source: str | None
    line: int
    span: tuple[int, int]  # columns in its line


@dataclass(frozen=True)
class Page:
    """A page taken apart. `lines` are those of the file; line 1 is `lines[0]`."""

    path: str  # docs/03_pool.md
    lines: Sequence[str]
    directives: Sequence[Directive] = field(default_factory=list)
    prose: Sequence[tuple[int, str]] = field(default_factory=list)

    def at(self, directive: Directive | Inline | int, what: str) -> PageError:
        line = directive if isinstance(directive, int) else directive.line
        return PageError(self.path, line, what)


def parse(text: str, path: str) -> Page:
    """Take a page apart; `PageError` for a marker that is no directive."""
    lines = _COMMENT.sub(lambda m: "\n" * m[0].count("\n"), text).split("\n")
    front = _FRONT_MATTER.match(text)
    page = Page(path, lines, [], [])
    number = front[0].count("\n") if front else 0
    while number < len(lines):
        number += 1
        line = lines[number - 1]
        if fence := _FENCE.fullmatch(line):
            number = _end_of_fence(lines, number, fence[1])
        elif _MARKER.match(line):
            directive = _directive(page, number)
            page.directives.append(directive)
            page.prose.extend(_prose_of(directive))
            number = directive.last
        else:
            page.prose.append((number, line))
    return page


def inlines(page: Page, number: int, line: str) -> Iterator[Inline]:
    """The inline figures and names of a line of prose, left to right."""
    masked = mask_code(line)
    for match in _INLINE.finditer(masked):
        text = line[match.start(1) : match.end(1)]
        parts = _INLINE_PARTS.fullmatch(text)
        if not parts or parts[1] not in INLINE or not parts[2]:
            raise page.at(
                number,
                f"{{{{{text}}}}} is none of {{{{run:KEY.figure}}}}, {{{{out:46}}}}, "
                '{{given: 46, "source"}}, {{eg: 46}}, {{elsewhere: Name, "place"}}',
            )
        needs_source = parts[1] in ("given", "elsewhere")
        if needs_source != bool(parts[3]):
            what = "needs its source in quotes" if needs_source else "takes no source"
            raise page.at(number, f"{{{{{text}}}}}: {parts[1]} {what}")
        yield Inline(parts[1], parts[2], parts[3], number, match.span())
    rest = _INLINE.sub("", masked)
    if "{{" in rest or "}}" in rest:
        raise page.at(number, "{{ and }} must be on one line, or in `code style`")


def mask_code(line: str) -> str:
    """The line with its code spans blanked, so that columns stay."""
    return _CODE_SPAN.sub(lambda m: " " * len(m[0]), line)


def code_spans(line: str) -> list[str]:
    """The texts in code style of a line."""
    return [match[2].strip() for match in _CODE_SPAN.finditer(line)]


def _end_of_fence(lines: Sequence[str], start: int, fence: str) -> int:
    """The line that closes the fence opened on line `start`, or the last one."""
    for number in range(start + 1, len(lines) + 1):
        closing = _FENCE.fullmatch(lines[number - 1])
        if closing and closing[1].startswith(fence) and not closing[2].strip():
            return number
    return len(lines)


def _directive(page: Page, number: int) -> Directive:
    line = page.lines[number - 1].rstrip()
    match = _DIRECTIVE.fullmatch(line)
    known = [*SINGLE, *BLOCK]
    if not match:
        if line == ":::":
            raise page.at(number, "::: ends no block")
        raise page.at(
            number,
            f"{line.strip()!r} is no directive: write ::: NAME … from the first column "
            f"(names: {', '.join(known)})",
        )
    name = match[1]
    if name not in known:
        what = f"there is no directive ::: {name}{nearest(name, known)}"
        raise page.at(number, f"{what} (names: {', '.join(known)})")
    words, options = _arguments(page, number, match[2] or "")
    allowed = SINGLE.get(name, BLOCK.get(name, ()))
    for option in options:
        if option not in allowed:
            takes = " and ".join(f'{o}="…"' for o in allowed) or "no options"
            raise page.at(number, f"::: {name} takes {takes}, not {option}=")
    body, last = _body(page, number, name) if name in BLOCK else ((), number)
    return Directive(name, words, options, body, number, last)


def _arguments(
    page: Page, number: int, text: str
) -> tuple[tuple[str, ...], dict[str, str]]:
    # no posix escapes: a backslash in a quoted text is a backslash
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise page.at(number, f"a quote is not closed in {text!r} ({error})") from None
    options = {}
    plain = []
    for word in words:
        if match := _OPTION.fullmatch(word):
            options[match[1]] = match[2]
        else:
            plain.append(word)
    return tuple(plain), options


def _body(page: Page, number: int, name: str) -> tuple[tuple[str, ...], int]:
    for last in range(number + 1, len(page.lines) + 1):
        line = page.lines[last - 1]
        if line.rstrip() == ":::":
            body = tuple(page.lines[number : last - 1])
            if not any(text.strip() for text in body):
                raise page.at(number, f"::: {name} is empty")
            return body, last
        if line.startswith(":::"):
            break
    raise page.at(number, f"::: {name} is not closed: end it with a line :::")


def _prose_of(directive: Directive) -> list[tuple[int, str]]:
    """What a directive says in words: checked like prose."""
    first = directive.line + 1
    if directive.name == "self-test":
        return [(first + i, text) for i, text in enumerate(directive.body)]
    if directive.name == "omitted":
        reasons = (text.partition(": ")[2] for text in directive.body)
        return [(first + i, text) for i, text in enumerate(reasons)]
    if directive.name == "draw":
        return [(directive.line, " ".join(directive.words))]
    return []
