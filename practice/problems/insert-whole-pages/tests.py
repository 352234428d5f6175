"""Inserts into small trees drawn by hand, and long sequences against a plain model.

Walks, splits and evictions are the engine's; the model is a dictionary of prefixes.
"""

import random
from array import array

from grading import test
from minisgl.kvcache.radix_key import InvalidKeyError, RadixKey
from radix_world import PrefixModel, TreeWorld, draw_rows, random_tokens

BEFORE = (
    "`cached_len` says how many tokens were there before this insert, not how many "
    "were brought and not how many there are now"
)
OWN = (
    "what the tree holds it keeps, in the slots that it has: requests are reading "
    "them. Only tokens that it lacks come in, each with the slot at its own position"
)
PAGES = (
    "only whole pages are stored; the tokens behind the last one stay with the caller, "
    "and the handle does not cover them"
)


def insert(tree, tokens, slots):
    """What comes back, as plain data."""
    result = tree.insert_prefix(RadixKey(tokens), array("i", slots))
    return plain_result(result)


def plain_result(result):
    return {
        "cached_len": result.cached_len,
        "handle": result.handle.cached_len,
        "its slots": result.handle.matched_slots().tolist(),
    }


def expect(cached_len, slots):
    return {"cached_len": cached_len, "handle": len(slots), "its slots": slots}


def nodes_of(tree):
    """(path, slots, stamp) of every node; a path has the tokens of each node on it."""
    return state_of(TreeWorld(tree))["nodes"]


def state_of(world):
    return {
        "clock": world.clock,
        "(evictable, protected)": world.sizes(),
        "nodes": sorted((path[1:], *rest) for path, *rest, _ in world.rows()),
        "check_integrity()": world.integrity(),
    }


@test("a first insert stores everything", example=True)
def _(answer, check):
    tree = answer.RadixTree(1)
    check.equal(
        insert(tree, [1, 2, 3, 4], [10, 11, 12, 13]),
        expect(0, [10, 11, 12, 13]),
        call="insert [1, 2, 3, 4] with slots [10, 11, 12, 13] into an empty tree",
        look=BEFORE,
    )
    check.equal(
        state_of(TreeWorld(tree)),
        {
            "clock": 1,
            "(evictable, protected)": (4, 0),
            "nodes": [([[1, 2, 3, 4]], [10, 11, 12, 13], 1)],
            "check_integrity()": "passes",
        },
        call="the tree after that",
        look="`_add_leaf` counts and queues the leaf that it adds; a walk is one tick",
    )


@test("a second insert brings only what is new", example=True)
def _(answer, check):
    tree = answer.RadixTree(1)
    insert(tree, [1, 2, 3, 4], [10, 11, 12, 13])
    check.equal(
        insert(tree, [1, 2, 5, 6], [90, 91, 20, 21]),
        expect(2, [10, 11, 20, 21]),
        call="insert [1, 2, 5, 6] with slots [90, 91, 20, 21], after [1, 2, 3, 4] with "
        "slots [10, 11, 12, 13]",
        look=f"{BEFORE}. {OWN}",
    )
    check.equal(
        nodes_of(tree),
        [
            ([[1, 2]], [10, 11], 2),
            ([[1, 2], [3, 4]], [12, 13], 1),
            ([[1, 2], [5, 6]], [20, 21], 2),
        ],
        call="(path, slots, stamp) of all nodes after that",
        look=OWN,
    )


@test("all of it is there already")
def _(answer, check):
    for tokens in ([1, 2, 3, 4], [1, 2]):
        tree = answer.RadixTree(1)
        insert(tree, [1, 2, 3, 4], [10, 11, 12, 13])
        slots = [90, 91, 92, 93][: len(tokens)]
        call = f"insert {tokens} with slots {slots}, after [1, 2, 3, 4] with 10 to 13"
        check.equal(
            insert(tree, tokens, slots),
            expect(len(tokens), [10, 11, 12, 13][: len(tokens)]),
            call=call,
            look=f"{BEFORE}. {OWN}",
        )
        check.equal(
            tree.evictable_size, 4, call=f"evictable_size after {call}", look=OWN
        )


@test("whole pages only")
def _(answer, check):
    for page_size, stored in [(1, 7), (2, 6), (3, 6), (4, 4), (7, 7), (8, 0)]:
        tree = answer.RadixTree(page_size)
        call = f"insert 7 tokens, page size {page_size}, into an empty tree"
        tokens, slots = [1, 2, 3, 4, 5, 6, 7], [10, 11, 12, 13, 14, 15, 16]
        check.equal(
            insert(tree, tokens, slots),
            expect(0, slots[:stored]),
            call=call,
            look=PAGES,
        )
        check.equal(
            [(path[-1], held) for path, held, _ in nodes_of(tree)],
            [(tokens[:stored], slots[:stored])] if stored else [],
            call=f"(tokens, slots) of all nodes after: {call}",
            look=PAGES,
        )
        check.equal(
            tree.evictable_size, stored, call=f"evictable_size: {call}", look=PAGES
        )


