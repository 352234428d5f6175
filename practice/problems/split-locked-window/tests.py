"""A chain of nodes in a real tree, against a model that knows tokens only."""

from __future__ import annotations

import random
from array import array

from grading import Check, NotApplicable, draw_table, test

from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified import (
    ComponentType,
    EvictParams,
    FullComponent,
    InsertParams,
    MatchPrefixParams,
    UnifiedRadixCache,
)

SWA = ComponentType.SWA
OTHER = 99  # a token that the chain does not have


class Chain:
    """Tokens 0, 1, 2, … in the Full slots 0, 1, 2, …; only the component is graded.

    `runs` are the (length, has window KV) of its nodes.
    """

    def __init__(self, answer, window: int, runs) -> None:
        self.freed_window: list[int] = []
        self.component = answer.SWAComponent(self, window)
        self.cache = UnifiedRadixCache(1, [FullComponent(self._drop), self.component])
        self.receipts = {}
        end = 0
        for length, is_live in runs:
            start, end = end, end + length
            slots, dead_below = array("i", range(end)), 0 if is_live else end
            params = InsertParams(RadixKey(range(end)), slots, start, dead_below)
            self.cache.insert(params)

    # the window pool, as the component sees it

    def free(self, full_slots) -> None:
        self.freed_window += full_slots

    def _drop(self, full_slots) -> None:
        pass

    # operations

    def share(self, num_tokens: int) -> int:
        """Another prompt shares so many tokens; how many of them can it use?"""
        key = RadixKey([*range(num_tokens), OTHER])
        return self.cache.match_prefix(MatchPrefixParams(key)).cached_len

    def lock(self, name: str, end: int) -> None:
        node = self.find(end)
        self.receipts[name] = self.cache.inc_lock_ref(node)

    def release(self, name: str) -> None:
        receipt = self.receipts.pop(name)
        self.cache.dec_lock_ref(receipt.node, receipt.to_dec_params())

    def evict(self, num_tokens: int) -> list[int]:
        """Evict window KV; the tokens that lost theirs."""
        before = len(self.freed_window)
        self.cache.evict(EvictParams(swa_num_tokens=num_tokens))
        return self.freed_window[before:]

    # views

    def find(self, end: int):
        return next(node for _, node in self.nodes() if self.ends[node] == end)

    def nodes(self):
        self.ends, pairs, start = {}, [], 0
        for node in self.cache.nodes():
            self.ends[node] = start + len(node)
            pairs.append((start, node))
            start += len(node)
        return pairs

    def locks(self) -> list[int]:
        return [node.component_data[SWA].lock_ref for _, node in self.nodes()]

    def marked(self) -> list[int]:
        """The first token of each node that carries a mark."""
        return [
            start
            for start, node in self.nodes()
            if node.component_data[SWA].metadata is not None
        ]

    def window_values(self) -> list[list[int] | None]:
        values = [node.value(SWA) for _, node in self.nodes()]
        return [None if value is None else list(value) for value in values]

    def sizes(self) -> tuple[int, int]:
        return self.component.evictable_size, self.component.protected_size

    def oldest_first(self) -> list[int]:
        """The first tokens of the nodes in the list; a node in no tree is a -1."""
        starts = {node: start for start, node in self.nodes()}
        return [starts.get(node, -1) for node in self.component.lru_list]

    def state(self):
        return {
            "nodes": [
                {
                    "tokens": (start, start + len(node)),
                    "window": None if value is None else list(value),
                    "locks": node.component_data[SWA].lock_ref,
                    "marked": node.component_data[SWA].metadata is not None,
                }
                for start, node in self.nodes()
                for value in [node.value(SWA)]
            ],
            "sizes": self.sizes(),
        }


