"""Rounded down, even if that is not beyond what can be reused already."""

from __future__ import annotations

from minisgl.kvcache.unified import mamba_component
from minisgl.kvcache.unified.params import MatchPrefixParams, MatchResult


class MambaComponent(mamba_component.MambaComponent):
    def finalize_match_result(
        self, result: MatchResult, params: MatchPrefixParams
    ) -> None:
        if result.mamba_branching_seqlen is not None:
            num_over = result.full_hit_len % self.checkpoint_grid
            result.mamba_branching_seqlen = result.full_hit_len - num_over
        if params.req is not None and result.cached_len:
            self._copy_on_write(result.last_device_node, result.cached_len, params.req)
