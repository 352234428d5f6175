"""Locks in exact small trees, and in long sequences against a model."""

import random

from grading import test
from minisgl.kvcache.base import LockError, StaleHandleError
from minisgl.kvcache.radix_key import RadixKey
from radix_world import PrefixModel, TreeWorld, draw_rows, plant_branch

SAME_NODES = (
    "lock and unlock walk the same nodes, from the end of the prefix to the root, "
    "however often the nodes were split in between"
)
STILL_READ = (
    "A has gone; nothing of B's prefix becomes evictable while B still reads it"
)


def state_of(world):
    nodes = ((path[1:], stamp, locks) for path, _, stamp, locks in world.rows())
    return {
        "sizes": world.sizes(),
        "nodes": sorted(nodes),
        "check_integrity()": world.integrity(),
    }


class Engine(TreeWorld):
    """The answer's tree."""

    state = state_of


class Model(PrefixModel):
    state = state_of


def draw(world):
    """The tree, with locks."""
    return draw_rows(
        world.state()["nodes"], lambda row: f"{row[0][-1]} locked {row[2]}x"
    )


def tree_of(answer, *prompts):
    """A tree into which `prompts` were inserted one after the other."""
    world = Engine(answer.RadixTree(1))
    for prompt in prompts:
        world.insert(prompt)
    return world


@test("the sequence of the statement ends with nothing locked", example=True)
def _(answer, check):
    world = tree_of(answer, [1, 2, 3, 4])
    world.lock("A", [1, 2, 3, 4])
    world.lock("B", [1, 2, 3, 4])
    call = "insert [1, 2, 3, 4]; A locks it; B locks it"
    check.equal(world.sizes(), (0, 4), call=call, look="each token is counted once")
    world.match([1, 2, 9])
    call += "; match [1, 2, 9]"
    look = "a split moves nothing from one size to the other"
    check.equal(world.sizes(), (0, 4), call=call, look=look)
    world.unlock("A")
    call += "; A unlocks"
    check.equal(world.sizes(), (0, 4), call=call, look=STILL_READ)
    world.unlock("B")
    call += "; B unlocks"
    check.equal(world.sizes(), (4, 0), call=call, look=SAME_NODES)


@test("one receipt protects its path and nothing else")
def _(answer, check):
    world = tree_of(answer, [1, 2, 3, 4], [1, 2, 5], [7])
    look = "every node from the end of the prefix to the root, and no other"
    world.lock("A", [1, 2, 3, 4])
    call = "[1, 2] -> ([3, 4], [5]), [7]; A locks [1, 2, 3, 4]"
    check.equal(world.sizes(), (2, 4), call=call, look=look)
    world.unlock("A")
    check.equal(world.sizes(), (6, 0), call=f"{call}; A unlocks", look=look)


@test("prefixes that part ways are protected as long as one is read")
def _(answer, check):
    prompts = [1, 2, 3, 4], [1, 2, 5], [1, 6]
    tree = "[1] -> ([2] -> ([3, 4], [5]), [6])"
    world = tree_of(answer, *prompts)
    world.lock("A", [1, 2, 3, 4])
    world.lock("B", [1, 2, 5])
    call = f"{tree}; A locks [1, 2, 3, 4], B [1, 2, 5]"
    check.equal(world.sizes(), (1, 5), call=call, look="each token is counted once")
    world.unlock("A")
    call += "; A unlocks"
    check.equal(world.sizes(), (3, 3), call=call, look=STILL_READ)
    world.unlock("B")
    call += "; B unlocks"
    check.equal(world.sizes(), (6, 0), call=call, look=SAME_NODES)


@test("what a receipt needs is not evicted")
def _(answer, check):
    world = tree_of(answer, [1, 2, 3, 4], [7])
    world.lock("A", [1, 2, 3, 4])
    world.lock("B", [1, 2, 3, 4])
    world.match([1, 9])
    world.match([1, 2, 9])
    world.unlock("A")
    call = "A and B lock [1, 2, 3, 4]; match [1, 9] and [1, 2, 9]; A unlocks"
    freed = world.evict(world.tree.evictable_size)
    check.equal(freed, [4], call=f"{call}; evict all", look=STILL_READ)
    world.unlock("B")
    freed = world.evict(world.tree.evictable_size)
    call += "; B unlocks; evict all"
    check.equal(freed, [2, 3, 1, 0], call=call, look=SAME_NODES)


