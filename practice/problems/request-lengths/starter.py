"""The lengths of a request; the rest of Req (is_chunk, …) is the engine's."""

from minisgl import core


class Req(core.Req):
    def __post_init__(self) -> None:
        # given: self.input_ids, self.cached_len, self.output_len
        # to set: prompt_len, reused_len, device_len, max_device_len
        raise NotImplementedError("request-lengths: __post_init__")

    @property
    def extend_len(self) -> int:
        """Tokens that the next forward computes."""
        raise NotImplementedError("request-lengths: extend_len")

    def limit_chunk(self, max_tokens: int) -> None:
        """Let the next forward compute at most `max_tokens` (>= 1) of the prompt."""
        raise NotImplementedError("request-lengths: limit_chunk")

    def complete_chunk(self) -> None:
        """A slice of the prompt was computed; the rest of it comes next."""
        raise NotImplementedError("request-lengths: complete_chunk")

    def complete_one(self) -> None:
        """All known tokens were computed and one was sampled; that one comes next."""
        raise NotImplementedError("request-lengths: complete_one")
