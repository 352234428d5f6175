"""Whole steps of the grid are counted from the end of the match."""

from __future__ import annotations

from minisgl.kvcache.unified import mamba_component
from minisgl.kvcache.unified.params import MatchPrefixParams, MatchResult


class MambaComponent(mamba_component.MambaComponent):
    def finalize_match_result(
        self, result: MatchResult, params: MatchPrefixParams
    ) -> None:
        if result.mamba_branching_seqlen is not None:
            num_more = result.full_hit_len - result.cached_len
            num_more -= num_more % self.checkpoint_grid
            branching_len = result.cached_len + num_more
            result.mamba_branching_seqlen = branching_len if num_more else None
        if params.req is not None and result.cached_len:
            self._copy_on_write(result.last_device_node, result.cached_len, params.req)
