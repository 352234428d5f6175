"""A chain of nodes and its pools, against a model that knows tokens only."""

from __future__ import annotations

import random
from array import array

from grading import Check, NotApplicable, draw_table, test
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified import (
    ComponentType,
    FullComponent,
    InsertParams,
    MatchPrefixParams,
    UnifiedRadixCache,
)

FULL, SWA = ComponentType.FULL, ComponentType.SWA
OTHER = 9999  # a token that the chain does not have


class Chain:
    """Tokens 0, 1, 2, … in a real tree; only the component is graded.

    Full slots are handed out in order, from 0 on. A Full slot s that is given to a
    request comes with the window slot 1000 + s.
    """

    def __init__(self, answer, window: int, page_size: int = 1) -> None:
        self.pairs: dict[int, int] = {}  # Full slot -> window slot
        self.freed: list[int] = []
        self.faults: list[str] = []
        self.next_slot = 0
        self.component = answer.SWAComponent(self, window)
        self.cache = UnifiedRadixCache(
            page_size, [FullComponent(self._free_full), self.component]
        )

    # the window pool, as the component sees it

    def move(self, source, target) -> None:
        if len(source) != len(target):
            self.faults.append(f"{len(source)} slots moved to {len(target)}")
        for old, new in zip(source, target, strict=False):
            if old not in self.pairs:
                self.faults.append(f"Full slot {old} has no window slot to move")
            elif new in self.pairs:
                self.faults.append(f"Full slot {new} has a window slot already")
            else:
                self.pairs[new] = self.pairs.pop(old)

    def free(self, full_slots) -> None:
        for slot in full_slots:
            self.pairs.pop(slot, None)

    def _free_full(self, full_slots) -> None:
        self.freed += full_slots
        self.free(full_slots)

    # operations

    def insert(self, length: int, dead: int, own: int = 0) -> list[int]:
        """Insert a prefix that a request computed from token `own` on.

        It freed its window KV below token `dead`. Returns the Full slots freed.
        """
        cached = [slot for node in self.cache.nodes() for slot in node.value(FULL)]
        new = range(self.next_slot, self.next_slot + length - own)
        self.next_slot = new.stop
        slots = array("i", [*cached[:own], *new])
        for slot in slots[max(own, dead) :]:
            self.pairs[slot] = 1000 + slot
        before = len(self.freed)
        self.cache.insert(InsertParams(RadixKey(range(length)), slots, own, dead))
        return self.freed[before:]

    def share(self, num_tokens: int) -> int:
        """Another prompt shares so many tokens; how many of them can it use?"""
        key = RadixKey([*range(num_tokens), OTHER])
        return self.cache.match_prefix(MatchPrefixParams(key)).cached_len

    def bury(self, start: int) -> None:
        """Evict the window KV of the node that begins at a token."""
        for first, node in self._nodes():
            if first == start:
                self.component.evict_component(node)

    # views

    def _nodes(self):
        start = 0
        for node in self.cache.nodes():
            yield start, node
            start += len(node)

    def rows(self) -> list[tuple[str, str, str]]:
        """For each node its tokens, Full slots, and the window slots they lead to."""
        rows = []
        for start, node in self._nodes():
            value = node.value(SWA)
            window = value and [self.pairs.get(slot) for slot in value]
            rows.append(_row(start, start + len(node), node.value(FULL), window))
        return rows

    def sizes(self) -> tuple[int, int]:
        return self.component.evictable_size, self.component.protected_size

    def num_listed(self) -> int:
        return len(list(self.component.lru_list))

    def state(self):
        return {
            "nodes": self.rows(),
            "sizes": self.sizes(),
            "window pool": sorted(self.pairs.items()),
            "faults": self.faults,
        }


def _row(start: int, end: int, full, window) -> tuple[str, str, str]:
    if window is None:
        shown = "tombstone"
    elif None in window:
        shown = f"{window.count(None)} of {len(window)} missing"
    else:
        shown = _slots(window)
    return f"[{start}, {end})", _slots(full), shown


