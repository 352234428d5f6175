"""Gives each page back as soon as it was looked at, before it looks at the next."""

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
        for page in reversed(list(pages)):
            if type(page) is not int or page not in self._in_use:
                raise PoolError(f"page {page!r} cannot be freed")
            self._in_use.remove(page)
            self._free.append(page)
