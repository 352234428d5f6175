"""A request grows: new pages, and their slots in its row of the page table."""

from minisgl.kvcache import page_allocator


def extend_row(
    row: list[int],
    old_len: int,
    new_len: int,
    page_size: int,
    allocator: page_allocator.PageAllocator,
) -> list[int]:
    """Give a request pages for `new_len` tokens; returns those it did not have.

    Raises PoolError, and changes nothing, if the pool has too few.
    """
    # page_allocator.num_pages_for(num_tokens, page_size) counts pages, and
    # page_allocator.slots_of_pages(pages, page_size) gives their slots
    raise NotImplementedError("write-page-table: extend_row")
