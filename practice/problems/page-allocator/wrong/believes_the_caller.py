"""Looks whether it could be a page of this pool, not whether it is in use."""

from collections.abc import Iterable

from minisgl.errors import PoolError
from minisgl.kvcache import page_allocator


class PageAllocator(page_allocator.PageAllocator):
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
        for page in pages:
            if type(page) is not int or not 0 <= page < self.num_pages:
                raise PoolError(f"page {page!r} is no page of this pool")
        if len(returned) < len(pages):
            raise PoolError(f"a page of {pages} is freed twice in one call")
        self._in_use -= returned
        self._free.extend(reversed(pages))
