"""Which pages of the pool are free: the two calls that change it."""

from collections.abc import Iterable

from minisgl.kvcache import page_allocator


class PageAllocator(page_allocator.PageAllocator):
    # given: num_pages, num_free, free_pages, _free (next page last), _in_use,
    #        and _free_error(pages), which returns the PoolError to raise

    def allocate(self, num_pages: int) -> list[int]:
        """Take `num_pages` pages. Raises PoolError if fewer are free."""
        raise NotImplementedError("page-allocator: allocate")

    def free(self, pages: Iterable[int]) -> None:
        """Give pages back.

        Raises PoolError if a page is not of this pool, is free already, or comes twice.
        """
        raise NotImplementedError("page-allocator: free")
