"""What the device knows of each request: its token ids, and the slots of their KV."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch

from minisgl.core import Batch


class ReqTable:
    """Two tables with a row per running request and a column per position.

    `page_table[row, i]` is the slot of the request's token i, `token_pool[row, i]` that
    token's id. A forward takes its input from here, and a sampled token is written
    here, so that no token has to visit the host between two steps.
    """

    def __init__(self, num_rows: int, max_len: int, device: torch.device) -> None:
        self.device = device
        self.page_table = torch.zeros(
            num_rows, max_len, dtype=torch.int32, device=device
        )
        self.token_pool = torch.zeros_like(self.page_table)
        # The page table once more, on the host: who frees pages must not wait for the
        # device to tell which.
        self._host_slots = [array("i", bytes(4 * max_len)) for _ in range(num_rows)]

    def write_slots(self, row: int, start: int, slots: Sequence[int]) -> None:
        """Say where the KV of positions `start`, `start` + 1, … lies."""
        slots = array("i", slots)
        self._write(self.page_table, row, start, slots)
        self._host_slots[row][start : start + len(slots)] = slots

    def read_slots(self, row: int, start: int, end: int) -> array[int]:
        """The slots of positions [start, end), on the host."""
        return self._host_slots[row][start:end]

    def write_tokens(self, row: int, start: int, tokens: Sequence[int]) -> None:
        """Put token ids at positions `start`, `start` + 1, …"""
        self._write(self.token_pool, row, start, array("i", tokens))

    def fill_batch(self, batch: Batch) -> None:
        """Set the batch's `input_ids`, `positions` and `out_loc` from the tables.

        For each request these are the tokens `[cached_len, device_len)`. Of each
        request that is sampled, `logit_indices` says where its last one stands.
        """
        rows, positions, last = [], [], []
        for req in batch.reqs:
            rows += [req.table_idx] * req.extend_len
            positions += range(req.cached_len, req.device_len)
            if not req.is_chunk:
                last.append(len(rows) - 1)
        row_index, batch.positions = torch.tensor([rows, positions]).to(self.device)
        batch.input_ids = self.token_pool[row_index, batch.positions]
        batch.out_loc = self.page_table[row_index, batch.positions].long()
        batch.logit_indices = torch.tensor(last, dtype=torch.int64, device=self.device)

    def write_next_tokens(self, batch: Batch, tokens: torch.Tensor) -> None:
        """Append a token to the row of each sampled request; `tokens` has one for each.

        Called before the requests' lengths move on: the new token of a request belongs
        at position `device_len`.
        """
        reqs = batch.sampled_reqs
        assert all(req.can_decode for req in reqs), reqs
        rows = [req.table_idx for req in reqs]
        positions = [req.device_len for req in reqs]
        index = torch.tensor([rows, positions], dtype=torch.int64).to(self.device)
        self.token_pool[index[0], index[1]] = tokens.to(self.token_pool.dtype)

    @staticmethod
    def _write(table: torch.Tensor, row: int, start: int, values: array[int]) -> None:
        end = start + len(values)
        assert end <= table.shape[1], (end, table.shape)
        if values:
            new = torch.frombuffer(values, dtype=torch.int32)
            table[row, start:end] = new.to(table.device)
