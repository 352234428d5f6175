"""Requests of all lengths in one forward, behind one another and without padding."""

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
    raise NotImplementedError("ragged-batch: lay_out")
