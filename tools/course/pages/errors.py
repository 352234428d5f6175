"""What is wrong with a page: always its file and line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from course.errors import CheckFailed


class PageError(CheckFailed):
    """A page that cannot be published as it is."""

    def __init__(self, page: str, line: int, what: str, hint: str = "") -> None:
        self.page, self.line = page, line
        super().__init__(f"{page}:{line}: {what}", hint or f"correct {page}")


class Unknown(Exception):
    """A name that is not there; the caller knows page and line."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"{what}{nearest(name, known)}")


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing when no known name comes near."""
    by_last: dict[str, str] = {}
    for candidate in known:
        by_last.setdefault(candidate, candidate)
        for separator in "./":
            by_last.setdefault(candidate.rpartition(separator)[2], candidate)
    found = difflib.get_close_matches(name, by_last, n=1, cutoff=0.5)
    if not found:
        last = name.replace("/", ".").rpartition(".")[2]
        found = difflib.get_close_matches(last, by_last, n=1, cutoff=0.6)
    return f"; did you mean {by_last[found[0]]}?" if found else ""
