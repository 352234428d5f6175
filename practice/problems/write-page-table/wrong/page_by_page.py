"""Takes and writes one page at a time, so that a refusal comes in the middle."""

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
    held = page_allocator.num_pages_for(old_len, page_size)
    pages = []
    for index in range(held, page_allocator.num_pages_for(new_len, page_size)):
        pages += allocator.allocate(1)
        start = index * page_size
        row[start : start + page_size] = page_allocator.slots_of_pages(
            pages[-1:], page_size
        )
    return pages
