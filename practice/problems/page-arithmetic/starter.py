"""The arithmetic of pages: how many, which slots, and back."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence


def num_pages_for(num_tokens: int, page_size: int) -> int:
    """Pages that hold `num_tokens` tokens: the last one may be partly empty."""
    raise NotImplementedError("page-arithmetic: num_pages_for")


def slots_of_pages(pages: Iterable[int], page_size: int) -> array[int]:
    """The slots of whole pages, in order."""
    raise NotImplementedError("page-arithmetic: slots_of_pages")


def pages_of_slots(slots: Sequence[int], page_size: int) -> list[int]:
    """The pages of slots that start at the beginning of a page."""
    raise NotImplementedError("page-arithmetic: pages_of_slots")
