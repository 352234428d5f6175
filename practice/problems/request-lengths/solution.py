"""The lengths of a request; the rest of Req (is_chunk, …) is the engine's."""

from minisgl import core


class Req(core.Req):
    def __post_init__(self) -> None:
        self.prompt_len = len(self.input_ids)
        self.reused_len = self.cached_len  # tokens of the prompt it never computes
        self.device_len = self.prompt_len
        self.max_device_len = self.prompt_len + self.output_len
        assert self.input_ids.typecode == "i", self.input_ids.typecode
        assert 0 <= self.cached_len < self.device_len <= self.max_device_len, self

    @property
    def extend_len(self) -> int:
        """Tokens that the next forward computes."""
        return self.device_len - self.cached_len

    def limit_chunk(self, max_tokens: int) -> None:
        """Let the next forward compute at most `max_tokens` (>= 1) of the prompt."""
        assert max_tokens >= 1 and self.cached_len < self.prompt_len
        self.device_len = min(self.cached_len + max_tokens, self.prompt_len)

    def complete_chunk(self) -> None:
        """A slice of the prompt was computed; the rest of it comes next."""
        assert self.is_chunk, "complete_chunk is for a slice that ends in the prompt"
        self.cached_len = self.device_len
        self.device_len = self.prompt_len

    def complete_one(self) -> None:
        """All known tokens were computed and one was sampled; that one comes next."""
        assert not self.is_chunk, "a slice of a prompt samples nothing"
        self.cached_len = self.device_len
        self.device_len += 1
