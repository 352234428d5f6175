from __future__ import annotations

from minisgl.kvcache.unified import mamba_component
from minisgl.kvcache.unified.params import MatchPrefixParams, MatchResult


class MambaComponent(mamba_component.MambaComponent):
    def finalize_match_result(
        self, result: MatchResult, params: MatchPrefixParams
    ) -> None:
        """Say where a state would help, and copy the matched one for the request.

        A request without a slot gets one; if all are in use it goes without
        (`mamba_pool_idx` stays None), and cannot run yet.
        """
        if result.mamba_branching_seqlen is not None:
            branching_len = result.full_hit_len
            branching_len -= branching_len % self.checkpoint_grid
            is_useful = branching_len > result.cached_len
            result.mamba_branching_seqlen = branching_len if is_useful else None
        if params.req is not None and result.cached_len:
            self._copy_on_write(result.last_device_node, result.cached_len, params.req)
