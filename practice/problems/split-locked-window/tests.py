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
        return next(node for start, node in self.nodes() if start + len(node) == end)

    def nodes(self):
        start = 0
        for node in self.cache.nodes():
            yield start, node
            start += len(node)

    def rows(self) -> list[tuple]:
        """A row for each node: tokens, window KV, locks, mark."""
        return [_row(start, node) for start, node in self.nodes()]

    def locks(self) -> list[int]:
        return [node.component_data[SWA].lock_ref for _, node in self.nodes()]

    def sizes(self) -> tuple[int, int]:
        return self.component.evictable_size, self.component.protected_size

    def oldest_first(self) -> list[int]:
        """The first tokens of the nodes in the list; a node in no tree is a -1."""
        starts = {node: start for start, node in self.nodes()}
        return [starts.get(node, -1) for node in self.component.lru_list]

    def state(self):
        return {"nodes": self.rows(), "sizes": self.sizes()}


def _row(start: int, node) -> tuple:
    data, end = node.component_data[SWA], start + len(node)
    if data.value is None:
        window = "tombstone"
    elif list(data.value) == [*range(start, end)]:
        window = "live"
    else:
        window = f"the slots {' '.join(map(str, data.value))}"
    return (
        f"[{start}, {end})",
        window,
        data.lock_ref,
        "mark" * (data.metadata is not None),
    )


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
            (
                f"[{start}, {end})",
                "live" if self.live[start] else "tombstone",
                self.locks[start],
                "mark" * (start in self.marks),
            )
            for start, end in zip(starts, [*starts[1:], len(self.live)], strict=True)
        ]
        num_free = sum(
            is_live and not count
            for is_live, count in zip(self.live, self.locks, strict=True)
        )
        return {"nodes": nodes, "sizes": (num_free, sum(self.live) - num_free)}


def draw_rows(rows) -> str:
    return draw_table(["tokens", "window KV", "locks", ""], rows)


def draw(world) -> str:
    return draw_rows(world.state()["nodes"])


def check_chain(check: Check, chain: Chain, expected: list[tuple], call: str) -> None:
    """Compare the nodes, given as (tokens, window KV, locks, mark)."""
    found = chain.rows()
    check.equal(found, expected, call=call, look=_why(found, expected), draw=draw_rows)


def _why(found: list[tuple], expected: list[tuple]) -> str:
    marked, right = [[row[0] for row in rows if row[3]] for rows in (found, expected)]
    if [row[2] for row in found] != [row[2] for row in expected]:
        return "both halves are covered by as many locks as the whole node was"
    if marked and not right:
        return "where there was no mark, none appears"
    if right and not marked:
        return (
            "without a mark the release goes on to the root, and takes off locks that "
            "it did not put on"
        )
    if len(marked) > len(right):
        return (
            "the release comes from below and stops at the first mark it meets, the "
            "one on the lower half"
        )
    if marked != right:
        return (
            "the release comes from below and stops at the lower half, and the upper "
            "half stays locked for ever"
        )
    if "tombstone" in [row[1] for row in expected]:
        return (
            "both halves of a tombstone are tombstones: its window slots are gone, and "
            "the Full slots are no sign of them"
        )
    return "the window value of a half is its Full slots, which are divided already"


LIVE_CHAIN = [(4, True), (4, True), (2, True)]
SETUP = "nodes [0, 4) [4, 8) [8, 10), window 6, a lock on the prefix of 10"


def locked_chain(answer, runs=LIVE_CHAIN, window=6) -> Chain:
    chain = Chain(answer, window, runs)
    chain.lock("A", sum(length for length, _ in runs))
    return chain


@test("the old receipt releases what it locked", example=True)
def _(answer, check: Check):
    chain = locked_chain(answer)
    before = chain.sizes()
    call = f"{SETUP}; then a prompt shares 5"
    chain.share(5)
    check_chain(
        check,
        chain,
        [
            ("[0, 4)", "live", 0, ""),
            ("[4, 5)", "live", 1, "mark"),
            ("[5, 8)", "live", 1, ""),
            ("[8, 10)", "live", 1, ""),
        ],
        call,
    )
    check.equal(
        (before, chain.sizes()),
        ((4, 6), (4, 6)),
        call=f"{call}: (evictable_size, protected_size) before and after",
        look="the same tokens are locked: a split moves none between the two",
    )
    chain.release("A")
    check.equal(
        (chain.locks(), chain.sizes()),
        ([0, 0, 0, 0], (10, 0)),
        call=f"{call}; then the lock is released: locks, sizes",
        look="the release takes one lock off each half",
    )


