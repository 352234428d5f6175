"""Slots that remember for which tokens they were computed, and a model of flags."""

from __future__ import annotations

import random
from array import array
from itertools import islice

from grading import Check, NotApplicable, draw_tree, test
from minisgl.kvcache.radix_key import RadixKey, unpack
from minisgl.kvcache.unified.full_component import FullComponent
from minisgl.kvcache.unified.node import ComponentType
from minisgl.kvcache.unified.params import (
    EvictParams,
    InsertParams,
    MatchPrefixParams,
)
from minisgl.kvcache.unified.unified_radix_cache import UnifiedRadixCache

FULL, SWA = ComponentType.FULL, ComponentType.SWA


class Pools:
    """Both pools: what each Full slot holds, and the window slot paired with it.

    A slot holds KV of a token that knows all tokens before it, so its content is the
    whole prefix. Numbers are never used twice.
    """

    def __init__(self) -> None:
        self.full: dict[int, tuple[int, ...]] = {}
        self.window: dict[int, tuple[int, ...]] = {}  # by Full slot
        self.next_slot = 0

    def compute(self, tokens, start) -> array:
        """KV of the tokens from `start` on, in new slots of both pools."""
        slots = array("i", range(self.next_slot, self.next_slot + len(tokens) - start))
        self.next_slot += len(slots)
        for end, slot in enumerate(slots, start + 1):
            self.full[slot] = self.window[slot] = tuple(tokens[:end])
        return slots

    def free_full(self, slots) -> None:
        for slot in slots:
            assert slot in self.full, f"Full slot {slot} is freed twice"
            del self.full[slot]
        self.free(slots)

    def free(self, full_slots) -> None:
        for slot in full_slots:
            self.window.pop(slot, None)

    def move(self, source, target) -> None:
        for old, new in zip(source, target, strict=True):
            assert old in self.window, f"Full slot {old} has no window slot to move"
            assert new not in self.window, f"Full slot {new} has a window slot already"
            self.window[new] = self.window.pop(old)


class World:
    """The answer's component, and requests that run to their end at once."""

    def __init__(self, answer, window: int) -> None:
        self.pools, self.window = Pools(), window
        self.component = answer.SWAComponent(self.pools, window)
        full = FullComponent(self.pools.free_full)
        self.cache = UnifiedRadixCache(1, [full, self.component])
        self.receipts = {}

    def request(self, tokens, evicted=0):
        """Match, compute the rest, free window KV below `evicted`, store.

        Returns how many tokens were reused.
        """
        found = self._match(tokens)
        slots = self.pools.compute(tokens, found.cached_len)
        self.pools.free(slots[: max(evicted - found.cached_len, 0)])
        slots = found.device_indices + slots
        params = InsertParams(RadixKey(tokens), slots, found.cached_len, evicted)
        self.cache.insert(params)
        return found.cached_len

    def match(self, tokens):
        """Usable tokens, and the places where a request would read something else."""
        found = self._match(tokens)
        wrong = []
        for at, slot in enumerate(found.device_indices):
            content = tuple(tokens[: at + 1])
            if self.pools.full.get(slot) != content:
                wrong.append(f"Full KV of token {at}")
            in_window = at >= found.cached_len - self.window
            if in_window and self.pools.window.get(slot) != content:
                wrong.append(f"window KV of token {at}")
        return {"usable": found.cached_len, "wrong": wrong}

    def lock(self, name, tokens):
        found = self._match(tokens)
        self.receipts[name] = self.cache.inc_lock_ref(found.last_device_node)
        return found.cached_len

    def release(self, name):
        receipt = self.receipts.pop(name)
        self.cache.dec_lock_ref(receipt.node, receipt.to_dec_params())

    def lose_window(self):
        """All unlocked window KV is evicted, and the nodes stay."""
        for node in list(self.cache.nodes()):
            data = node.component_data[SWA]
            if data.value is not None and not data.lock_ref:
                self.component.evict_component(node)

    def evict_all(self):
        return self.cache.evict(EvictParams(10**6)).num_tokens_evicted

    def rows(self):
        """Path of a node -> [tokens above it, window KV, how much is there, locks]."""
        rows = {}
        for node in islice(self.cache.nodes(), 60):
            path, data = _path(node), node.component_data[SWA]
            kind = "tombstone" if data.value is None else "live"
            num_there = sum(slot in self.pools.window for slot in node.value(FULL))
            rows[path] = [len(path) - len(node), kind, num_there, data.lock_ref]
        return dict(sorted(rows.items()))

    def state(self):
        return {
            "nodes": self.rows(),
            "Full": (self.cache.evictable_size(), self.cache.protected_size()),
            "window": (self.component.evictable_size, self.component.protected_size),
            "window slots in use": len(self.pools.window),
        }

    def slots(self, tokens):
        return self._match(tokens).device_indices.tolist()

    def _match(self, tokens):
        return self.cache.match_prefix(MatchPrefixParams(RadixKey(tokens)))