class Model:
    """Which token is live, how many locks cover it, and where nodes begin."""

    def __init__(self, window: int, runs) -> None:
        self.window = window
        self.live = [is_live for length, is_live in runs for _ in range(length)]
        self.locks = [0] * len(self.live)
        self.begins, self.marks, self.receipts = set(), set(), {}
        start = 0
        for length, _ in runs:
            self.begins.add(start)
            start += length

    def share(self, num_tokens: int) -> int:
        if num_tokens < len(self.live):
            self.begins.add(num_tokens)
        for end in range(num_tokens, 0, -1):
            is_node_end = end in self.begins or end == len(self.live)
            if is_node_end and all(self.live[max(end - self.window, 0) : end]):
                return end
        return 0

    def lock(self, name: str, end: int) -> None:
        if name in self.receipts or (end not in self.begins and end != len(self.live)):
            raise NotApplicable
        first = max(end - self.window, 0)
        start = max(begin for begin in self.begins if begin <= first)
        self.receipts[name] = (start, end)
        self._add(start, end, 1)
        if start:
            self.marks.add(start)

    def release(self, name: str) -> None:
        if name not in self.receipts:
            raise NotApplicable
        self._add(*self.receipts.pop(name), -1)
        self.marks = {start for start in self.marks if self.locks[start]}

    def _add(self, start: int, end: int, count: int) -> None:
        for token in range(start, end):
            self.locks[token] += count

    def state(self):
        starts = sorted(self.begins)
        nodes = [
            {
                "tokens": (start, end),
                "window": list(range(start, end)) if self.live[start] else None,
                "locks": self.locks[start],
                "marked": start in self.marks,
            }
            for start, end in zip(starts, [*starts[1:], len(self.live)], strict=True)
        ]
        num_free = sum(
            is_live and not count
            for is_live, count in zip(self.live, self.locks, strict=True)
        )
        return {"nodes": nodes, "sizes": (num_free, sum(self.live) - num_free)}


def draw(world) -> str:
    rows = [
        [
            "[{}, {})".format(*node["tokens"]),
            "tombstone" if node["window"] is None else "live",
            node["locks"],
            "mark" if node["marked"] else "",
        ]
        for node in world.state()["nodes"]
    ]
    return draw_table(["tokens", "window KV", "locks", ""], rows)


LIVE_CHAIN = [(4, True), (4, True), (2, True)]
SETUP = "nodes [0, 4) [4, 8) [8, 10), window 6, a lock on the prefix of 10"


def locked_chain(answer, runs=LIVE_CHAIN, window=6) -> Chain:
    chain = Chain(answer, window, runs)
    chain.lock("A", sum(length for length, _ in runs))
    return chain


def check_marks(check: Check, chain: Chain, halves: tuple[int, int], call: str) -> None:
    """The mark is on the upper of two halves, given by their first tokens."""
    found = tuple(start for start in halves if start in chain.marked())
    upper, lower = halves
    why = {
        (upper,): "the mark ends the locked run that comes from below",
        (lower,): "the release comes from below and stops at the lower half, and the "
        "upper half stays locked for ever",
        halves: "the release comes from below and stops at the first mark it meets, "
        "the one on the lower half",
        (): "without a mark the release goes on to the root, and takes off locks that "
        "it did not put on",
    }
    check.equal(
        list(found),
        [upper],
        call=f"{call}: which half, given by its first token, carries the mark?",
        look=why[found],
    )


@test("the old receipt releases what it locked", example=True)
def _(answer, check: Check):
    chain = locked_chain(answer)
    check.equal(chain.locks(), [0, 1, 1], call=SETUP, look="as in the statement")
    call = f"{SETUP}; then a prompt shares 5"
    chain.share(5)
    check.equal(
        chain.locks(),
        [0, 1, 1, 1],
        call=f"{call}: locks of [0, 4) [4, 5) [5, 8) [8, 10)",
        look="both halves are covered by as many locks as the whole node was",
    )
    check_marks(check, chain, (4, 5), call)
    chain.release("A")
    check.equal(
        chain.locks(),
        [0, 0, 0, 0],
        call=f"{call}; then the lock is released",
        look="the release takes one lock off each half",
    )
    check.equal(
        chain.sizes(),
        (10, 0),
        call=f"{call}; then the lock is released: (evictable_size, protected_size)",
        look="nothing is locked any more, and a split moves no tokens between the two",
    )