@test("a page that is known in part is new as a whole")
def _(answer, check):
    tree = answer.RadixTree(2)
    insert(tree, [1, 2, 3, 4], [0, 1, 2, 3])
    check.equal(
        insert(tree, [1, 2, 3, 9, 5], [10, 11, 12, 13, 14]),
        expect(2, [0, 1, 12, 13]),
        call="insert [1, 2, 3, 9, 5] with slots 10 to 14, page size 2, after "
        "[1, 2, 3, 4] with slots 0 to 3",
        look=f"{OWN}. {PAGES}",
    )


@test("without a whole page nothing happens but a walk")
def _(answer, check):
    tree = answer.RadixTree(4)
    insert(tree, [1, 2, 3, 4], [0, 1, 2, 3])
    for tick, tokens in enumerate(([], [9], [1, 2, 3]), start=2):
        call = f"insert {tokens}, page size 4, after [1, 2, 3, 4]"
        check.equal(insert(tree, tokens, tokens), expect(0, []), call=call, look=PAGES)
        check.equal(
            state_of(TreeWorld(tree)),
            {
                "clock": tick,
                "(evictable, protected)": (4, 0),
                "nodes": [([[1, 2, 3, 4]], [0, 1, 2, 3], 1)],
                "check_integrity()": "passes",
            },
            call=f"the tree after: {call}",
            look="a node is added only if there is something to put into it",
        )


@test("tokens and slots of different number are refused")
def _(answer, check):
    look = "compare the lengths before the walk: a refused call changes nothing"
    for tokens, slots in (([1, 2, 3], [0, 1]), ([1, 2], [0, 1, 2, 3, 4]), ([], [0])):
        tree = answer.RadixTree(1)
        insert(tree, [1, 2, 3, 4], [0, 1, 2, 3])
        before = state_of(TreeWorld(tree))
        call = f"insert {tokens} with slots {slots}"
        check.raises(
            InvalidKeyError,
            lambda tree=tree, tokens=tokens, slots=slots: insert(tree, tokens, slots),
            call=call,
            mentions=[str(len(tokens)), str(len(slots))],
            look="InvalidKeyError, with both lengths in its text",
        )
        check.equal(
            state_of(TreeWorld(tree)), before, call=f"the tree after: {call}", look=look
        )


@test("the slots are copied")
def _(answer, check):
    for kind in (list, lambda slots: array("i", slots)):
        tree, slots = answer.RadixTree(1), kind([10, 11, 12])
        result = tree.insert_prefix(RadixKey([1, 2, 3]), slots)
        slots[0] = 99
        check.equal(
            result.handle.matched_slots(),
            array("i", [10, 11, 12]),
            call=f"slots of [1, 2, 3], after the given {type(slots).__name__} changed",
            look="a node owns its slots: an array('i') of its own, whatever is given",
        )


# --- sequences ------------------------------------------------------------------------


class Model(PrefixModel):
    state = state_of

    def insert(self, tokens, slots):
        known = super().insert(tokens, slots)
        return expect(known, self.slots(self.prefixes(tokens)))


class Tree(TreeWorld):
    state = state_of

    def insert(self, tokens, slots):
        return insert(self.tree, tokens, slots)


def draw(world):
    """The nodes of a world as a tree."""
    return draw_rows(
        world.state()["nodes"],
        lambda row: f"{row[0][-1]}  slots {row[1]}  stamp {row[2]}",
    )


def random_operations(seed, page_size):
    """Prefixes that share much; every insert comes with slots of its own."""
    rng = random.Random(seed)
    operations, slot = [], 0
    for _ in range(60):
        tokens = random_tokens(rng, page_size)
        choice = rng.random()
        if choice < 0.6:
            operations.append(
                ("insert", tokens, [slot + i for i in range(len(tokens))])
            )
            slot += len(tokens)
        elif choice < 0.85:
            operations.append(("match", tokens))
        else:
            operations.append(("evict", rng.randrange(1, 3 * page_size)))
    return operations


@test("inserts, matches and evictions in any order")
def _(answer, check):
    for page_size in (1, 2, 4):
        for seed in (1, 2, 3):
            check.operations(
                random_operations(seed, page_size),
                expected=lambda size=page_size: Model(size),
                actual=lambda size=page_size: Tree(answer.RadixTree(size)),
                look=f"{OWN}. {PAGES}",
                draw=draw,
            )