def _slots(slots) -> str:
    slots = list(slots)
    if len(slots) > 1 and slots == [*range(slots[0], slots[-1] + 1)]:
        return f"{slots[0]} to {slots[-1]}"
    return " ".join(map(str, slots))


class Model:
    """For each token its Full slot and its window slot, and where nodes begin."""

    def __init__(self, window: int) -> None:
        self.window_len = window
        self.full: list[int] = []
        self.window: list[int | None] = []
        self.begins: set[int] = set()
        self.next_slot = 0

    def insert(self, length: int, dead: int, own: int = 0) -> list[int]:
        cached_len = min(len(self.full), length)
        if own > cached_len:
            raise NotApplicable
        given = self.full[:own]
        given += range(self.next_slot, self.next_slot + length - own)
        self.next_slot += length - own
        live = range(max(own, dead), length)
        self._cut(length)
        for start, end in self._spans():
            if end <= cached_len and self.window[start] is None:
                healed = [token for token in range(start, end) if token in live]
                self._cut(*healed[:1])
                for token in healed:
                    self.window[token] = 1000 + given[token]
        if length > cached_len:
            self.begins.add(cached_len)
            self.full += given[cached_len:]
            self.window += [
                1000 + given[token] if token in live else None
                for token in range(cached_len, length)
            ]
            if dead > cached_len:
                self._cut(dead)
        start = max(begin for begin in self.begins if begin < length)
        if self.window[start] is not None and length - start > self.window_len:
            self._cut(length - self.window_len)
        return given[own:cached_len]

    def share(self, num_tokens: int) -> int:
        self._cut(num_tokens)
        ends = [end for _, end in self._spans() if end <= num_tokens]
        for end in reversed(ends):
            if None not in self.window[max(end - self.window_len, 0) : end]:
                return end
        return 0

    def bury(self, start: int) -> None:
        if start not in self.begins or self.window[start] is None:
            raise NotApplicable
        end = min(end for _, end in self._spans() if end > start)
        self.window[start:end] = [None] * (end - start)

    def _cut(self, *tokens: int) -> None:
        self.begins.update(token for token in tokens if token < len(self.full))

    def _spans(self) -> list[tuple[int, int]]:
        starts = sorted(self.begins)
        return list(zip(starts, [*starts[1:], len(self.full)], strict=False))

    def state(self):
        pairs = dict(zip(self.full, self.window, strict=True))
        pairs = {full: window for full, window in pairs.items() if window is not None}
        return {
            "nodes": [
                _row(
                    start,
                    end,
                    self.full[start:end],
                    self.window[start:end] if self.window[start] is not None else None,
                )
                for start, end in self._spans()
            ],
            "sizes": (len(pairs), 0),
            "window pool": sorted(pairs.items()),
            "faults": [],
        }


def draw_rows(rows) -> str:
    return draw_table(["tokens", "Full slots", "window slots"], rows)


def draw(world) -> str:
    return draw_rows(world.state()["nodes"])


def nodes(*spans: tuple[int, int, str], newcomer: int) -> list[tuple[str, str, str]]:
    """Rows of (start, end, kind), kind one of tombstone, live and healed.

    Token i of the tree is in Full slot i, and in slot `newcomer` + i of the newcomer.
    """
    first_window = {"live": 1000, "healed": 1000 + newcomer}
    return [
        _row(
            start,
            end,
            range(start, end),
            [first_window[kind] + i for i in range(start, end)]
            if kind in first_window
            else None,
        )
        for start, end, kind in spans
    ]


def check_nodes(check: Check, chain: Chain, expected: list[tuple], call: str) -> None:
    found = chain.rows()
    check.equal(found, expected, call=call, look=_why(found, expected), draw=draw_rows)
    check.equal(
        chain.faults,
        [],
        call=f"{call}: what went wrong in mapping.move",
        look="only slots that have a window slot can give it away, to ones that have "
        "none",
    )


