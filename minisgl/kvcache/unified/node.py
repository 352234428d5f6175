"""Nodes of the unified tree, and what each component keeps on them."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from enum import IntEnum
from typing import Any

from minisgl.kvcache.radix_key import TOKEN_BYTES


class ComponentType(IntEnum):
    """The kinds of data a node can hold; also their index in `component_data`."""

    FULL = 0
    SWA = 1
    MAMBA = 2


FULL = ComponentType.FULL  # once: looking up a member is as slow as a call


class ComponentData:
    """What one component keeps on one node.

    `value` holds slots, or None: a tombstone, whose data is gone while the node stays.
    `lock_ref` counts the locks that cover the node, with data or without; `metadata` is
    a component's note about them. The links belong to the component's UnifiedLRUList.
    """

    __slots__ = ("lock_ref", "lru_next", "lru_prev", "metadata", "node", "value")

    def __init__(self) -> None:
        self.value: array[int] | None = None
        self.lock_ref = 0
        self.metadata: Any = None
        self.node: UnifiedTreeNode | None = None
        self.lru_prev: ComponentData | None = None
        self.lru_next: ComponentData | None = None


class UnifiedTreeNode:
    """A run of tokens below `parent`.

    `key` is the run as packed tokens. The parent finds the node under `child_key`: its
    first page, and directly below the root its namespace too.
    """

    __slots__ = (
        "child_key",
        "children",
        "component_data",
        "id",
        "is_late",
        "key",
        "last_access_time",
        "parent",
    )

    def __init__(self, node_id: int, key: bytes, now: int, num_types: int) -> None:
        self.id = node_id
        self.key = key
        self.last_access_time = now
        self.children: dict[Hashable, UnifiedTreeNode] = {}
        self.component_data = [ComponentData() for _ in range(num_types)]
        self.child_key: Hashable = None
        self.parent: UnifiedTreeNode | None = None
        self.is_late = False  # noted by LeafQueue

    def set_parent(self, parent: UnifiedTreeNode, child_key: Hashable) -> None:
        self.parent, self.child_key = parent, child_key
        parent.children[child_key] = self

    @property
    def timestamp(self) -> int:
        """What LeafQueue calls the time of last use."""
        return self.last_access_time

    def is_evictable_leaf(self) -> bool:
        """Whether the node can go as a whole: childless, and not locked in Full."""
        if self.children or self.parent is None:
            return False
        full = self.component_data[FULL]
        return full.lock_ref == 0 and full.value is not None

    def value(self, component_type: ComponentType) -> array[int] | None:
        """The slots that a component keeps here, or None."""
        return self.component_data[component_type].value

    def __len__(self) -> int:
        """The number of tokens."""
        return len(self.key) // TOKEN_BYTES

    def __bool__(self) -> bool:
        return True  # the root too, although it has no tokens

    def __lt__(self, other: UnifiedTreeNode) -> bool:
        """Any order will do where LeafQueue finds two stamps alike.

        That can be a leaf that left the tree out of turn, and its parent.
        """
        return self.id < other.id

    def __repr__(self) -> str:
        return f"node {self.id}"
