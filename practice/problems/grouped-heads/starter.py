"""Grouped-query attention: who reads which key-value head, and what it costs."""


def kv_head_of(query_head: int, num_qo_heads: int, num_kv_heads: int) -> int:
    """The KV head that `query_head` reads."""
    raise NotImplementedError("grouped-heads: kv_head_of")


def query_heads_of(kv_head: int, num_qo_heads: int, num_kv_heads: int) -> list[int]:
    """The query heads that read `kv_head`, ascending."""
    raise NotImplementedError("grouped-heads: query_heads_of")


def kv_bytes_per_token(
    num_layers: int, num_kv_heads: int, head_dim: int, itemsize: int
) -> int:
    """Bytes that one token takes in the pool, all layers together."""
    raise NotImplementedError("grouped-heads: kv_bytes_per_token")
