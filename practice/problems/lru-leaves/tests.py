"""Eviction in exact small trees, and in long sequences against a model.

The tree is the engine's, with the queue of leaves below in place of its own.
"""

import random
from array import array

from grading import test
from minisgl.kvcache.base import EvictionError, StaleHandleError
from minisgl.kvcache.radix_key import RadixKey, namespace
from radix_world import PrefixModel, TreeWorld, draw_rows, path, plant_branch

STOP = "stop as soon as `size` tokens are gone; only the last leaf may overshoot"
ENDLESS = (
    "when nothing more can go, no round of the loop will find anything: refuse before "
    "the loop begins"
)
UNTOUCHED = "refuse before the first leaf goes, so that a refusal changes nothing"
INNER = "`evictable_size` says what can go: an inner node counts too, unless locked"
OWN_TURN = (
    "a parent that became a leaf joins the queue and waits for its own turn there: it "
    "may have been used later than other leaves"
)


class StillLooking(Exception):
    """The queue was empty, and somebody kept asking."""


class LeafQueue:
    """The engine's queue of leaves, told plainly: a list that is searched."""

    def __init__(self):
        self.nodes = []
        self.wrongly_added = []
        self.times_empty = 0

    def add(self, node):
        if not node.is_evictable_leaf():
            self.wrongly_added.append(node)
        if node not in self.nodes:
            self.nodes.append(node)

    def refresh(self, node):
        pass

    def discard(self, node):
        if node in self.nodes:
            self.nodes.remove(node)

    def pop_oldest(self):
        leaves = [node for node in self.nodes if node.is_evictable_leaf()]
        if not leaves:
            self.times_empty += 1
            if self.times_empty > 100:
                raise StillLooking("pop_oldest() of an empty queue, 100 times")
            raise LookupError("no leaf in the queue may be evicted")
        node = min(leaves, key=lambda leaf: leaf.timestamp)
        self.nodes.remove(node)
        return node


class Engine(TreeWorld):
    """The answer's tree, with the queue above."""

    def __init__(self, answer, page_size=1):
        super().__init__(answer.RadixTree(page_size))
        self.tree.leaves = LeafQueue()

    def evict(self, size):
        return self.tree.evict(size)

    def state(self):
        queue = self.tree.leaves
        queued = [n for n in queue.nodes if n.is_evicted or n.is_evictable_leaf()]
        return {
            "sizes": self.sizes(),
            "nodes": nodes_of(self),
            "queue": sorted(path(node) for node in queued),
            "queued, but may not go": [path(node) for node in queue.wrongly_added],
        }


class Model(PrefixModel):
    """The same without a tree, and so without a queue."""

    def evict(self, size):
        return array("i", super().evict(size))

    def state(self):
        return {
            "sizes": self.sizes(),
            "nodes": nodes_of(self),
            "queue": sorted(list(tokens) for _, *tokens in self.leaves()),
            "queued, but may not go": [],
        }


def nodes_of(world):
    """(path, slots, locks) of every node."""
    return sorted((path[1:], slots, locks) for path, slots, _, locks in world.rows())


def draw(world):
    """The tree, with slots and locks."""

    def label(row):
        nodes, slots, locks = row
        return f"{nodes[-1]} slots {slots}" + f", locked {locks}x" * (locks > 0)

    return draw_rows(world.state()["nodes"], label)


def grow(answer, *prompts, page_size=1):
    """A tree into which `prompts` were inserted one after the other."""
    world = Engine(answer, page_size)
    for prompt in prompts:
        world.insert(prompt)
    return world


def check_evict(check, world, size, slots, *, call, look):
    try:
        freed = world.evict(size)
    except EvictionError as error:
        freed = f"EvictionError: {error}"
    check.equal(freed, array("i", slots), call=call, look=look)


