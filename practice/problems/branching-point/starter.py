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
        raise NotImplementedError("branching-point: finalize_match_result")
