"""A childless node is taken for a leaf that may go, although a request reads it."""

from array import array

from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified import (
    ComponentType,
    DecLockRefParams,
    EvictParams,
    FullComponent,
    InsertParams,
    SWAComponent,
    UnifiedRadixCache,
)


class Childless(UnifiedRadixCache):
    def evict_node(self, node, trigger, tracker):
        is_leaf = not node.children  # the mistake: nobody asks for the locks
        priority = trigger.eviction_priority(is_leaf)
        for component in self.components:
            goes = component.eviction_priority(is_leaf) <= priority
            if goes and component.node_has_component_data(node):
                tracker[component.component_type] += component.evict_component(node)
        self._delete_dead_branch(node)


class Trusting(FullComponent):
    """As FullComponent, without the assertion that the node is not locked."""

    def evict_component(self, node):
        data = node.component_data[self.component_type]
        value, data.value = data.value, None
        self.protected_size -= len(value)
        self.free(value)
        return len(value)


class Window:
    """The window slots are somewhere else; here nobody looks at them."""

    def free(self, full_slots): ...


def serve(cache_type, full_type):
    free = array("i", range(8))
    window = SWAComponent(Window(), sliding_window_size=2)
    cache = cache_type(1, [full_type(free.extend), window])
    row, free[:4] = free[:4], array("i")
    result = cache.insert(InsertParams(RadixKey([1, 2, 3, 4]), row))
    lock = cache.inc_lock_ref(result.last_node)
    print(f"a reads the slots {row.tolist()}")
    early = DecLockRefParams(lock, ComponentType.SWA)
    cache.dec_lock_ref(lock.node, early)  # a has gone on, these left its window
    cache.evict(EvictParams(swa_num_tokens=4))
    cache.pretty_print()
    again = sorted(set(row) & set(free))
    print(f"free while a reads them: {again if again else 'none'}")


print('"childless" instead of is_evictable_leaf():')
serve(Childless, Trusting)
print("\nthe same, and the assertion is left in:")
try:
    serve(Childless, FullComponent)
except AssertionError as error:
    print(f"AssertionError: {error}")
print("\nas it is:")
serve(UnifiedRadixCache, FullComponent)