def _why(found: list[tuple], expected: list[tuple]) -> str:
    has_same_cuts = [row[0] for row in found] == [row[0] for row in expected]
    full, right = [{row[1] for row in rows} for rows in (found, expected)]
    if has_same_cuts and full != right:
        return (
            "the tree keeps its Full slots, a request may be reading them; the "
            "newcomer's are freed after this call"
        )
    if any("missing" in row[2] for row in found):
        if has_same_cuts and all(row[2] != "tombstone" for row in expected):
            return (
                "its slots must be paired with the newcomer's window slots, which are "
                "freed with the newcomer's Full slots otherwise"
            )
        return (
            "the newcomer has no window KV there either: below `swa_evicted_seqlen` "
            "and `prev_prefix_len` a tombstone stays one"
        )
    if not has_same_cuts:
        return (
            "where the newcomer's window KV begins inside the node, cut the node there "
            "and heal the lower part"
        )
    if found != expected and "tombstone" in [row[2] for row in found]:
        return "what the tree lacks here, the newcomer has: heal the node"
    return "token i of the newcomer is `params.value[i]`, and has its window KV"


@test("the newcomer's window KV heals a tombstone", example=True)
def _(answer, check: Check):
    chain = Chain(answer, window=4)
    chain.insert(4, dead=4)
    call = "a tombstone [0, 4) in Full slots 0 to 3; insert the same tokens in 4 to 7"
    freed = chain.insert(4, dead=0)
    check_nodes(check, chain, nodes((0, 4, "healed"), newcomer=4), call)
    check.equal(freed, [4, 5, 6, 7], call=f"{call}: Full slots freed", look="each once")
    check.equal(
        (chain.sizes(), chain.num_listed()),
        ((4, 0), 1),
        call=f"{call}: (evictable_size, protected_size), and nodes in lru_list",
        look="healed tokens count, and can be evicted again; `_set_value` sees to both",
    )
    check.equal(chain.share(4), 4, call=f"{call}: match", look="all can be reused")


@test("a node that is partly in the window is cut", example=True)
def _(answer, check: Check):
    chain = Chain(answer, window=10)
    chain.insert(30, dead=30)
    chain.insert(30, dead=10)
    call = (
        "window 10, a tombstone [0, 30); insert the same tokens, live from 10 on (the "
        "tree makes the last window a node of its own)"
    )
    check_nodes(
        check,
        chain,
        nodes(
            (0, 10, "tombstone"), (10, 20, "healed"), (20, 30, "healed"), newcomer=30
        ),
        call,
    )
    check.equal(chain.share(30), 30, call=f"{call}: match", look="a window is live")


@test("the cut is counted from the node's first token")
def _(answer, check: Check):
    chain = Chain(answer, window=4)
    chain.insert(2, dead=0)
    chain.insert(10, dead=10, own=2)
    chain.insert(10, dead=6)
    check_nodes(
        check,
        chain,
        nodes((0, 2, "live"), (2, 6, "tombstone"), (6, 10, "healed"), newcomer=10),
        "[0, 2) live, [2, 10) a tombstone; insert 10 tokens, live from 6 on",
    )


@test("the boundary itself")
def _(answer, check: Check):
    dead_first = (0, 4, "tombstone")
    for dead, spans in (
        (0, [(0, 4, "healed"), (4, 8, "healed")]),
        (3, [(0, 3, "tombstone"), (3, 4, "healed"), (4, 8, "healed")]),
        (4, [dead_first, (4, 8, "healed")]),
        (5, [dead_first, (4, 5, "tombstone"), (5, 8, "healed")]),
        (7, [dead_first, (4, 7, "tombstone"), (7, 8, "healed")]),
        (8, [dead_first, (4, 8, "tombstone")]),
    ):
        chain = Chain(answer, window=4)
        chain.insert(4, dead=4)
        chain.insert(8, dead=8, own=4)
        chain.insert(8, dead=dead)
        check_nodes(
            check,
            chain,
            nodes(*spans, newcomer=8),
            f"tombstones [0, 4) and [4, 8); insert 8 tokens, live from {dead} on",
        )


