"""Locks in small trees drawn by hand, and long sequences against a plain model.

The trees are the engine's but for the two methods; the model remembers, for every
page, which receipts need it.
"""

import random
from array import array

from grading import NotApplicable, test
from minisgl.kvcache.base import LockError, StaleHandleError
from minisgl.kvcache.radix_key import RadixKey
from radix_world import PrefixModel, TreeWorld, draw_rows, plant, random_tokens

PATH = (
    "a prefix needs every node from its end up to the root: each of them is locked and "
    "counted, the root alone is not"
)
SIZES = (
    "a node's tokens move once: from evictable to protected with its first lock, and "
    "back when its last lock is released"
)
RECEIPTS = (
    "a handle is a receipt, and `self.receipts` knows which are out; a node's count "
    "cannot tell whose lock it counts"
)
STALE = (
    "the prefix behind this handle was evicted, its slots may hold something else now: "
    "`handle.require_fresh()` raises StaleHandleError, before anything has changed"
)
QUEUE = (
    "a locked leaf whose turn came has left the queue; when it is released, and is an "
    "evictable leaf, it must join again: `self.leaves.add(node)`"
)


def match(tree, tokens):
    return tree.match_prefix(RadixKey(tokens))


def state_of(world):
    """Sizes, the number of receipts that are out, every node, and the recount."""
    nodes = ((path[1:], slots, locks) for path, slots, _, locks in world.rows())
    return {
        "(evictable, protected)": world.sizes(),
        "receipts out": world.receipts_out(),
        "nodes": sorted(nodes),
        "check_integrity()": world.integrity(),
    }


class Tree(TreeWorld):
    """The answer's tree. A name first matches, then locks what it found."""

    state = state_of

    def match(self, name, tokens):
        self.handles[name] = match(self.tree, tokens)
        return self.handles[name].cached_len

    def lock(self, name):
        self.tree.lock(self.handles[name])

    def unlock(self, name):
        self.tree.unlock(self.handles[name])

    def receipts_out(self):
        return len(self.tree.receipts)


def check_locks(check, tree, sizes, locks, call, look):
    """`locks` has the ref_count of each node, parents first."""
    state = state_of(Tree(tree))
    check.equal(
        {
            "(evictable, protected)": state["(evictable, protected)"],
            "ref_counts": [(path[-1], count) for path, _, count in state["nodes"]],
            "of the root": tree.root_node.ref_count,
        },
        {"(evictable, protected)": sizes, "ref_counts": locks, "of the root": 0},
        call=call,
        look=look,
    )


def check_refused(check, tree, error, function, call, look):
    """`function` raises `error` and changes nothing."""
    before = state_of(Tree(tree))
    check.raises(error, function, call=call, look=look)
    check.equal(
        state_of(Tree(tree)),
        before,
        call=f"the tree after the refused {call}",
        look="a call that is refused changes nothing: check first. " + look,
    )


def two_nodes(answer):
    return plant(
        answer.RadixTree(1), ([1, 2], [10, 11]), ([1, 2, 3, 4, 5], [0, 0, 12, 13, 14])
    )


@test("a lock covers the way up to the root", example=True)
def _(answer, check):
    tree = two_nodes(answer)
    handle = match(tree, [1, 2, 3, 4, 5])
    tree.lock(handle)
    call = "lock [1, 2, 3, 4, 5] in a tree of [1, 2] with [3, 4, 5] below"
    locks = [([1, 2], 1), ([3, 4, 5], 1)]
    check_locks(check, tree, (0, 5), locks, call, PATH)
    tree.unlock(handle)
    locks = [([1, 2], 0), ([3, 4, 5], 0)]
    check_locks(check, tree, (5, 0), locks, f"unlock again, after: {call}", PATH)


