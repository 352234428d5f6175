"""Chats with a model that has two kinds of layers: one radix tree, two, or components.

It has the layers of Gemma 3 270M. No model runs: only slots are counted.
"""

import random
from array import array

from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.radix_tree import RadixTree
from minisgl.kvcache.unified import (
    EvictParams,
    FullComponent,
    InsertParams,
    MatchPrefixParams,
    SWAComponent,
    UnifiedRadixCache,
)

LAYER_BYTES = 2 * 1 * 256 * 4  # key and value, one head of 256 numbers, float32
FULL_LAYERS, WINDOW_LAYERS, WINDOW = 3, 15, 512
MIB = 2**20
MEMORY = 1024 * MIB
NUM_CHATS, NUM_TURNS, TURN_LEN = 32, 12, 150


def prompts():
    """All chats take their turn, twelve times, each time in a new order."""
    rng = random.Random(11)
    chats = [array("i") for _ in range(NUM_CHATS)]
    for _ in range(NUM_TURNS):
        for chat in rng.sample(chats, NUM_CHATS):
            chat.extend(rng.choices(range(32_000), k=TURN_LEN))
            yield chat[:]


class Radix:
    """The radix tree of chapter 8, with a pool of its own."""

    def __init__(self, num_slots):
        self.tree, self.free = RadixTree(), array("i", range(num_slots))

    def hit(self, tokens):
        return self.tree.match_prefix(RadixKey(tokens)).cached_len

    def serve(self, tokens):
        """Match, lock, evict what is missing, insert, unlock. Returns the hit."""
        match = self.tree.match_prefix(RadixKey(tokens[:-1]))
        self.tree.lock(match)
        num_new = len(tokens) - match.cached_len
        self.free += self.tree.evict(max(0, num_new - len(self.free)))
        new, self.free = self.free[:num_new], self.free[num_new:]
        self.tree.insert_prefix(RadixKey(tokens), match.matched_slots() + new)
        self.tree.unlock(match)
        return match.cached_len


class WindowPool:
    """Which Full slots have a window slot too."""

    def __init__(self):
        self.live = set()

    def free(self, full_slots):
        self.live.difference_update(full_slots)

    def move(self, source, target):
        self.free(source)
        self.live.update(target)


class Unified:
    """One tree with two components, and a pool for each."""

    def __init__(self, num_slots, num_window_slots):
        self.free = array("i", range(num_slots))
        self.num_window_slots = num_window_slots
        self.window = WindowPool()
        self.swa = SWAComponent(self.window, WINDOW)
        self.tree = UnifiedRadixCache(1, [FullComponent(self.give_back), self.swa])

    def give_back(self, slots):
        self.free += slots
        self.window.free(slots)

    def serve(self, tokens):
        """As above; what has left the window is freed before the insert."""
        match = self.tree.match_prefix(MatchPrefixParams(RadixKey(tokens[:-1])))
        lock = self.tree.inc_lock_ref(match.last_device_node)
        cached_len, num_new = match.cached_len, len(tokens) - match.cached_len
        missing = num_new - len(self.free)
        missing_window = num_new + len(self.window.live) - self.num_window_slots
        self.tree.evict(EvictParams(missing, missing_window))
        new, self.free = self.free[:num_new], self.free[num_new:]
        self.window.live.update(new)
        assert len(new) == num_new and len(self.window.live) <= self.num_window_slots
        slots = match.device_indices + new
        passed_len = max(cached_len, self.swa.max_evicted_seqlen(len(tokens)))
        self.window.free(slots[cached_len:passed_len])
        self.tree.insert(InsertParams(RadixKey(tokens), slots, cached_len, passed_len))
        self.tree.dec_lock_ref(lock.node, lock.to_dec_params())
        return cached_len


TOTAL = sum(map(len, prompts()))
CHATS = list(prompts())[-NUM_CHATS:]  # as they are in the end


def percent(hits):
    return f"{100 * sum(hits) / TOTAL:.0f} % of the prompts' tokens were cached"


print(f"{NUM_CHATS} chats of {NUM_TURNS} turns, {TURN_LEN} tokens each, in 1 GiB")

print(f"\nA. one radix tree, {FULL_LAYERS + WINDOW_LAYERS} layers in a slot")
one = Radix(MEMORY // ((FULL_LAYERS + WINDOW_LAYERS) * LAYER_BYTES))
num_slots = len(one.free)
hits = map(one.serve, prompts())
print(f"   {num_slots:,} slots; {percent(hits)}")
passed = sum(max(0, one.hit(chat) - WINDOW) for chat in CHATS)
print(
    f"   at the end {passed * WINDOW_LAYERS * LAYER_BYTES // MIB} MiB of it are window "
    f"layers' KV, more than {WINDOW} tokens back"
)

full_slots = 48_000
window_slots = MEMORY - full_slots * FULL_LAYERS * LAYER_BYTES
window_slots //= WINDOW_LAYERS * LAYER_BYTES
print(f"\nB. two radix trees: {FULL_LAYERS} full layers, {WINDOW_LAYERS} window layers")
full, window = Radix(full_slots), Radix(window_slots)
hits = [min(full.serve(tokens), window.serve(tokens)) for tokens in prompts()]
print(f"   {full_slots:,} and {window_slots:,} slots; {percent(hits)}")
held = sum(full.hit(chat) for chat in CHATS)
alone = held - sum(min(full.hit(chat), window.hit(chat)) for chat in CHATS)
print(
    f"   at the end the first holds {held:,} tokens; the second lacks {alone:,} of them"
)

print("\nC. one tree with two components, the same two pools")
unified = Unified(full_slots, window_slots)
hits = [unified.serve(tokens) for tokens in prompts()]
unified.tree.check_integrity()
print(f"   {full_slots:,} and {window_slots:,} slots; {percent(hits)}")

print("\nIf nothing ever had to go, it would be", end=" ")
best = TOTAL - NUM_CHATS * NUM_TURNS * TURN_LEN
print(f"{100 * best / TOTAL:.0f} %")
