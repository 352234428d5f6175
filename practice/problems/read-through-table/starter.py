"""A flat pool of slots: written by slot, read through a row of the page table."""


def store_kv(
    buffer: list[float], width: int, vectors: list[list[float]], out_loc: list[int]
) -> None:
    """Write vector i to slot `out_loc[i]`, in place; a slot is `width` numbers."""
    raise NotImplementedError("read-through-table: store_kv")


def gather_kv(
    buffer: list[float], width: int, row: list[int], length: int
) -> list[list[float]]:
    """The vectors of positions 0 to `length` - 1; position i is in slot `row[i]`."""
    raise NotImplementedError("read-through-table: gather_kv")
