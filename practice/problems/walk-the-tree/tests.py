"""Walks through small trees drawn by hand, and long sequences against a plain model.

Trees are made with the engine's other methods; the model is a dictionary of prefixes.
"""

import random

from grading import test
from minisgl.kvcache.radix_key import RadixKey
from radix_world import (
    PrefixModel,
    TreeWorld,
    draw_rows,
    in_order,
    plant,
    random_tokens,
)

SPLIT = (
    "a match that ends inside a node splits it there: what is found, and locked later, "
    "is exactly what was matched"
)
STAMPS = (
    "stamp what was matched, and nothing else: after a split the upper half is new and "
    "the lower half keeps its old stamp"
)
PAGES = "a match ends after its last whole page that is equal, never inside a page"


def walk(tree, tokens, space=None):
    """Where the walk ends: the node's tokens and slots, and the length."""
    node, length = tree._tree_walk(RadixKey(tokens, space))
    return {
        "tokens of the node": node.key.tolist(),
        "its slots": node.value.tolist(),
        "length": length,
    }


def found(tokens, slots, length):
    return {"tokens of the node": tokens, "its slots": slots, "length": length}


def nodes_of(world):
    """(path, slots, stamp) of every node, parents before their children."""
    return in_order(row[:3] for row in world.rows())


def state_of(world):
    return {
        "clock": world.clock,
        "nodes": nodes_of(world),
        "check_integrity()": world.integrity(),
    }


class Model(PrefixModel):
    state = state_of


class Tree(TreeWorld):
    state = state_of


def draw(world):
    """The nodes of a world as a tree."""

    def label(row):
        path, slots, stamp = row
        space = "" if path[0] is None or len(path) > 2 else f" of {path[0]!r}"
        return f"{path[-1]}{space}  slots {slots}  stamp {stamp}"

    return draw_rows(nodes_of(world), label)


@test("the key leaves the tree inside a node", example=True)
def _(answer, check):
    tree = plant(answer.RadixTree(1), ([1, 2, 3, 4], [10, 11, 12, 13]))
    check.equal(
        walk(tree, [1, 2, 9]),
        found([1, 2], [10, 11], 2),
        call="_tree_walk([1, 2, 9]) in a tree of one node [1, 2, 3, 4]",
        look=SPLIT,
    )


@test("the key goes through several nodes", example=True)
def _(answer, check):
    tree = plant(
        answer.RadixTree(1), ([1, 2], [10, 11]), ([1, 2, 3, 4], [0, 0, 12, 13])
    )
    check.equal(
        walk(tree, [1, 2, 3, 4, 5]),
        found([3, 4], [12, 13], 4),
        call="_tree_walk([1, 2, 3, 4, 5]) in a tree of [1, 2] with [3, 4] below",
        look="a child is found by the bytes of the page with which it begins: go on "
        "where the node's tokens end",
    )
    check.equal(
        walk(tree, [1, 2]),
        found([1, 2], [10, 11], 2),
        call="_tree_walk([1, 2]) in the same tree",
        look="a key that ends where a node ends finds that node, unsplit",
    )


@test("a match ends with a whole page")
def _(answer, check):
    for tokens, pages in [
        ([1, 2, 3, 9, 5, 6], 1),
        ([1, 2, 3], 1),
        ([1, 2, 3, 4, 5], 2),
        ([1, 2, 3, 4, 5, 9], 2),
    ]:
        tree = plant(answer.RadixTree(2), ([1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5]))
        check.equal(
            walk(tree, tokens),
            found([1, 2, 3, 4][: 2 * pages], [0, 1, 2, 3][: 2 * pages], 2 * pages),
            call=f"_tree_walk({tokens}), page size 2, in a tree of [1, 2, 3, 4, 5, 6]",
            look=PAGES,
        )


@test("nothing is found, and nothing is split")
def _(answer, check):
    for tokens in ([], [1, 2, 3], [9, 9, 9, 9], [1, 2, 3, 9]):
        tree = plant(answer.RadixTree(4), ([1, 2, 3, 4], [0, 1, 2, 3]))
        node, length = tree._tree_walk(RadixKey(tokens))
        call = f"_tree_walk({tokens}), page size 4, in a tree of [1, 2, 3, 4]"
        look = "without a whole page in common the walk ends at the root, with length 0"
        check.equal(length, 0, call=call, look=look)
        check.true(
            node is tree.root_node,
            call=call,
            expected="the root",
            actual=repr(node),
            look=look,
        )
        check.equal(
            [path for path, _, _ in nodes_of(TreeWorld(tree))],
            [[None, [1, 2, 3, 4]]],
            call=call,
            look="a node is split between its pages only, never before the first",
        )


