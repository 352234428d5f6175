"""Chats with shared instructions: what a tree with states reuses, by where they are.

No model runs: tokens and states are only counted.
"""

import random
from array import array

from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified import (
    FullComponent,
    MambaComponent,
    MatchPrefixParams,
    UnifiedRadixCache,
)

NUM_INSTRUCTIONS, INSTRUCTION_LEN = 4, 400
NUM_CHATS, NUM_TURNS, QUESTION_LEN, ANSWER_LEN = 24, 4, 40, 40
GRID = 64


class Counted:
    """Slots for states that nobody reads or writes."""

    def __init__(self, num_slots):
        self.free_slots = list(range(num_slots))

    def allocate(self):
        return self.free_slots.pop() if self.free_slots else None

    def free(self, slot):
        self.free_slots.append(slot)

    def copy(self, source, target): ...


class Request:
    """As the tree sees a request: tokens, a row of slots, a lock, states."""

    extra_key = None
    mamba_pool_idx = mamba_track_idx = None
    mamba_seqlen = mamba_last_track_seqlen = 0

    def write_row(self, start, slots):
        self.slots[start : start + len(slots)] = slots


class WholePath(MambaComponent):
    """All states on the way to the one that is used count as used."""

    def refresh_lru(self, node):
        path = []
        while node is not self.cache.root_node:
            path += [node] * self.node_has_component_data(node)
            node = node.parent
        self.lru_list.promote(path)


class Server:
    """One request after the other; `marks` says where to take checkpoints."""

    def __init__(self, num_states, marks, component_type):
        self.states, self.marks = Counted(num_states), marks
        self.component = component_type(self.states)
        full = FullComponent(lambda slots: None)  # slots for tokens never run out
        self.tree = UnifiedRadixCache(1, [full, self.component])
        self.next_slot = self.saved = self.known = self.num_missed = 0

    def serve(self, prompt, answer):
        tree, req = self.tree, Request()
        match = tree.match_prefix(MatchPrefixParams(RadixKey(prompt[:-1])))
        req.last_node = match.last_device_node
        req.lock = tree.inc_lock_ref(req.last_node)
        req.cache_protected_len = match.cached_len
        self.saved += match.cached_len
        self.known += match.full_hit_len
        self.num_missed += match.cached_len == 0 < match.full_hit_len
        req.slots = match.device_indices
        req.mamba_pool_idx = self.component.allocate_state()
        for mark in self.marks(match, len(prompt)):  # the prompt, in pieces
            req.mamba_track_idx = self.component.allocate_state()
            req.mamba_last_track_seqlen = mark
            self.compute(req, prompt[:mark])
            tree.cache_unfinished_req(req)
        self.compute(req, prompt)
        tree.cache_unfinished_req(req)
        self.compute(req, prompt + answer[:-1])
        tree.cache_finished_req(req)
        tree.check_integrity()

    def compute(self, req, tokens):
        num_new = len(tokens) - len(req.slots)
        req.slots += array("i", range(self.next_slot, self.next_slot + num_new))
        self.next_slot += num_new
        req.token_ids, req.mamba_seqlen = tokens, len(tokens)


def nowhere(match, prompt_len):
    return []


def everywhere(match, prompt_len):
    first = match.cached_len // GRID * GRID + GRID
    return range(first, prompt_len, GRID)


def where_it_parts(match, prompt_len):
    return [match.mamba_branching_seqlen] if match.mamba_branching_seqlen else []


def requests():
    """All chats take their turn, each time in a new order."""
    rng = random.Random(13)

    def text(length):
        return array("i", rng.choices(range(248_320), k=length))

    openings = [text(INSTRUCTION_LEN) for _ in range(NUM_INSTRUCTIONS)]
    chats = [openings[i % NUM_INSTRUCTIONS][:] for i in range(NUM_CHATS)]
    for _ in range(NUM_TURNS):
        for chat in rng.sample(chats, NUM_CHATS):
            chat.extend(text(QUESTION_LEN))
            answer = text(ANSWER_LEN)
            yield chat[:], answer
            chat.extend(answer)


TRAFFIC = list(requests())
TOTAL = sum(len(prompt) for prompt, _ in TRAFFIC)
POLICIES = {
    "A  where requests end": (nowhere, MambaComponent),
    f"B  and every {GRID} tokens": (everywhere, MambaComponent),
    "C  and where prompts part": (where_it_parts, MambaComponent),
    "C, the whole path refreshed": (where_it_parts, WholePath),
}
SIZES = (30, 60, 100, 1000)
print(f"{NUM_CHATS} chats of {NUM_TURNS} turns, {len(TRAFFIC)} requests")
print(f"their prompts begin with one of {NUM_INSTRUCTIONS} instructions", end=" ")
print(f"of {INSTRUCTION_LEN} tokens")
print(f"all prompts together: {TOTAL:,} tokens")


def percent(num_tokens):
    return f"{100 * num_tokens / TOTAL:.0f} %"


print("\nreused, by the states that there is room for:")
print(" " * 28 + "".join(f"{size:8,}" for size in SIZES))
missed = {}
for name, policy in POLICIES.items():
    servers = [Server(size, *policy) for size in SIZES]
    for server in servers:
        for prompt, answer in TRAFFIC:
            server.serve(prompt, answer)
    reused = "".join(f"{percent(server.saved):>8}" for server in servers)
    missed[name] = servers[0].num_missed
    most = servers[-1]
    num_kept = most.component.evictable_size
    print(f"{name:28}{reused}   in the end {num_kept} states")

print(f"\nas much KV is there, if all stays: {percent(most.known)}")
num_missed = missed["C  and where prompts part"]
print(f"C with {SIZES[0]} states: {num_missed} requests find KV, but no state")