@test("two receipts share a node", example=True)
def _(answer, check):
    tree = two_nodes(answer)
    long, short = match(tree, [1, 2, 3, 4, 5]), match(tree, [1, 2])
    tree.lock(long)
    tree.lock(short)
    call = "lock [1, 2, 3, 4, 5], lock [1, 2]"
    locks = [([1, 2], 2), ([3, 4, 5], 1)]
    check_locks(check, tree, (0, 5), locks, call, SIZES)
    tree.unlock(long)
    locks = [([1, 2], 1), ([3, 4, 5], 0)]
    check_locks(check, tree, (3, 2), locks, f"{call}, unlock the first", SIZES)
    tree.unlock(short)
    locks = [([1, 2], 0), ([3, 4, 5], 0)]
    check_locks(check, tree, (5, 0), locks, f"{call}, unlock both", SIZES)


@test("a receipt is locked once")
def _(answer, check):
    tree = two_nodes(answer)
    handle = match(tree, [1, 2])
    tree.lock(handle)
    check_refused(
        check,
        tree,
        LockError,
        lambda: tree.lock(handle),
        "lock(handle) of a handle that is locked",
        RECEIPTS,
    )


@test("a receipt is released once")
def _(answer, check):
    tree = two_nodes(answer)
    handle, other = match(tree, [1, 2]), match(tree, [1, 2])
    call = "unlock(handle) of a handle that was never locked"
    check_refused(check, tree, LockError, lambda: tree.unlock(handle), call, RECEIPTS)
    tree.lock(other)
    call += ", while another handle has locked the same node"
    check_refused(check, tree, LockError, lambda: tree.unlock(handle), call, RECEIPTS)
    tree.lock(handle)
    tree.unlock(handle)
    call = (
        "unlock(handle) of a handle that was released before, while another handle has "
        "locked the same node"
    )
    check_refused(check, tree, LockError, lambda: tree.unlock(handle), call, RECEIPTS)


@test("a released receipt can be locked again")
def _(answer, check):
    tree = two_nodes(answer)
    handle = match(tree, [1, 2])
    for _ in range(2):
        tree.lock(handle)
        tree.unlock(handle)
    tree.lock(handle)
    locks = [([1, 2], 1), ([3, 4, 5], 0)]
    call = "lock, unlock, lock, unlock, lock [1, 2]"
    check_locks(check, tree, (3, 2), locks, call, RECEIPTS)


@test("a receipt of another tree is refused")
def _(answer, check):
    tree, other = two_nodes(answer), two_nodes(answer)
    handle = match(tree, [1, 2])
    tree.lock(handle)
    check_refused(
        check,
        other,
        LockError,
        lambda: other.unlock(handle),
        "other.unlock(handle), where the handle was locked in another tree",
        RECEIPTS,
    )


@test("an evicted prefix cannot be locked")
def _(answer, check):
    tree = two_nodes(answer)
    handle = match(tree, [1, 2, 3, 4, 5])
    tree.evict(3)
    call = "lock(handle) for [1, 2, 3, 4, 5], after evict(3) took [3, 4, 5]"
    check_refused(check, tree, StaleHandleError, lambda: tree.lock(handle), call, STALE)
    tree.insert_prefix(RadixKey([1, 2, 3, 4, 5]), array("i", [0, 0, 7, 8, 9]))
    call += ", and [1, 2, 3, 4, 5] came back in other slots"
    check_refused(check, tree, StaleHandleError, lambda: tree.lock(handle), call, STALE)


@test("a receipt for nothing is still a receipt")
def _(answer, check):
    tree = two_nodes(answer)
    handle = match(tree, [9])
    call = "lock(handle) of a handle for 0 tokens"
    tree.lock(handle)
    locks = [([1, 2], 0), ([3, 4, 5], 0)]
    check_locks(check, tree, (5, 0), locks, call, PATH)
    check_refused(
        check, tree, LockError, lambda: tree.lock(handle), f"{call}, twice", RECEIPTS
    )
    tree.unlock(handle)
    check_refused(
        check,
        tree,
        LockError,
        lambda: tree.unlock(handle),
        "unlock(handle) of a handle for 0 tokens, twice",
        RECEIPTS,
    )