@test("a lock that was given back is gone while others are held")
def _(answer, check):
    world = tree_of(answer, [1, 2, 3, 4], [7, 8])
    world.lock("D", [7, 8])
    world.lock("A", [1, 2, 3, 4])
    world.lock("B", [1, 2, 3, 4])
    world.match([1, 2, 9])
    world.unlock("A")
    world.unlock("B")
    call = "D locks [7, 8]; then the sequence of the statement"
    look = (
        "[1, 2] is needed by nobody, although somebody else is still running; a server "
        "may never be idle"
    )
    check.equal(world.sizes(), (4, 2), call=call, look=look)


@test("the counts are those of the receipts, at every node")
def _(answer, check):
    world = tree_of(answer, [1, 2, 3, 4], [1, 2, 5], [1, 6])
    names = {"A": [1, 2, 3, 4], "B": [1, 2, 5], "C": [1, 6], "D": [1, 2]}
    for name, tokens in names.items():
        world.lock(name, tokens)
    counts = [count for _, _, count in world.state()["nodes"]]
    call = "counts of [1], [2], [3, 4], [5], [6] under 4 receipts, to the ends of "
    call += "[3, 4], [5], [6] and [2]"
    check.equal(counts, [4, 3, 1, 1, 1], call=call, look=SAME_NODES)


@test("a receipt for nothing protects nothing")
def _(answer, check):
    world = tree_of(answer, [1, 2])
    look = "the root is no part of a prefix"
    world.lock("A", [9])
    check.equal(world.sizes(), (2, 0), call="lock what matches [9]", look=look)
    world.unlock("A")
    check.equal(world.sizes(), (2, 0), call="and unlock it", look=look)
    world = tree_of(answer)
    world.lock("A", [9])
    world.unlock("A")
    offence = world.state()["check_integrity()"]
    call = "lock and unlock what matches [9] in an empty tree; check_integrity()"
    check.equal(offence, "passes", call=call, look="the root is never evicted")


@test("a receipt is locked once and released once")
def _(answer, check):
    world = tree_of(answer, [1, 2])
    tree = world.tree
    handle = tree.match_prefix(RadixKey([1, 2]))
    look = "leave the receipts and the errors as they are"
    check.raises(
        LockError, lambda: tree.unlock(handle), call="unlock without lock", look=look
    )
    tree.lock(handle)
    check.raises(LockError, lambda: tree.lock(handle), call="lock twice", look=look)
    tree.unlock(handle)
    check.raises(LockError, lambda: tree.unlock(handle), call="unlock twice", look=look)
    check.equal(world.sizes(), (2, 0), call="the sizes after it", look=look)
    tree.evict(2)
    check.raises(
        StaleHandleError,
        lambda: tree.lock(handle),
        call="lock a handle whose prefix was evicted",
        look=look,
    )


@test("a branch far deeper than Python's stack")
def _(answer, check):
    depth = 1500
    world = tree_of(answer)
    plant_branch(world.tree, depth)
    world.lock("A", range(depth))
    call = f"lock a branch of {depth} nodes"
    look = "a loop, not a recursion"
    check.equal(world.sizes(), (0, depth), call=call, look=look)
    world.unlock("A")
    check.equal(world.sizes(), (depth, 0), call="and unlock it", look=look)


def random_life(seed, page_size):
    """Prompts that go on from earlier ones; up to four receipts; many splits."""
    rng = random.Random(seed)
    operations, prompts = [], [[]]
    for _ in range(60):
        start = rng.choice(prompts)[: rng.randrange(4 * page_size)]
        prompts.append(start + rng.choices((1, 2), k=rng.randrange(3 * page_size + 1)))
        tokens, name = rng.choice(prompts), rng.choice("ABCD")
        operations.append(
            rng.choice(
                [("insert", prompts[-1])] * 3
                + [("match", prompts[-1]), ("evict", rng.choice((1, 2, 5)))]
                + [("lock", name, tokens)] * 3
                + [("unlock", name)] * 2
            )
        )
    return operations


@test("long sequences, against a model without a tree")
def _(answer, check):
    for page_size in (1, 2, 4):
        for seed in (1, 5, 15):
            check.operations(
                random_life(seed, page_size),
                expected=lambda size=page_size: Model(size),
                actual=lambda size=page_size: Engine(answer.RadixTree(size)),
                look=SAME_NODES,
                draw=draw,
            )
