"""What the tests of live drawings share: a directive, as a page has it."""

from __future__ import annotations

from functools import cache

from course.manifest import Course
from course.pages.content import Contents
from course.pages.render import Renderer
from course.pages.syntax import parse

from support.page_course import REPO

RADIX = (
    "insert 1 2 3",
    "insert 1 2 9",
    "lock 1 2 3",
    "evict 9",
    "evict 1",
    "match 1 2 3 4",
)


@cache
def _renderer() -> Renderer:
    return Renderer(Contents(Course.load(REPO)))


def live(
    kind: str, *operations: str, page: str = "docs/11_unified_components.md"
) -> str:
    """The HTML of `::: live KIND` on one of the pages."""
    block = "\n".join([f"::: live {kind}", *operations, ":::", ""])
    parsed = parse(block, page)
    return _renderer().directive(parsed, parsed.directives[0])