@test("the oldest leaf goes, and no more than needed", example=True)
def _(answer, check):
    world = grow(answer, [1, 2], [3, 4], [5, 6])
    call = "evict(2) after inserting [1, 2], [3, 4] and [5, 6]"
    check_evict(check, world, 2, [0, 1], call=call, look=STOP)
    check.equal(world.sizes(), (4, 0), call=f"the sizes after {call}", look=STOP)
    check.equal(
        world.match([3, 4]), [2, 3], call=f"match [3, 4] after {call}", look=STOP
    )


@test("a parent goes after its last child", example=True)
def _(answer, check):
    world = Engine(answer)
    world.insert([1, 2], [0, 1])
    world.insert([1, 2, 3], [0, 1, 2])
    world.insert([1, 2, 4], [0, 1, 3])
    call = "evict(3) of [1, 2] with [3] and [4] below it"
    check_evict(check, world, 3, [2, 3, 0, 1], call=call, look=INNER)
    check.equal(world.sizes(), (0, 0), call=f"the sizes after {call}", look=INNER)


@test("evict(0) takes nothing")
def _(answer, check):
    world = grow(answer, [1, 2])
    check_evict(check, world, 0, [], call="evict(0)", look=STOP)
    check.equal(world.sizes(), (2, 0), call="the sizes after evict(0)", look=STOP)


@test("a leaf goes as a whole")
def _(answer, check):
    world = grow(answer, [1, 2, 3])
    look = "a node is evicted with all its tokens, or not at all"
    check_evict(check, world, 1, [0, 1, 2], call="evict(1)", look=look)
    check.equal(world.sizes(), (0, 0), call="the sizes after evict(1)", look=look)


@test("a parent that was used later than another leaf goes after it")
def _(answer, check):
    world = grow(answer, [1, 2, 3])
    world.match([1])
    world.insert([5])
    world.match([1])
    call = "evict(3) with [1] -> [2, 3] and [5], where [1] was used last"
    check_evict(check, world, 3, [1, 2, 3], call=call, look=OWN_TURN)
    check.equal(world.match([1]), [0], call=f"match [1] after {call}", look=OWN_TURN)


@test("a parent that was used earlier than another leaf goes before it")
def _(answer, check):
    world = grow(answer, [1], [1, 2], [5])
    look = "a parent whose last child is gone is a leaf: it joins the queue"
    call = "evict(2) with [1] -> [2] and [5], where [5] was used last"
    check_evict(check, world, 2, [2, 0], call=call, look=look)


@test("what is locked stays, and its parents with it")
def _(answer, check):
    world = grow(answer, [1, 2], [1, 2, 3], [1, 2, 4], [7])
    world.lock("a", [1, 2, 3])
    call = "evict(2) with [1, 2] -> ([3], [4]) and [7], where [1, 2, 3] is locked"
    look = "a locked node is never evicted, nor is it queued"
    check_evict(check, world, 2, [7, 8], call=call, look=look)
    check.equal(world.sizes(), (0, 3), call=f"the sizes after {call}", look=look)
    world = grow(answer, [1, 2, 3])
    world.lock("a", [1, 2])
    call = "evict(1) with [1, 2] -> [3], where [1, 2] is locked"
    check_evict(check, world, 1, [2], call=call, look=look)
    wrong = world.state()["queued, but may not go"]
    check.equal(wrong, [], call=f"what joined the queue in {call}", look=look)
    world.unlock("a")
    call = "evict(1) when it was unlocked again"
    check_evict(check, world, 1, [0, 1], call=call, look=look)


@test("the root stays, and an empty tree can be filled again")
def _(answer, check):
    world = grow(answer, [1, 2], [3])
    look = "the root is no leaf: it never joins the queue, and nothing evicts it"
    check_evict(check, world, 3, [0, 1, 2], call="evict(3)", look=look)
    wrong = world.state()["queued, but may not go"]
    check.equal(wrong, [], call="what joined the queue in evict(3)", look=look)
    check.equal(world.insert([9]), 0, call="insert [9] after evict(3)", look=look)
    check_evict(check, world, 1, [3], call="evict(1) after it", look=look)


