class FreeList:
    """Pages 0 to `num_pages` - 1, handed out one by one."""

    def __init__(self, num_pages: int) -> None:
        raise NotImplementedError("free-list: __init__")

    def take(self) -> int | None:
        """The page that has been free for longest; None if there is none."""
        raise NotImplementedError("free-list: take")

    def give(self, page: int) -> None:
        """Take a page back. Raises ValueError for one that is not out."""
        raise NotImplementedError("free-list: give")
