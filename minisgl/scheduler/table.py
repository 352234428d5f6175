"""Rows of the request tables: one for each running request."""

from __future__ import annotations


class TableManager:
    """Hands out the rows 0 … num_rows-1."""

    def __init__(self, num_rows: int) -> None:
        self._free = list(range(num_rows - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def allocate(self) -> int:
        return self._free.pop()

    def free(self, row: int) -> None:
        assert row not in self._free, f"row {row} is free already"
        self._free.append(row)
