"""Takes the last page that is partly filled for the first that is missing."""

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
    pages = allocator.allocate(page_allocator.num_pages_for(new_len, page_size) - held)
    start = old_len // page_size * page_size
    slots = page_allocator.slots_of_pages(pages, page_size)
    row[start : start + len(slots)] = slots
    return pages
