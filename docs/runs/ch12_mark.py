"""A node is split inside a locked window, and the mark does not move up."""

from array import array

from minisgl.errors import IntegrityError
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified import (
    ComponentType,
    FullComponent,
    InsertParams,
    MatchPrefixParams,
    SWAComponent,
    UnifiedRadixCache,
)

FULL, SWA, _ = ComponentType


class Window:
    """The window slots are somewhere else; here nobody looks at them."""

    def free(self, full_slots): ...


class MarkStays(SWAComponent):
    def redistribute_on_node_split(self, upper, lower):
        mark = lower.component_data[SWA].metadata
        super().redistribute_on_node_split(upper, lower)
        upper.component_data[SWA].metadata = None  # the mistake
        lower.component_data[SWA].metadata = mark


def show(swa):
    tree = UnifiedRadixCache(1, [FullComponent([].extend), swa])
    for start, end in (0, 4), (4, 8), (8, 10):
        slots = array("i", range(end))
        tree.insert(InsertParams(RadixKey(range(end)), slots, start))
    match = tree.match_prefix(MatchPrefixParams(RadixKey(range(10))))
    lock = tree.inc_lock_ref(match.last_device_node)
    tree.match_prefix(MatchPrefixParams(RadixKey([0, 1, 2, 3, 4, 99])))  # splits
    tree.dec_lock_ref(lock.node, lock.to_dec_params())
    tree.pretty_print()
    print(f"window tokens that can go: {tree.evictable_size(SWA)} of 10")
    try:
        tree.check_integrity()
    except IntegrityError as error:
        print(f"IntegrityError: {error}")


print("the mark stays with the lower half; the lock was released:")
show(MarkStays(Window(), 6))
print("\nas it is:")
show(SWAComponent(Window(), 6))
