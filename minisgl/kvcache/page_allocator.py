"""Which pages of the pool are free. Page ids only; no tensor is involved."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from minisgl.errors import PoolError


class PageAllocator:
    """Hands out the page ids 0 … num_pages-1 and takes them back.

    Every page is either free or in use, and only its return makes it free. A call that
    is refused changes nothing. Both calls cost time in proportion to the pages of the
    call, whatever the size of the pool.
    """

    def __init__(self, num_pages: int) -> None:
        if num_pages < 1:
            raise PoolError(f"a pool needs at least one page; num_pages is {num_pages}")
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))  # a stack; page 0 on top
        self._in_use: set[int] = set()

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def free_pages(self) -> list[int]:
        """The free page ids, next one first; a copy, for checks and drawings."""
        return self._free[::-1]

    def allocate(self, num_pages: int) -> list[int]:
        """Take `num_pages` pages. Raises PoolError if fewer are free."""
        if not 0 <= num_pages <= self.num_free:
            raise PoolError(
                f"{num_pages} pages were asked for; {self.num_free} of "
                f"{self.num_pages} are free"
            )
        start = self.num_free - num_pages
        pages = self._free[start:][::-1]
        del self._free[start:]
        self._in_use.update(pages)
        return pages

    def free(self, pages: Iterable[int]) -> None:
        """Give pages back.

        Raises PoolError if a page is not of this pool, is free already, or comes twice.
        """
        pages = list(pages)
        returned = set(pages)
        # 1.0 and True equal the page 1, and must not get into the list in its place
        all_int = all(type(page) is int for page in pages)
        if not all_int or len(returned) < len(pages) or not returned <= self._in_use:
            raise self._free_error(pages)
        self._in_use -= returned
        self._free.extend(reversed(pages))

    def _free_error(self, pages: list[int]) -> PoolError:
        seen: set[int] = set()
        for page in pages:
            if not (type(page) is int and 0 <= page < self.num_pages):
                return PoolError(
                    f"page {page!r} cannot be freed: the pool has pages 0 to "
                    f"{self.num_pages - 1}"
                )
            if page in seen:
                return PoolError(f"page {page} is freed twice in one call")
            if page not in self._in_use:
                return PoolError(f"page {page} cannot be freed: it is free already")
            seen.add(page)
        raise AssertionError("every page could have been freed")


def num_pages_for(num_tokens: int, page_size: int) -> int:
    """Pages that hold `num_tokens` tokens: the last one may be partly empty."""
    return -(-num_tokens // page_size)


def slots_of_pages(pages: Iterable[int], page_size: int) -> array[int]:
    """The slots of whole pages, in order."""
    if page_size == 1:
        return array("i", pages)
    slots = array("i")
    for page in pages:
        slots.extend(range(page * page_size, (page + 1) * page_size))
    return slots


def pages_of_slots(slots: Sequence[int], page_size: int) -> list[int]:
    """The pages of slots that start at the beginning of a page."""
    return [slot // page_size for slot in slots[::page_size]]
