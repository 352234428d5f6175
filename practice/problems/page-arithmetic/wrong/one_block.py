"""Takes the slots from the first page on, as if the pages lay side by side."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence


def num_pages_for(num_tokens: int, page_size: int) -> int:
    """Pages that hold `num_tokens` tokens: the last one may be partly empty."""
    return -(-num_tokens // page_size)


def slots_of_pages(pages: Iterable[int], page_size: int) -> array[int]:
    """The slots of whole pages, in order."""
    pages = list(pages)
    start = pages[0] * page_size if pages else 0
    return array("i", range(start, start + len(pages) * page_size))


def pages_of_slots(slots: Sequence[int], page_size: int) -> list[int]:
    """The pages of slots that start at the beginning of a page."""
    return [slot // page_size for slot in slots[::page_size]]