@test("a child that matches in part ends the walk")
def _(answer, check):
    tree = plant(
        answer.RadixTree(1),
        ([1, 2, 3, 4], [0, 1, 2, 3]),
        ([1, 2, 3, 4, 5], [0, 0, 0, 0, 4]),
    )
    check.equal(
        walk(tree, [1, 2, 5]),
        found([1, 2], [0, 1], 2),
        call="_tree_walk([1, 2, 5]) in a tree of [1, 2, 3, 4] with [5] below",
        look="[5] continues [1, 2, 3, 4], not [1, 2]: a child that matches in part "
        "ends the walk",
    )


@test("what is stamped")
def _(answer, check):
    tree = plant(
        answer.RadixTree(1),
        ([1, 2], [0, 1]),
        ([1, 2, 3, 4], [0, 0, 2, 3]),
        ([7, 8], [4, 5]),
    )
    tree._tree_walk(RadixKey([1, 2, 3, 9]))
    check.equal(
        [(path[-1], stamp) for path, _, stamp in nodes_of(TreeWorld(tree))],
        [([1, 2], 4), ([3], 4), ([4], 2), ([7, 8], 3)],
        call="(tokens, stamp) of all nodes: insert [1, 2], [1, 2, 3, 4], [7, 8] at "
        "1, 2, 3, then _tree_walk([1, 2, 3, 9]) at 4",
        look=STAMPS,
    )


@test("every walk is one tick")
def _(answer, check):
    tree = answer.RadixTree(2)
    for tick, tokens in enumerate(([1, 2, 3, 4], [], [1], [1, 2], [5, 6]), start=1):
        tree._tree_walk(RadixKey(tokens))
        check.equal(
            tree.clock,
            tick,
            call=f"clock after {tick} walks",
            look="the clock counts walks, also those that find nothing",
        )


@test("namespaces separate at the root")
def _(answer, check):
    for mine, other in (("a", None), (None, "a"), ("a", "b")):
        tree = plant(
            answer.RadixTree(1),
            ([1, 2, 3, 4], [0, 1, 2, 3], mine),
            ([1, 2, 3, 4], [4, 5, 6, 7], other),
        )
        for space, slots in ((mine, [0, 1, 2]), (other, [4, 5, 6])):
            check.equal(
                walk(tree, [1, 2, 3, 9], space),
                found([1, 2, 3], slots, 3),
                call=f"_tree_walk(RadixKey([1, 2, 3, 9], {space!r})), where the "
                f"namespaces {mine!r} and {other!r} both hold [1, 2, 3, 4]",
                look="directly below the root a child's key carries the namespace: "
                "`self._child_key(key, 0)`",
            )


@test("the leaf that was used last is evicted last")
def _(answer, check):
    operations = [
        ("insert", [1, 2], [0, 1], None),
        ("insert", [3, 4], [2, 3], None),
        ("match", [1, 2], None),
        ("evict", 2),
    ]
    check.operations(
        operations,
        expected=lambda: Model(1),
        actual=lambda: Tree(answer.RadixTree(1)),
        look="tell the queue of leaves which node was just used, the one where the "
        "walk ends: `self.leaves.refresh(node)`",
        draw=draw,
    )


def random_operations(seed, page_size):
    """Prefixes that share much, so that the walk ends in all kinds of places."""
    rng = random.Random(seed)
    operations, slot = [], 0
    for _ in range(60):
        key = random_tokens(rng, page_size), rng.choice((None, None, "a"))
        choice = rng.random()
        if choice < 0.45:
            slots = list(range(slot, slot + len(key[0])))
            slot += len(slots)
            operations.append(("insert", key[0], slots, key[1]))
        elif choice < 0.9:
            operations.append(("match", *key))
        else:
            operations.append(("evict", rng.randrange(1, 3 * page_size)))
    return operations


@test("matches, inserts and evictions in any order")
def _(answer, check):
    for page_size in (1, 2, 4):
        for seed in (1, 2, 3):
            check.operations(
                random_operations(seed, page_size),
                expected=lambda size=page_size: Model(size),
                actual=lambda size=page_size: Tree(answer.RadixTree(size)),
                look="the slots found, the nodes and their stamps. " + STAMPS,
                draw=draw,
            )