def _path(node) -> tuple[int, ...]:
    keys = []
    while node.parent is not None:
        keys.append(node.key)
        node = node.parent
    return tuple(unpack(b"".join(reversed(keys))))


class Model:
    """Prefixes with Full KV, those with window KV, and those at which a node ends."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.full, self.live, self.ends = set(), set(), set()
        self.locks: dict[str, tuple[tuple, set]] = {}  # Full prefix, window prefixes

    def request(self, tokens, evicted=0):
        tokens = tuple(tokens)
        reused, matched = self._usable(tokens), self._walk(tokens)
        for start, end in self._nodes(tokens[:matched]):
            live_from = max(start, evicted)
            if end > reused and tokens[:end] not in self.live and live_from < end:
                self._store(tokens, live_from, end)
        if matched < len(tokens):
            self.full |= {tokens[:end] for end in range(matched + 1, len(tokens) + 1)}
            self.ends.add(tokens)
            if evicted < len(tokens):
                self._store(tokens, max(matched, evicted), len(tokens))
        start, end = self._nodes(tokens)[-1]
        if tokens in self.live and end - start > self.window:
            self.ends.add(tokens[: end - self.window])
        return reused

    def match(self, tokens):
        return {"usable": self._usable(tuple(tokens)), "wrong": []}

    def lock(self, name, tokens):
        if name in self.locks:
            raise NotApplicable
        usable = self._usable(tuple(tokens))
        prefix, covered = tuple(tokens[:usable]), set()
        for start, end in reversed(self._nodes(prefix)):
            if len(covered) < self.window:
                covered |= {prefix[:at] for at in range(start + 1, end + 1)}
        self.locks[name] = (prefix, covered)
        return usable

    def release(self, name):
        if name not in self.locks:
            raise NotApplicable
        del self.locks[name]

    def lose_window(self):
        self.live = {prefix for prefix in self.live if self._num_locks(prefix)}

    def evict_all(self):
        gone = {prefix for prefix in self.full if not self._is_full_locked(prefix)}
        self.full -= gone
        self.live -= gone
        self.ends -= gone
        return len(gone)

    def rows(self):
        rows = {}
        for path in sorted(self.ends):
            start, end = self._nodes(path)[-1]
            is_live = path in self.live
            kind, num_there = ("live", end - start) if is_live else ("tombstone", 0)
            rows[path] = [start, kind, num_there, self._num_locks(path)]
        return rows

    def state(self):
        full_locked = sum(map(self._is_full_locked, self.full))
        locked = sum(1 for prefix in self.live if self._num_locks(prefix))
        return {
            "nodes": self.rows(),
            "Full": (len(self.full) - full_locked, full_locked),
            "window": (len(self.live) - locked, locked),
            "window slots in use": len(self.live),
        }

    def _walk(self, tokens):
        matched = max(
            n for n in range(len(tokens) + 1) if not n or tokens[:n] in self.full
        )
        if matched:
            self.ends.add(tokens[:matched])
        return matched

    def _usable(self, tokens):
        ends = [end for _, end in self._nodes(tokens[: self._walk(tokens)])]
        for end in reversed(ends):
            first = max(end - self.window, 0)
            if all(tokens[:at] in self.live for at in range(first + 1, end + 1)):
                return end
        return 0

    def _nodes(self, path):
        """The nodes of a path, as start and end."""
        ends = [n for n in range(1, len(path) + 1) if path[:n] in self.ends]
        return list(zip([0, *ends], ends, strict=False))

    def _store(self, tokens, start, end):
        if start:
            self.ends.add(tokens[:start])
        self.live |= {tokens[:at] for at in range(start + 1, end + 1)}

    def _num_locks(self, prefix):
        return sum(1 for _, covered in self.locks.values() if prefix in covered)

    def _is_full_locked(self, prefix):
        return any(locked[: len(prefix)] == prefix for locked, _ in self.locks.values())


def draw(world) -> str:
    state = world.state()
    head = f"window slots in use {state['window slots in use']}, window sizes "
    return f"{head}{state['window']}\n{draw_rows(state['nodes'])}"


def draw_rows(rows) -> str:
    def children(path):
        return [p for p, row in rows.items() if p[: row[0]] == path and p != path]

    def label(path):
        if not path:
            return "root"
        start, kind, num_there, locks = rows[path]
        return (
            f"{list(path[start:])}  {kind}, window KV of {num_there} tokens is there, "
            f"window locks {locks}"
        )

    return draw_tree((), children, label)


TRACE = "window 2; A stores [1,2,3,4] without window KV for [1,2]; B stores [1,2,7]"


def trace(answer) -> World:
    world = World(answer, 2)
    world.request([1, 2, 3, 4], 2)
    world.request([1, 2, 7])
    return world


@test("the trace: C reads window KV that is there", example=True)
def _(answer, check: Check):
    check.equal(
        trace(answer).match([1, 2, 8]),
        {"usable": 2, "wrong": []},
        call=f"{TRACE}; match [1,2,8], and read what was found",
        look="B's window slots go when its Full slots are freed, unless they are "
        "paired with others before; if nothing is usable: B has live window KV for "
        "[1,2], and the tombstone can be healed with it",
    )


@test("the tree keeps its Full slots", example=True)
def _(answer, check: Check):
    world = World(answer, 2)
    world.request([1, 2, 3, 4], 2)
    world.lock("A", [1, 2, 3, 4])
    world.request([1, 2, 7])
    check.equal(
        world.slots([1, 2, 3, 4]),
        [0, 1, 2, 3],
        call=f"{TRACE}, while A is locked; the Full slots of [1,2,3,4]",
        look="a node's Full slots are never replaced: requests may be reading them",
    )
    check.equal(
        world.match([1, 2, 3, 4]),
        {"usable": 4, "wrong": []},
        call=f"{TRACE}, while A is locked; what A reads",
        look="a node's Full slots are never replaced: requests may be reading them",
    )


@test("what was healed can be evicted again", example=True)
def _(answer, check: Check):
    world = trace(answer)
    check.equal(
        len(world.pools.window),
        5,
        call=f"{TRACE}; window slots in use",
        look="one for each token of [1,2], [3,4] and [7]",
    )
    world.lose_window()
    check.equal(
        len(world.pools.window),
        0,
        call=f"{TRACE}; evict all window KV; window slots in use",
        look="pairs are found through the node's own Full slots: evict_component "
        "frees what `value` names",
    )
    check.equal(
        world.match([1, 2, 8]),
        {"usable": 0, "wrong": []},
        call=f"{TRACE}; evict all window KV; match [1,2,8]",
        look="all of it is tombstones now",
    )


@test("heals as much as the newcomer has")
def _(answer, check: Check):
    tokens = list(range(30))
    world = World(answer, 10)
    world.request(tokens, 30)
    world.request(tokens, 10)
    check.equal(
        world.match(tokens),
        {"usable": 30, "wrong": []},
        call="window 10; a tombstone of 30 tokens; the same is stored with window KV "
        "of [10, 30); match 30 tokens, and read them",
        look="the last 20 tokens are live again",
    )
    check.equal(
        world.match([*tokens[:20], 99]),
        {"usable": 20, "wrong": []},
        call="the same; match 20 of the tokens, and read them",
        look="the part before token 10 stays a tombstone, as a node of its own",
    )
    check.equal(
        world.match([*tokens[:19], 99]),
        {"usable": 0, "wrong": []},
        call="the same; match 19 of the tokens",
        look="the part before token 10 stays a tombstone, as a node of its own",
    )


@test("a prefix that was reused is not healed with itself")
def _(answer, check: Check):
    world = World(answer, 2)
    world.request([1, 2, 3, 4], 2)
    check.equal(
        world.request([1, 2, 3, 4, 5]),
        4,
        call="window 2; A stores [1,2,3,4] without window KV for [1,2]; B asks for "
        "[1,2,3,4,5]; tokens reused",
        look="[3,4] is the last window",
    )
    check.equal(
        world.rows(),
        {
            (1, 2): [0, "tombstone", 0, 0],
            (1, 2, 3, 4): [2, "live", 2, 0],
            (1, 2, 3, 4, 5): [4, "live", 1, 0],
        },
        call="then B stores [1,2,3,4,5]",
        look="below prev_prefix_len B has the tree's own slots, and nothing to give",
        draw=draw_rows,
    )


@test("what the newcomer has from the tree heals nothing")
def _(answer, check: Check):
    world = World(answer, 2)
    world.request([1, 2, 3, 4], 4)
    slots = array("i", [0, 1]) + world.pools.compute([1, 2, 3, 4], 2)
    world.cache.insert(InsertParams(RadixKey([1, 2, 3, 4]), slots, 2))
    check.equal(
        world.rows(),
        {(1, 2): [0, "tombstone", 0, 0], (1, 2, 3, 4): [2, "live", 2, 0]},
        call="window 2; [1,2,3,4] is a tombstone; insert it with slots 0, 1 of the "
        "tree and two new ones, prev_prefix_len 2",
        look="below prev_prefix_len the slots are the tree's own",
        draw=draw_rows,
    )


@test("of two halves the upper one is the older")
def _(answer, check: Check):
    world = World(answer, 2)
    world.request([1, 2, 3, 4, 5, 6], 2)
    world.match([1, 2, 3, 9])
    world.cache.evict(EvictParams(0, 1))
    check.equal(
        world.rows(),
        {
            (1, 2): [0, "tombstone", 0, 0],
            (1, 2, 3): [2, "tombstone", 0, 0],
            (1, 2, 3, 4): [3, "live", 1, 0],
            (1, 2, 3, 4, 5, 6): [4, "live", 2, 0],
        },
        call="window 2; store [1,...,6] without window KV for [1,2]; a match that "
        "finds nothing usable cuts [3,4]; evict window KV of one token",
        look="the upper half is evicted first, or the lower one is of no use: this "
        "hook was right",
        draw=draw_rows,
    )


@test("the last window is a node of its own")
def _(answer, check: Check):
    world = World(answer, 3)
    world.request([1, 2, 3, 4, 5, 6, 7, 8], 2)
    check.equal(
        world.rows(),
        {
            (1, 2): [0, "tombstone", 0, 0],
            (1, 2, 3, 4, 5): [2, "live", 3, 0],
            (1, 2, 3, 4, 5, 6, 7, 8): [5, "live", 3, 0],
        },
        call="window 3; store [1,...,8] without window KV for [1,2]",
        look="a lock then pins three tokens, not six: this hook was right",
        draw=draw_rows,
    )


@test("locks and marks survive a cut")
def _(answer, check: Check):
    world = World(answer, 4)
    world.request([1, 2, 3, 4])
    world.request([1, 2, 3, 4, 5, 6, 7, 8])
    world.lock("R", [1, 2, 3, 4, 5, 6, 7, 8])
    world.match([1, 2, 3, 4, 5, 9])
    world.match([1, 9])
    world.release("R")
    check.equal(
        world.state()["window"],
        (8, 0),
        call="window 4; [1,2,3,4] and [5,6,7,8] below it are live; lock the end; cut "
        "both nodes; release; evictable and protected size",
        look="both halves keep the locks, and the mark moves to the upper half: this "
        "hook was right",
    )


@test("agrees with the model over many requests")
def _(answer, check: Check):
    for seed, window in (1, 1), (2, 2), (3, 3), (4, 3), (5, 5):
        check.operations(
            _operations(random.Random(seed), 60),
            expected=lambda window=window: Model(window),
            actual=lambda window=window: World(answer, window),
            look=f"window {window}: follow the slots of the last node, and who frees "
            "them",
            draw=draw,
        )


def _operations(rng: random.Random, count: int) -> list[tuple]:
    operations, held = [], []
    for step in range(count):
        kind = rng.choice(
            ["request"] * 4 + ["match"] * 3 + ["lock", "release", "lose_window"]
        )
        tokens = [rng.choice((1, 1, 1, 2)) for _ in range(rng.randint(1, 9))]
        if kind == "request":
            operations.append(("request", tokens, rng.randint(0, len(tokens))))
        elif kind == "match":
            operations.append(("match", tokens))
        elif kind == "lock":
            held.append(f"R{step}")
            operations.append(("lock", held[-1], tokens))
        elif kind == "lose_window":
            operations.append(("lose_window",))
        elif held:
            operations.append(("release", held.pop(rng.randrange(len(held)))))
        if step % 20 == 19:
            operations.append(("evict_all",))
    return operations
