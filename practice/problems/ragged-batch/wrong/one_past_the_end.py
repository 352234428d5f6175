"""Takes the end of the half-open interval for its last token."""

from dataclasses import dataclass

from minisgl.core import Req


@dataclass
class RaggedBatch:
    rows: list[int]  # per token: the row of its request in the page table
    positions: list[int]  # per token: its place in its request
    cu_seqlens_q: list[int]  # where each request's tokens begin, and where the last end
    cu_seqlens_k: list[int]  # the same for the keys that each request reads
    logit_indices: list[int]  # per request that samples: where its last token stands


def lay_out(reqs: list[Req]) -> RaggedBatch:
    """The indices of a forward over the tokens [cached_len, device_len) of each."""
    batch = RaggedBatch([], [], [0], [0], [])
    for req in reqs:
        batch.rows += [req.table_idx] * req.extend_len
        batch.positions += range(req.cached_len, req.device_len)
        batch.cu_seqlens_q.append(len(batch.positions))
        batch.cu_seqlens_k.append(batch.cu_seqlens_k[-1] + req.device_len)
        if not req.is_chunk:
            batch.logit_indices.append(len(batch.positions))
    return batch
