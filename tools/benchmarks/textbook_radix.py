"""A radix cache the textbook way: the yardstick and the oracle of the tree benchmark.

Keys and values are int32 tensors. Children are found by their first token (or by the
tuple of their first page), runs are compared with a tensor operation, and each
eviction first walks the whole tree to collect the leaves it may take. It decides
exactly as the real tree does, so the two must agree on every hit and every eviction;
only its clock is a counter rather than the time of day, so that no two stamps tie.
"""

from __future__ import annotations

import heapq

import torch

from minisgl.kernel.torch_ops import fast_compare_key


class TextbookNode:
    def __init__(
        self, key: torch.Tensor, value: torch.Tensor, parent: TextbookNode | None
    ) -> None:
        self.key, self.value, self.parent = key, value, parent
        self.children: dict[object, TextbookNode] = {}
        self.ref_count = 0
        self.timestamp = 0

    def __lt__(self, other: TextbookNode) -> bool:
        return self.timestamp < other.timestamp


class TextbookRadixCache:
    """match, lock, evict, insert, unlock, as the scheduler would call them."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        empty = torch.empty(0, dtype=torch.int32)
        self.root = TextbookNode(empty, empty, None)
        self.evictable_size = 0
        self.clock = 0

    def match_prefix(self, key: torch.Tensor) -> tuple[TextbookNode, int]:
        return self._walk(key)

    def matched_indices(self, node: TextbookNode) -> torch.Tensor:
        values = [node.value]
        while node.parent is not None:
            node = node.parent
            values.append(node.value)
        return torch.cat(values[::-1])

    def insert_prefix(self, key: torch.Tensor, indices: torch.Tensor) -> int:
        """Store whole pages; returns how many tokens of `key` were there before."""
        insert_len = len(key) // self.page_size * self.page_size
        key, indices = key[:insert_len], indices[:insert_len]
        node, cached_len = self._walk(key)
        if cached_len < insert_len:
            leaf = TextbookNode(key[cached_len:], indices[cached_len:].clone(), node)
            leaf.timestamp = self.clock
            node.children[self._first_page(leaf.key)] = leaf
            self.evictable_size += len(leaf.key)
        return cached_len

    def lock(self, node: TextbookNode, by: int = 1) -> None:
        """Count `by` more receipts on the path to the root; -1 releases one."""
        while node.parent is not None:
            before, node.ref_count = node.ref_count, node.ref_count + by
            if before == 0:
                self.evictable_size -= len(node.key)
            elif node.ref_count == 0:
                self.evictable_size += len(node.key)
            node = node.parent

    def evict(self, size: int) -> torch.Tensor:
        heap = self._evictable_leaves()
        heapq.heapify(heap)
        freed: list[torch.Tensor] = []
        num_freed = 0
        while num_freed < size:
            node = heapq.heappop(heap)
            freed.append(node.value)
            num_freed += len(node.value)
            parent = node.parent
            del parent.children[self._first_page(node.key)]
            if parent is not self.root and not parent.children and not parent.ref_count:
                heapq.heappush(heap, parent)
        self.evictable_size -= num_freed
        return torch.cat(freed)

    def _evictable_leaves(self) -> list[TextbookNode]:
        leaves, stack = [], list(self.root.children.values())
        while stack:
            node = stack.pop()
            if node.children:
                stack.extend(node.children.values())
            elif node.ref_count == 0:
                leaves.append(node)
        return leaves

    def _walk(self, key: torch.Tensor) -> tuple[TextbookNode, int]:
        self.clock += 1
        node, pos = self.root, 0
        total = len(key) // self.page_size * self.page_size
        while pos < total:
            child = node.children.get(self._first_page(key[pos:]))
            if child is None:
                break
            match_len = fast_compare_key(child.key, key[pos:])
            match_len -= match_len % self.page_size
            pos += match_len
            partial = match_len < len(child.key)
            node = self._split(child, match_len) if partial else child
            node.timestamp = self.clock
            if partial:
                break
        return node, pos

    def _split(self, node: TextbookNode, pos: int) -> TextbookNode:
        upper = TextbookNode(node.key[:pos], node.value[:pos], node.parent)
        upper.ref_count = node.ref_count
        upper.parent.children[self._first_page(upper.key)] = upper
        node.key, node.value, node.parent = node.key[pos:], node.value[pos:], upper
        upper.children[self._first_page(node.key)] = node
        return upper

    def _first_page(self, key: torch.Tensor) -> object:
        if self.page_size == 1:
            return key[0].item()
        return tuple(key[: self.page_size].tolist())