@test("a node is split between lock and release")
def _(answer, check):
    tree = plant(answer.RadixTree(1), ([1, 2, 3, 4], [10, 11, 12, 13]))
    handle = match(tree, [1, 2, 3, 4])
    tree.lock(handle)
    match(tree, [1, 9])
    call = "lock [1, 2, 3, 4], match [1, 9]"
    locks = [([1], 1), ([2, 3, 4], 1)]
    check_locks(check, tree, (0, 4), locks, call, PATH)
    tree.unlock(handle)
    locks = [([1], 0), ([2, 3, 4], 0)]
    look = "both halves are on the way up from the handle's node, whatever was split"
    check_locks(check, tree, (4, 0), locks, f"{call}, unlock", look)


# --- sequences ------------------------------------------------------------------------


class Model(PrefixModel):
    """The same, for every page by itself: `pages` knows who has locked it."""

    state = state_of

    def __init__(self, page_size):
        super().__init__(page_size)
        self.receipts = {}  # name -> [(prefix, its page) for each page of its path]
        self.locked = set()  # names of the receipts that are out

    def match(self, name, tokens):
        if name in self.locked:
            raise NotApplicable(f"{name} is in use")
        path = self.walk(tokens)
        self.receipts[name] = [(prefix, self.pages[prefix]) for prefix in path]
        return len(path) * self.page_size

    def lock(self, name):
        path = self._receipt(name)
        if any(self.pages.get(prefix) is not page for prefix, page in path):
            raise StaleHandleError(f"the prefix of {name} is gone")
        if name in self.locked:
            raise LockError(f"{name} is locked")
        self.locked.add(name)
        for _, page in path:
            page[2].add(name)

    def unlock(self, name):
        path = self._receipt(name)
        if name not in self.locked:
            raise LockError(f"{name} is not locked")
        self.locked.remove(name)
        for _, page in path:
            page[2].remove(name)

    def receipts_out(self):
        return len(self.locked)

    def _receipt(self, name):
        if name not in self.receipts:
            raise NotApplicable(f"{name} has no receipt")
        return self.receipts[name]


def draw(world):
    """Sizes, and the nodes of a world as a tree."""
    evictable, protected = world.sizes()
    return draw_rows(
        world.state()["nodes"],
        lambda row: f"{row[0][-1]}  slots {row[1]}  locked {row[2]}×",
        root=f"root  evictable {evictable}, protected {protected}",
    )


def random_operations(seed, page_size):
    """Receipts taken, locked and released in any order, also twice, and evictions."""
    rng = random.Random(seed)
    operations, known, slot = [], [[]], 0
    for _ in range(60):
        name, choice = rng.choice("ABC"), rng.random()
        if choice < 0.25:
            tokens = random_tokens(rng, page_size)
            known.append(tokens)
            operations.append(
                ("insert", tokens, [slot + i for i in range(len(tokens))])
            )
            slot += len(tokens)
        elif choice < 0.45:
            operations.append(("match", name, rng.choice(known)))
            operations.append(("lock", name))
        elif choice < 0.55:
            operations.append(("match", name, rng.choice(known)))
        elif choice < 0.65:
            operations.append(("lock", name))
        elif choice < 0.82:
            operations.append(("unlock", name))
        else:
            operations.append(("evict", rng.randrange(1, 2 * page_size + 1)))
    return operations


@test("a released leaf can be evicted again")
def _(answer, check):
    operations = [
        ("insert", [1, 2], [0, 1]),
        ("match", "A", [1, 2]),
        ("lock", "A"),
        ("insert", [3, 4], [2, 3]),
        ("evict", 2),
        ("unlock", "A"),
        ("evict", 2),
    ]
    check.operations(
        operations,
        expected=lambda: Model(1),
        actual=lambda: Tree(answer.RadixTree(1)),
        look=QUEUE,
        draw=draw,
    )


@test("locks, releases, splits and evictions in any order")
def _(answer, check):
    for page_size in (1, 2, 4):
        for seed in (1, 2, 3):
            check.operations(
                random_operations(seed, page_size),
                expected=lambda size=page_size: Model(size),
                actual=lambda size=page_size: Tree(answer.RadixTree(size)),
                look=f"{SIZES}. {RECEIPTS}",
                draw=draw,
            )
