"""The KV cache: where keys and values lie, and who may read and reuse them."""
