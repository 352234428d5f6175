"""What the device knows of each request: its token ids, and the slots of their KV."""

from __future__ import annotations

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
        self.page_table = torch.zeros(
            num_rows, max_len, dtype=torch.int32, device=device
        )
        self.token_pool = torch.zeros_like(self.page_table)
        self.device = device

    def write_slots(self, row: int, start: int, slots: Sequence[int]) -> None:
        """Say where the KV of positions `start`, `start` + 1, … lies."""
        self._write(self.page_table, row, start, slots)

    def write_tokens(self, row: int, start: int, tokens: Sequence[int]) -> None:
        """Put token ids at positions `start`, `start` + 1, …"""
        self._write(self.token_pool, row, start, tokens)

    def read_slots(self, row: int, start: int, end: int) -> list[int]:
        """The slots of positions [start, end), on the host."""
        return self.page_table[row, start:end].tolist()

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
    def _write(
        table: torch.Tensor, row: int, start: int, values: Sequence[int]
    ) -> None:
        new = torch.tensor(values, dtype=table.dtype)
        table[row, start : start + len(new)] = new.to(table.device)
