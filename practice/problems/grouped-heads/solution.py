"""Grouped-query attention: who reads which key-value head, and what it costs."""


def kv_head_of(query_head: int, num_qo_heads: int, num_kv_heads: int) -> int:
    """The KV head that `query_head` reads."""
    group = num_qo_heads // num_kv_heads
    return query_head // group


def query_heads_of(kv_head: int, num_qo_heads: int, num_kv_heads: int) -> list[int]:
    """The query heads that read `kv_head`, ascending."""
    group = num_qo_heads // num_kv_heads
    return list(range(kv_head * group, (kv_head + 1) * group))


def kv_bytes_per_token(
    num_layers: int, num_kv_heads: int, head_dim: int, itemsize: int
) -> int:
    """Bytes that one token takes in the pool, all layers together."""
    return 2 * num_layers * num_kv_heads * head_dim * itemsize
