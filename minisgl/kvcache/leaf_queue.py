"""The evictable leaves of a radix tree, in the order in which they were last used."""

from __future__ import annotations

from collections import Counter, OrderedDict
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from minisgl.errors import IntegrityError

if TYPE_CHECKING:
    from minisgl.kvcache.radix_node import RadixTreeNode


class LeafQueue:
    """A queue of the leaves that may be evicted, oldest `timestamp` first.

    A leaf that was used just now is newer than all others, so it belongs at the end of
    a plain queue: every step of that is O(1), however many leaves there are. Only a
    node that joins some time after its last use (its last child was evicted, or it was
    locked when its turn came) may belong further forward; it waits in a heap.

    A locked leaf keeps its place. If its turn comes it leaves the queue, and joins
    again when it is released. An entry of the heap does not move when its node is
    used: it then comes up too early, never too late, and is put right. No two stamps
    tie, since nodes with the same stamp lie on one path, and only its end is a leaf.
    """

    def __init__(self) -> None:
        self._in_order: OrderedDict[RadixTreeNode, None] = OrderedDict()
        self._newest = 0  # no stamp in _in_order is above this
        self._late: list[tuple[int, RadixTreeNode]] = []  # one entry per node at most

    def add(self, node: RadixTreeNode) -> None:
        """Take in a node that is an evictable leaf now, unless it is here already."""
        if node.is_late or node in self._in_order:
            return
        if node.timestamp >= self._newest:
            self._newest = node.timestamp
            self._in_order[node] = None
        else:
            node.is_late = True
            heappush(self._late, (node.timestamp, node))

    def refresh(self, node: RadixTreeNode) -> None:
        """`node` has just been used; if it is here, it is the newest now."""
        if node in self._in_order:
            self._in_order.move_to_end(node)
            self._newest = node.timestamp

    def discard(self, node: RadixTreeNode) -> None:
        """`node` is no leaf any more."""
        self._in_order.pop(node, None)

    def pop_oldest(self) -> RadixTreeNode:
        """Remove the evictable leaf that went unused for longest, and return it.

        There must be one.
        """
        while True:
            first = next(iter(self._in_order), None)
            if self._late and (not first or self._late[0][0] < first.timestamp):
                stamp, node = heappop(self._late)
                node.is_late = False
            else:
                node, _ = self._in_order.popitem(last=False)
                stamp = node.timestamp
            if node.is_evictable_leaf():
                if node.timestamp == stamp:
                    return node
                self.add(node)  # it was used after it joined the heap

    def check(self, leaves: set[RadixTreeNode]) -> None:
        """Raise IntegrityError unless exactly `leaves` are queued, and in order."""
        stamps = [node.timestamp for node in self._in_order]
        late = Counter(node for _, node in self._late)
        if stamps != sorted(stamps) or self._newest < max(stamps, default=0):
            raise IntegrityError(f"the queue of leaves is out of order: {stamps}")
        for node in self._in_order:
            if node.children or node.parent is None:
                raise IntegrityError(f"{node} is queued and is no leaf of the tree")
        for stamp, node in self._late:
            if late[node] > 1 or node in self._in_order:
                raise IntegrityError(f"{node} is queued twice")
            if node.is_evicted or not node.is_late or stamp > node.timestamp:
                raise IntegrityError(f"{node} has a wrong entry, stamped {stamp}")
        if any(self._late[(i - 1) // 2] > self._late[i] for i in range(1, len(late))):
            raise IntegrityError("the heap of late leaves is out of order")
        queued = {n for n in [*self._in_order, *late] if n.is_evictable_leaf()}
        if queued != leaves:
            missing, extra = list(leaves - queued), list(queued - leaves)
            raise IntegrityError(
                f"evictable leaves not queued: {missing}; queued for nothing: {extra}"
            )
