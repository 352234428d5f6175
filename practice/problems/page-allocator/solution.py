"""Which pages of the pool are free: the two calls that change it."""

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
        all_int = all(type(page) is int for page in pages)
        if not all_int or len(returned) < len(pages) or not returned <= self._in_use:
            raise self._free_error(pages)
        self._in_use -= returned
        self._free.extend(reversed(pages))
