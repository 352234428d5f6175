"""Locks in small trees drawn by hand, and long sequences against a plain model.

The trees are the engine's but for the two methods; the model remembers, for every
page, which receipts need it.
"""

import random
from array import array

from grading import NotApplicable, draw_tree, test
from minisgl.errors import IntegrityError
from minisgl.kvcache.base import EvictionError, LockError, StaleHandleError
from minisgl.kvcache.radix_key import RadixKey

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


def grow(answer, *prefixes, page_size=1):
    """A tree with (tokens, slots) inserted in this order."""
    tree = answer.RadixTree(page_size)
    for tokens, slots in prefixes:
        tree.insert_prefix(RadixKey(tokens), array("i", slots))
    return tree


def match(tree, tokens):
    return tree.match_prefix(RadixKey(tokens))


def tree_state(tree):
    """Sizes, the number of receipts that are out, every node, and the recount."""
    rows, stack = [], [([], tree.root_node)]
    while stack:
        above, node = stack.pop()
        for child in node.children.values():
            path = [*above, child.key.tolist()]
            rows.append((path, child.value.tolist(), child.ref_count))
            stack.append((path, child))
    return {
        "(evictable, protected)": (tree.evictable_size, tree.protected_size),
        "receipts out": len(tree.receipts),
        "nodes": sorted(rows),
        "check_integrity()": integrity(tree),
    }


def integrity(tree):
    """What the tree's own recount says."""
    try:
        tree.check_integrity()
    except IntegrityError as error:
        return str(error)
    return "passes"


def check_locks(check, tree, sizes, locks, call, look):
    """`locks` has the ref_count of each node, parents first."""
    state = tree_state(tree)
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
    before = tree_state(tree)
    check.raises(error, function, call=call, look=look)
    check.equal(
        tree_state(tree),
        before,
        call=f"the tree after the refused {call}",
        look="a call that is refused changes nothing: check first. " + look,
    )


def two_nodes(answer):
    return grow(answer, ([1, 2], [10, 11]), ([1, 2, 3, 4, 5], [0, 0, 12, 13, 14]))


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
    tree = grow(answer, ([1, 2, 3, 4], [10, 11, 12, 13]))
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


class Model:
    """Every page by itself: its slots, its last use, and which receipts need it."""

    def __init__(self, page_size):
        self.page_size = page_size
        self.pages = {}  # tokens up to the end of a page -> [slots, stamp, locks]
        self.ends = set()  # those that end a node
        self.receipts = {}  # name -> [(prefix, its page) for each page of its path]
        self.locked = set()  # names of the receipts that are out
        self.clock = 0

    def insert(self, tokens, slots):
        known = len(self._walk(tokens)) * self.page_size
        for prefix in self._prefixes(tokens):
            page = slots[len(prefix) - self.page_size : len(prefix)]
            self.pages.setdefault(prefix, [page, self.clock, set()])
        if len(tokens) >= self.page_size:
            self.ends.add(prefix)
        return known

    def match(self, name, tokens):
        if name in self.locked:
            raise NotApplicable(f"{name} is in use")
        path = self._walk(tokens)
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

    def evict(self, size):
        if size > self._sizes()[0]:
            raise EvictionError(f"{size} tokens are not evictable")
        freed = []
        while len(freed) < size:
            inner = {prefix[: -self.page_size] for prefix in self.pages}
            leaves = [p for p in self.pages if p not in inner and not self.pages[p][2]]
            leaf = min(leaves, key=lambda prefix: self.pages[prefix][1])
            freed += self._row(leaf)[1]
            self.ends.remove(leaf)
            while leaf in self.pages and leaf not in self.ends:
                del self.pages[leaf]
                leaf = leaf[: -self.page_size]
        return freed

    def state(self):
        return {
            "(evictable, protected)": self._sizes(),
            "receipts out": len(self.locked),
            "nodes": sorted(map(self._row, self.ends)),
            "check_integrity()": "passes",
        }

    def _receipt(self, name):
        if name not in self.receipts:
            raise NotApplicable(f"{name} has no receipt")
        return self.receipts[name]

    def _walk(self, tokens):
        self.clock += 1
        found = []
        for prefix in self._prefixes(tokens):
            if prefix not in self.pages:
                break
            self.pages[prefix][1] = self.clock
            found.append(prefix)
        self.ends.update(found[-1:])
        return found

    def _prefixes(self, tokens):
        for end in range(self.page_size, len(tokens) + 1, self.page_size):
            yield tuple(tokens[:end])

    def _sizes(self):
        protected = sum(bool(page[2]) for page in self.pages.values())
        evictable = len(self.pages) - protected
        return evictable * self.page_size, protected * self.page_size

    def _row(self, end):
        """The node that ends there, as in `tree_state`."""
        path, slots, start = [], [], 0
        for prefix in self._prefixes(end):
            slots += self.pages[prefix][0]
            if prefix in self.ends:
                path.append(list(prefix[start:]))
                start = len(prefix)
        return path, slots[-len(path[-1]) :], len(self.pages[end][2])


class Tree:
    """The same with the answer."""

    def __init__(self, answer, page_size):
        self.tree = answer.RadixTree(page_size)
        self.handles = {}

    def insert(self, tokens, slots):
        key = RadixKey(tokens)
        return self.tree.insert_prefix(key, array("i", slots)).cached_len

    def match(self, name, tokens):
        self.handles[name] = match(self.tree, tokens)
        return self.handles[name].cached_len

    def lock(self, name):
        self.tree.lock(self.handles[name])

    def unlock(self, name):
        self.tree.unlock(self.handles[name])

    def evict(self, size):
        return self.tree.evict(size).tolist()

    def state(self):
        return tree_state(self.tree)


def draw(world):
    """Sizes, and the nodes of a world as a tree."""
    state = world.state()
    evictable, protected = state["(evictable, protected)"]

    def label(row):
        if row is None:
            return f"root  evictable {evictable}, protected {protected}"
        return f"{row[0][-1]}  slots {row[1]}  locked {row[2]}×"

    def children(row):
        above = row[0] if row else []
        return [node for node in state["nodes"] if node[0][:-1] == above]

    return draw_tree(None, children, label)


def random_tokens(rng, page_size):
    """Some pages that differ in their last token only, and a part of one."""
    tokens = []
    for last in rng.choices((1, 2), weights=(3, 1), k=rng.randrange(7)):
        tokens += [1] * (page_size - 1) + [last]
    return tokens + [1] * rng.randrange(page_size)


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
        actual=lambda: Tree(answer, 1),
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
                actual=lambda size=page_size: Tree(answer, size),
                look=f"{SIZES}. {RECEIPTS}",
                draw=draw,
            )
