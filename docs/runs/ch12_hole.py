"""Live tokens on two sides of a tombstone are added up, as if they were a window."""

from array import array

from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.swa_mapping import NO_PAGE, SWAMapping
from minisgl.kvcache.unified import (
    FullComponent,
    InsertParams,
    MatchPrefixParams,
    SWAComponent,
    UnifiedRadixCache,
)

WINDOW = 4
TOKENS = array("i", range(10))


class AddsUp(SWAComponent):
    def create_match_validator(self):
        def has_live_tokens(node):
            num_live = 0
            while node is not self.cache.root_node:
                num_live += len(node.value(self.component_type) or ())  # the mistake
                node = node.parent
            return num_live >= self.sliding_window_size

        return has_live_tokens


def show(component_type):
    mapping = SWAMapping(10, 10, 1)
    swa = component_type(mapping, WINDOW)
    tree = UnifiedRadixCache(1, [FullComponent([].extend), swa])
    slots = array("i", range(10))
    mapping.allocate(slots)
    for end, is_live in (2, True), (4, False), (6, True), (8, False), (10, True):
        if not is_live:
            mapping.free(slots[end - 2 : end])
        frontier = 0 if is_live else end
        key = RadixKey(TOKENS[:end])
        tree.insert(InsertParams(key, slots[:end], end - 2, frontier))
    cached_len = tree.match_prefix(MatchPrefixParams(RadixKey(TOKENS))).cached_len
    first = max(cached_len - WINDOW + 1, 0)
    found = mapping.swa_pages(range(first, cached_len))
    slots = ["gone" if slot == NO_PAGE else str(slot) for slot in found]
    print(f"match {cached_len}; the next token sees {first} to {cached_len}")
    print(f"window slots of {first} to {cached_len - 1}: {', '.join(slots)}")


print("live tokens added up:")
show(AddsUp)
print("\nas it is:")
show(SWAComponent)
