from collections import deque


class FreeList:
    """Pages 0 to `num_pages` - 1, handed out one by one."""

    def __init__(self, num_pages: int) -> None:
        self.free = deque(range(num_pages))
        self.out: set[int] = set()

    def take(self) -> int | None:
        """The page that has been free for longest; None if there is none."""
        if not self.free:
            return None
        page = self.free.popleft()
        self.out.add(page)
        return page

    def give(self, page: int) -> None:
        """Take a page back. Raises ValueError for one that is not out."""
        if page not in self.out:
            raise ValueError(f"page {page} is not out")
        self.out.remove(page)
        self.free.append(page)
