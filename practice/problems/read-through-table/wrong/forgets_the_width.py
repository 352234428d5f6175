"""Takes the slot for the place of its first number, when writing and reading."""


def store_kv(
    buffer: list[float], width: int, vectors: list[list[float]], out_loc: list[int]
) -> None:
    """Write vector i to slot `out_loc[i]`, in place; a slot is `width` numbers."""
    for vector, slot in zip(vectors, out_loc, strict=True):
        buffer[slot : slot + width] = vector


def gather_kv(
    buffer: list[float], width: int, row: list[int], length: int
) -> list[list[float]]:
    """The vectors of positions 0 to `length` - 1; position i is in slot `row[i]`."""
    return [buffer[slot : slot + width] for slot in row[:length]]
