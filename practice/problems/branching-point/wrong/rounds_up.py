"""The next multiple of the grid, which may lie behind what is shared."""

from __future__ import annotations

from minisgl.kvcache.unified import mamba_component
from minisgl.kvcache.unified.params import MatchPrefixParams, MatchResult


class MambaComponent(mamba_component.MambaComponent):
    def finalize_match_result(
        self, result: MatchResult, params: MatchPrefixParams
    ) -> None:
        if result.mamba_branching_seqlen is not None:
            num_steps = -(-result.full_hit_len // self.checkpoint_grid)
            result.mamba_branching_seqlen = num_steps * self.checkpoint_grid
        if params.req is not None and result.cached_len:
            self._copy_on_write(result.last_device_node, result.cached_len, params.req)
