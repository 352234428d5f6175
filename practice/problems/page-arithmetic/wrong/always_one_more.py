"""Rounds up by adding one, also where the tokens fill the last page exactly."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence


def num_pages_for(num_tokens: int, page_size: int) -> int:
    """Pages that hold `num_tokens` tokens: the last one may be partly empty."""
    return num_tokens // page_size + 1


def slots_of_pages(pages: Iterable[int], page_size: int) -> array[int]:
    """The slots of whole pages, in order."""
    slots = array("i")
    for page in pages:
        slots.extend(range(page * page_size, (page + 1) * page_size))
    return slots


def pages_of_slots(slots: Sequence[int], page_size: int) -> list[int]:
    """The pages of slots that start at the beginning of a page."""
    return [slot // page_size for slot in slots[::page_size]]
