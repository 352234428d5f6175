"""Which window page belongs to which Full page. Page ids only; no tensor is involved.

Where the KV of one token lies, in a model with full and sliding layers:

    page table        Full pool              this mapping        window pool
    position -> Full slot  (full layers)  -> window slot  (sliding layers)

Everyone names a token by its Full slot. It has one as long as anybody may read it; its
window slot it loses as soon as it has left every window.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from minisgl.errors import IntegrityError, PoolError
from minisgl.kvcache.page_allocator import PageAllocator, pages_of_slots

# In place of a page or slot that is not there. Reading through it is an error on every
# device, so a token that has left the window is missed loudly.
NO_PAGE = -1


class SWAMapping:
    """Pairs Full pages with window pages, and knows which of the latter are free.

    Both pools have pages of the same size, and a token stands at the same place in
    both. All calls take Full slots, whole pages of them, and cost time in proportion to
    the pages of the call. One that raises changes nothing.
    """

    def __init__(self, num_pages: int, num_swa_pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.allocator = PageAllocator(num_swa_pages)
        self.num_pages = num_pages  # Full
        self._swa_page = array("i", [NO_PAGE]) * num_pages  # by Full page
        self._changed: set[int] = set()  # Full pages

    @property
    def num_free(self) -> int:
        """Window pages that are free."""
        return self.allocator.num_free

    def allocate(self, full_slots: Sequence[int]) -> None:
        """Give Full pages, which have none, a window page each.

        Raises PoolError if fewer are free, or a page has one already.
        """
        pages = pages_of_slots(full_slots, self.page_size)
        for page in pages:
            if self._swa_page[page] != NO_PAGE:
                raise PoolError(f"Full page {page} has a window page already")
        for page, swa_page in zip(
            pages, self.allocator.allocate(len(pages)), strict=True
        ):
            self._pair(page, swa_page)

    def free(self, full_slots: Sequence[int]) -> None:
        """Free the window pages of Full pages, where there are any."""
        pages = pages_of_slots(full_slots, self.page_size)
        paired = [page for page in pages if self._swa_page[page] != NO_PAGE]
        self.allocator.free([self._swa_page[page] for page in paired])
        for page in paired:
            self._pair(page, NO_PAGE)

    def move(self, source: Sequence[int], target: Sequence[int]) -> None:
        """Hand the window page of each source page to the target page, which has none.

        For two copies of the same tokens, of which only the second is kept.
        """
        sources = pages_of_slots(source, self.page_size)
        targets = pages_of_slots(target, self.page_size)
        for old, new in zip(sources, targets, strict=True):
            held, empty = self._swa_page[old], self._swa_page[new]
            assert held != NO_PAGE and empty == NO_PAGE, (old, held, new, empty)
        for old, new in zip(sources, targets, strict=True):
            self._pair(new, self._swa_page[old])
            self._pair(old, NO_PAGE)

    def swa_pages(self, full_pages: Sequence[int]) -> list[int]:
        """The window page of each Full page, or NO_PAGE."""
        return [self._swa_page[page] for page in full_pages]

    def take_changes(self) -> list[int]:
        """The Full pages whose window page is another than at the last call."""
        changed, self._changed = self._changed, set()
        return sorted(changed)

    def reset(self) -> None:
        """Free all window pages."""
        paired = [page for page, swa in enumerate(self._swa_page) if swa != NO_PAGE]
        self.allocator.free(self.swa_pages(paired))
        for page in paired:
            self._pair(page, NO_PAGE)

    def check_integrity(self) -> None:
        """Every window page is free, or is that of exactly one Full page.

        Raises IntegrityError naming a page that is not.
        """
        places = dict.fromkeys(self.allocator.free_pages, "free")
        for page, swa_page in enumerate(self._swa_page):
            if swa_page == NO_PAGE:
                continue
            if swa_page in places:
                raise IntegrityError(
                    f"window page {swa_page} is that of Full page {page}, but also "
                    f"{places[swa_page]}"
                )
            places[swa_page] = f"that of Full page {page}"
        if len(places) < self.allocator.num_pages:
            lost = min(set(range(self.allocator.num_pages)) - places.keys())
            raise IntegrityError(f"window page {lost} is neither free nor in use")

    def _pair(self, page: int, swa_page: int) -> None:
        self._swa_page[page] = swa_page
        self._changed.add(page)


def left_window_len(num_tokens: int, window: int, page_size: int) -> int:
    """How many tokens, in whole pages, nobody sees once `num_tokens` are computed.

    The next query stands at position `num_tokens` and sees itself and the `window` - 1
    tokens before it.
    """
    unseen = max(num_tokens - window + 1, 0)
    return unseen - unseen % page_size