@test("each half has its own slots", example=True)
def _(answer, check: Check):
    chain = locked_chain(answer)
    chain.share(5)
    check.equal(
        chain.window_values(),
        [[0, 1, 2, 3], [4], [5, 6, 7], [8, 9]],
        call=f"{SETUP}; then a prompt shares 5: `value` of the four nodes",
        look="the window value of a node is its Full slots, and those are divided "
        "already",
    )
    check.equal(
        chain.sizes(),
        (4, 6),
        call=f"{SETUP}; then a prompt shares 5: (evictable_size, protected_size)",
        look="the same tokens are locked as before the split",
    )


@test("a tombstone in the window stays one")
def _(answer, check: Check):
    chain = locked_chain(answer, [(4, True), (4, False), (2, True)])
    call = "the same chain, with a tombstone at [4, 8), locked up to 10"
    before = chain.sizes()
    chain.share(5)
    check.equal(
        chain.window_values(),
        [[0, 1, 2, 3], None, None, [8, 9]],
        call=f"{call}; then a prompt shares 5: `value` of the four nodes",
        look="both halves of a tombstone are tombstones: its window slots are gone, "
        "and the Full slots are no sign of them",
    )
    check.equal(
        chain.locks(),
        [0, 1, 1, 1],
        call=f"{call}; then a prompt shares 5: locks of the four nodes",
        look="a window lock covers tombstones too",
    )
    check_marks(check, chain, (4, 5), f"{call}; then a prompt shares 5")
    check.equal(
        sorted(chain.oldest_first()),
        [0, 8],
        call=f"{call}; then a prompt shares 5: first tokens of the nodes in lru_list",
        look="a tombstone is in no list",
    )
    chain.release("A")
    check.equal(
        (chain.locks(), before, chain.sizes()),
        ([0, 0, 0, 0], (4, 2), (6, 0)),
        call=f"{call}; then a prompt shares 5, and the lock is released: locks; sizes "
        "before and after",
        look="a tombstone counts in no size",
    )


@test("a node is cut three times")
def _(answer, check: Check):
    chain = locked_chain(answer)
    call = SETUP
    for shared, halves in (6, (4, 6)), (5, (4, 5)), (7, (4, 6)):
        chain.share(shared)
        call += f"; share {shared}"
        check_marks(check, chain, halves, call)
    check.equal(
        chain.marked(),
        [4],
        call=f"{call}: first tokens of the nodes with a mark",
        look="the mark stays with token 4, where the locked run begins",
    )
    chain.release("A")
    check.equal(
        (chain.locks(), chain.marked()),
        ([0, 0, 0, 0, 0, 0], []),
        call=f"{call}; then the lock is released: locks, marks",
        look="each piece had one lock",
    )


@test("a node below the topmost one is cut")
def _(answer, check: Check):
    chain = locked_chain(answer)
    chain.share(9)
    call = f"{SETUP}; then a prompt shares 9"
    check.equal(
        (chain.locks(), chain.marked()),
        ([0, 1, 1, 1], [4]),
        call=f"{call}: locks, and first tokens of the nodes with a mark",
        look="[8, 10) has no mark, so neither of its halves gets one",
    )
    chain.release("A")
    check.equal(chain.locks(), [0] * 4, call=f"{call}; release", look="all are free")


@test("a run that reaches the root has no mark")
def _(answer, check: Check):
    chain = locked_chain(answer, [(4, True), (2, True)])
    chain.share(1)
    call = "nodes [0, 4) [4, 6), window 6, a lock on the prefix of 6; then share 1"
    check.equal(
        (chain.locks(), chain.marked()),
        ([1, 1, 1], []),
        call=f"{call}: locks, and first tokens of the nodes with a mark",
        look="where there was no mark, none appears",
    )
    chain.release("A")
    check.equal(chain.locks(), [0] * 3, call=f"{call}; release", look="up to the root")


