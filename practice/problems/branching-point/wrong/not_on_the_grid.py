"""The checkpoint is wanted exactly where the Full data ends."""

from __future__ import annotations

from minisgl.kvcache.unified import mamba_component
from minisgl.kvcache.unified.params import MatchPrefixParams, MatchResult


class MambaComponent(mamba_component.MambaComponent):
    def finalize_match_result(
        self, result: MatchResult, params: MatchPrefixParams
    ) -> None:
        has_more = result.full_hit_len > result.cached_len
        result.mamba_branching_seqlen = result.full_hit_len if has_more else None
        if params.req is not None and result.cached_len:
            self._copy_on_write(result.last_device_node, result.cached_len, params.req)