@test("when everything is locked it refuses at once")
def _(answer, check):
    world = grow(answer, [1, 2], [3, 4])
    world.lock("a", [1, 2])
    world.lock("b", [3, 4])
    call = "evict(1) when everything is locked"
    check.raises(
        EvictionError,
        lambda: world.evict(1),
        call=call,
        look=ENDLESS,
        mentions=("1", "0"),
    )
    check.equal(world.sizes(), (0, 4), call=f"the sizes after {call}", look=UNTOUCHED)


@test("a refusal names both numbers and changes nothing")
def _(answer, check):
    for size in (5, -1):
        world = grow(answer, [1, 2], [3, 4])
        before = world.state()
        call = f"evict({size}) when 4 tokens are evictable"
        check.raises(
            EvictionError,
            lambda world=world, size=size: world.evict(size),
            call=call,
            look="4 tokens are evictable; the error says so, and how many were wanted",
            mentions=(str(size), "4"),
        )
        check.equal(
            world.state(), before, call=f"the tree after {call}", look=UNTOUCHED
        )


@test("the handle of an evicted prefix is refused")
def _(answer, check):
    world = grow(answer, [1, 2])
    handle = world.tree.match_prefix(RadixKey([1, 2]))
    world.evict(1)
    check.raises(
        StaleHandleError,
        handle.matched_slots,
        call="matched_slots() of a handle whose prefix was evicted",
        look="mark what you remove `is_evicted`, so that nobody reads its slots",
    )
    world.insert([1, 2])
    check.raises(
        StaleHandleError,
        lambda: world.tree.lock(handle),
        call="lock of the old handle when the prefix is back, in other slots",
        look="mark what you remove `is_evicted`: it does not come back with its tokens",
    )


@test("a prompt with a namespace is unlinked under its own name")
def _(answer, check):
    world = grow(answer, [1, 2])
    key = RadixKey([1, 2], namespace(lora="french"))
    world.tree.insert_prefix(key, array("i", [8, 9]))
    look = "a node is found under `node.child_key`, which is not always its first page"
    call = "evict(2) of [1, 2], with the same tokens of another namespace beside them"
    check_evict(check, world, 2, [0, 1], call=call, look=look)
    found = world.tree.match_prefix(key).cached_len
    check.equal(found, 2, call="match of the other namespace after it", look=look)
    check_evict(check, world, 2, [8, 9], call="evict(2) again", look=look)


@test("a long conversation goes from its end to its beginning")
def _(answer, check):
    depth = 1500
    world = Engine(answer)
    plant_branch(world.tree, depth)
    call = f"evict({depth}) of one branch of {depth} nodes"
    look = "a loop, not a recursion: a branch may be deeper than Python's stack"
    freed = world.evict(depth)
    check.equal(freed, array("i", reversed(range(depth))), call=call, look=look)


def random_life(seed, page_size):
    """Prompts that go on from earlier ones; now and then too much is to be evicted."""
    rng = random.Random(seed)
    operations, prompts = [], [[]]
    for _ in range(60):
        start = rng.choice(prompts)[: rng.randrange(3 * page_size)]
        prompts.append(start + rng.choices((1, 2), k=rng.randrange(2 * page_size + 1)))
        tokens, name = rng.choice(prompts), rng.choice("ab")
        size = rng.choice((0, 1, 1, 2, 3, 5, 8, 13, 21))
        operations.append(
            rng.choice(
                [("insert", prompts[-1])] * 4
                + [("match", tokens), ("lock", name, tokens)]
                + [("unlock", name), ("evict", size), ("evict", size)]
            )
        )
    return operations


@test("long sequences, against a model without a tree")
def _(answer, check):
    for page_size in (1, 2, 4):
        for seed in (1, 2, 3):
            check.operations(
                random_life(seed, page_size),
                expected=lambda size=page_size: Model(size),
                actual=lambda size=page_size: Engine(answer, size),
                look="whole leaves, the one unused for longest first; a parent without "
                "children joins the queue",
                draw=draw,
            )