@test("two receipts end at one mark")
def _(answer, check: Check):
    call = "nodes [0, 4) [4, 8) [8, 10), window 4, locks on 8 and 9 tokens"
    for first, second in ("AB", "BA"):
        chain = Chain(answer, 4, LIVE_CHAIN)
        chain.share(9)
        chain.lock("A", 8)
        chain.lock("B", 9)
        check.equal(chain.locks(), [0, 2, 1, 0], call=call, look="as the lock has it")
        chain.share(5)
        check_marks(check, chain, (4, 5), f"{call}; then share 5")
        check.equal(
            chain.locks(),
            [0, 2, 2, 1, 0],
            call=f"{call}; then share 5: locks",
            look="both locks cover both halves",
        )
        chain.release(first)
        left = [0, 1, 1, 1, 0] if first == "A" else [0, 1, 1, 0, 0]
        check.equal(
            (chain.locks(), chain.marked()),
            (left, [4]),
            call=f"{call}; then share 5; release {first}: locks, marks",
            look="the mark stays as long as a lock needs it",
        )
        chain.release(second)
        check.equal(
            (chain.locks(), chain.marked()),
            ([0] * 5, []),
            call=f"{call}; then share 5; release {first} and {second}: locks, marks",
            look="each receipt releases what it locked",
        )


@test("the upper half is as old as the lower one")
def _(answer, check: Check):
    # [0, 2) is a tombstone, so prefixes of up to 7 are of no use and not refreshed
    chain = Chain(answer, 6, [(2, False), (4, True), (4, True), (2, True)])
    call = "a tombstone [0, 2), then [2, 6) [6, 10) [10, 12), oldest first; share 4"
    chain.share(4)
    check.equal(
        chain.oldest_first(),
        [2, 4, 6, 10],
        call=f"{call}: first tokens of the nodes in lru_list, oldest first",
        look="nobody used the upper half just now: it goes just before the lower half",
    )
    chain.share(7)
    check.equal(
        chain.oldest_first(),
        [2, 4, 6, 7, 10],
        call=f"{call}; share 7: first tokens of the nodes in lru_list, oldest first",
        look="its place is before the lower half, not at an end of the list",
    )
    check.equal(
        [chain.evict(1), chain.evict(1), chain.evict(1)],
        [[2, 3], [4, 5], [6]],
        call=f"{call}; share 7; then evict 1 window token three times",
        look="the oldest node goes first, as a whole, and gives its own slots back",
    )


@test("what a request reads is not evicted")
def _(answer, check: Check):
    chain = locked_chain(answer)
    chain.share(5)
    call = f"{SETUP}; then a prompt shares 5"
    check.equal(
        chain.evict(10),
        [0, 1, 2, 3],
        call=f"{call}; then evict 10 window tokens",
        look="tokens 4 to 9 are locked, in whatever nodes they are",
    )
    chain.release("A")
    check.equal(
        sorted(chain.evict(1) + chain.evict(10)),
        [4, 5, 6, 7, 8, 9],
        call=f"{call}; evict 10; release; then evict all",
        look="after the release they can go",
    )


RUNS = [
    [(4, True), (4, True), (2, True)],
    [(2, True), (5, False), (6, True), (3, True)],
    [(3, False), (3, True), (3, False), (3, True), (4, True)],
]


@test("agrees with a count of tokens over many operations")
def _(answer, check: Check):
    for seed, runs in enumerate(RUNS * 2):
        check.operations(
            _operations(random.Random(seed), sum(length for length, _ in runs), 40),
            expected=lambda runs=runs: Model(6, runs),
            actual=lambda runs=runs: Chain(answer, 6, runs),
            look="a receipt stands for a stretch of tokens, wherever its nodes are cut "
            "(window 6)",
            draw=draw,
        )


def _operations(rng: random.Random, num_tokens: int, count: int) -> list[tuple]:
    operations, out, ends = [], [], [num_tokens]
    for number in range(count):
        kind = rng.choice(["share", "lock", "lock", "release"])
        if kind == "lock" and len(out) < 4:
            out.append(f"R{number}")
            operations.append(("lock", out[-1], rng.choice(ends)))
        elif kind == "release" and out:
            operations.append(("release", out.pop(rng.randrange(len(out)))))
        else:
            ends.append(rng.randrange(1, num_tokens))
            operations.append(("share", ends[-1]))
    return operations + [("release", name) for name in out]