@test("a tombstone in the window stays one", example=True)
def _(answer, check: Check):
    chain = locked_chain(answer, [(4, True), (4, False), (2, True)])
    call = "the same chain, with a tombstone at [4, 8), locked up to 10"
    before = chain.sizes()
    chain.share(5)
    call += "; then a prompt shares 5"
    check_chain(
        check,
        chain,
        [
            ("[0, 4)", "live", 0, ""),
            ("[4, 5)", "tombstone", 1, "mark"),
            ("[5, 8)", "tombstone", 1, ""),
            ("[8, 10)", "live", 1, ""),
        ],
        call,
    )
    check.equal(
        sorted(chain.oldest_first()),
        [0, 8],
        call=f"{call}: first tokens of the nodes in lru_list",
        look="a tombstone is in no list",
    )
    chain.release("A")
    check.equal(
        (chain.locks(), before, chain.sizes()),
        ([0, 0, 0, 0], (4, 2), (6, 0)),
        call=f"{call}, and the lock is released: locks; sizes before and after",
        look="a tombstone counts in no size",
    )


@test("a node is cut three times")
def _(answer, check: Check):
    chain = locked_chain(answer)
    call = SETUP
    for shared, pieces in (
        (6, ["[4, 6)", "[6, 8)"]),
        (5, ["[4, 5)", "[5, 6)", "[6, 8)"]),
        (7, ["[4, 5)", "[5, 6)", "[6, 7)", "[7, 8)"]),
    ):
        chain.share(shared)
        call += f"; share {shared}"
        check_chain(
            check,
            chain,
            [
                ("[0, 4)", "live", 0, ""),
                (pieces[0], "live", 1, "mark"),
                *((piece, "live", 1, "") for piece in pieces[1:]),
                ("[8, 10)", "live", 1, ""),
            ],
            call,
        )
    chain.release("A")
    check.equal(
        chain.locks(),
        [0, 0, 0, 0, 0, 0],
        call=f"{call}; then the lock is released: locks",
        look="each piece had one lock",
    )


@test("a node below the topmost one is cut")
def _(answer, check: Check):
    chain = locked_chain(answer)
    chain.share(9)
    call = f"{SETUP}; then a prompt shares 9"
    check_chain(
        check,
        chain,
        [
            ("[0, 4)", "live", 0, ""),
            ("[4, 8)", "live", 1, "mark"),
            ("[8, 9)", "live", 1, ""),
            ("[9, 10)", "live", 1, ""),
        ],
        call,
    )
    chain.release("A")
    check.equal(chain.locks(), [0] * 4, call=f"{call}; release", look="all are free")


@test("a run that reaches the root has no mark")
def _(answer, check: Check):
    chain = locked_chain(answer, [(4, True), (2, True)])
    chain.share(1)
    call = "nodes [0, 4) [4, 6), window 6, a lock on the prefix of 6; then share 1"
    check_chain(
        check,
        chain,
        [
            ("[0, 1)", "live", 1, ""),
            ("[1, 4)", "live", 1, ""),
            ("[4, 6)", "live", 1, ""),
        ],
        call,
    )
    chain.release("A")
    check.equal(chain.locks(), [0] * 3, call=f"{call}; release", look="up to the root")


@test("two receipts end at one mark")
def _(answer, check: Check):
    setup = "nodes [0, 4) [4, 8) [8, 9) [9, 10), window 4, locks A on 8 and B on 9"
    for first, second in ("AB", "BA"):
        chain = Chain(answer, 4, [(4, True), (4, True), (1, True), (1, True)])
        chain.lock("A", 8)
        chain.lock("B", 9)
        chain.share(5)
        call = f"{setup}; then share 5"
        check_chain(
            check,
            chain,
            [
                ("[0, 4)", "live", 0, ""),
                ("[4, 5)", "live", 2, "mark"),
                ("[5, 8)", "live", 2, ""),
                ("[8, 9)", "live", 1, ""),
                ("[9, 10)", "live", 0, ""),
            ],
            call,
        )
        for name, locks in (
            (first, [0, 1, 1, first == "A", 0]),
            (second, [0, 0, 0, 0, 0]),
        ):
            chain.release(name)
            call += f"; release {name}"
            check.equal(
                chain.locks(),
                [int(count) for count in locks],
                call=f"{call}: locks",
                look="each receipt releases what it locked; the mark stays as long as "
                "a lock needs it",
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