@test("a live node stays as it is")
def _(answer, check: Check):
    chain = Chain(answer, window=4)
    chain.insert(4, dead=0)
    freed = chain.insert(4, dead=0)
    call = "[0, 4) live in Full slots 0 to 3; insert the same tokens in 4 to 7"
    check.equal(
        (chain.state()["window pool"], chain.faults, freed),
        ([(0, 1000), (1, 1001), (2, 1002), (3, 1003)], [], [4, 5, 6, 7]),
        call=f"{call}: the window pool, what went wrong in mapping.move, slots freed",
        look="the tree has window KV here; nothing changes hands",
    )
    check.equal(
        chain.sizes(), (4, 0), call=f"{call}: sizes", look="nothing counts twice"
    )


@test("the tree's own slots heal nothing")
def _(answer, check: Check):
    chain = Chain(answer, window=2)
    chain.insert(4, dead=4)
    chain.insert(4, dead=0, own=2)
    check_nodes(
        check,
        chain,
        nodes((0, 2, "tombstone"), (2, 4, "healed"), newcomer=2),
        "a tombstone [0, 4) in Full slots 0 to 3; insert it with slots 0, 1, 4, 5 and "
        "prev_prefix_len 2",
    )


@test("a locked tombstone is healed under the lock")
def _(answer, check: Check):
    chain = Chain(answer, window=2)
    chain.insert(2, dead=2)
    node = next(chain.cache.nodes())
    receipt = chain.cache.inc_lock_ref(node)
    chain.insert(2, dead=0)
    call = "a tombstone [0, 2), locked by a request; insert the same tokens"
    check_nodes(check, chain, nodes((0, 2, "healed"), newcomer=2), call)
    check.equal(
        chain.sizes(),
        (0, 2),
        call=f"{call}: (evictable_size, protected_size)",
        look="the lock was there before the data: the tokens count as protected",
    )
    chain.cache.dec_lock_ref(node, receipt.to_dec_params())
    check.equal(chain.sizes(), (2, 0), call=f"{call}; release", look="all evictable")


@test("whole pages")
def _(answer, check: Check):
    chain = Chain(answer, window=5, page_size=4)
    chain.insert(16, dead=16)
    chain.insert(16, dead=8)
    check_nodes(
        check,
        chain,
        nodes((0, 8, "tombstone"), (8, 16, "healed"), newcomer=16),
        "page size 4, a tombstone [0, 16); insert 16 tokens, live from 8 on",
    )


@test("agrees with a list of slots over many operations")
def _(answer, check: Check):
    for seed in range(6):
        check.operations(
            _operations(random.Random(seed), 40),
            expected=lambda: Model(window=4),
            actual=lambda: Chain(answer, window=4),
            look="insert(length, dead, own): a request computed the tokens from `own` "
            "on, and has no window KV below `dead` (window 4)",
            draw=draw,
        )


def _operations(rng: random.Random, count: int) -> list[tuple]:
    operations, num_cached = [], 0
    for _ in range(count):
        kind = rng.choice(["insert", "insert", "insert", "share", "bury", "bury"])
        if kind == "insert" or not num_cached:
            length = rng.randrange(1, 17)
            own = rng.choice([0, 0, rng.randrange(min(num_cached, length) + 1)])
            operations.append(("insert", length, rng.randrange(length + 1), own))
            num_cached = max(num_cached, length)
        else:
            operations.append((kind, rng.randrange(kind == "share", num_cached)))
    return operations
