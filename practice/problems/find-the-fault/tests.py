"""Locks in exact small trees, and in long sequences against a model."""

import random
from array import array

from grading import NotApplicable, draw_tree, test
from minisgl.errors import IntegrityError
from minisgl.kvcache.base import EvictionError, LockError, StaleHandleError
from minisgl.kvcache.radix_key import RadixKey

SAME_NODES = (
    "lock and unlock walk the same nodes, from the end of the prefix to the root, "
    "however often the nodes were split in between"
)
STILL_READ = (
    "A has gone; nothing of B's prefix becomes evictable while B still reads it"
)


class Engine:
    """The answer's tree; slots are numbered as they come."""

    def __init__(self, answer, page_size=1):
        self.tree = answer.RadixTree(page_size)
        self.handles = {}
        self.num_slots = 0

    def insert(self, tokens):
        slots = array("i", range(self.num_slots, self.num_slots + len(tokens)))
        self.num_slots += len(tokens)
        return self.tree.insert_prefix(RadixKey(tokens), slots).cached_len

    def match(self, tokens):
        return self.tree.match_prefix(RadixKey(tokens)).cached_len

    def lock(self, name, tokens):
        self.handles[name] = self.tree.match_prefix(RadixKey(tokens))
        return self.tree.lock(self.handles[name])

    def unlock(self, name):
        return self.tree.unlock(self.handles.pop(name))

    def evict(self, size):
        return self.tree.evict(size).tolist()

    def sizes(self):
        return self.tree.evictable_size, self.tree.protected_size

    def state(self):
        nodes = [node for node in self.tree.nodes() if node.parent]
        return {
            "sizes": self.sizes(),
            "nodes": sorted((path(n), n.timestamp, n.ref_count) for n in nodes),
            "check_integrity()": self._offence(),
        }

    def _offence(self):
        try:
            self.tree.check_integrity()
        except IntegrityError as error:
            return str(error)
        return "finds nothing"


def path(node):
    """The tokens from the root to the end of `node`."""
    tokens = []
    while node is not None:
        tokens = node.key.tolist() + tokens
        node = node.parent
    return tokens


class Model:
    """The same without a tree: prefixes are tuples, and a node is where one ends."""

    def __init__(self, page_size):
        self.page_size = page_size
        self.clock = 0
        self.num_slots = 0
        self.slots = {}  # prefix -> slots of its last page
        self.used = {}  # prefix at which a node ends -> when it was last used
        self.locked = {}  # name -> prefix

    def match(self, tokens):
        return len(self._walk(tokens))

    def insert(self, tokens):
        slots = range(self.num_slots, self.num_slots + len(tokens))
        self.num_slots += len(tokens)
        found = end = len(self._walk(tokens))
        while end + self.page_size <= len(tokens):
            start, end = end, end + self.page_size
            self.slots[tuple(tokens[:end])] = list(slots[start:end])
        if found < end:
            self.used[tuple(tokens[:end])] = self.clock
        return found

    def lock(self, name, tokens):
        if name in self.locked:
            raise NotApplicable(f"{name} holds a lock")
        self.locked[name] = self._walk(tokens)

    def unlock(self, name):
        if name not in self.locked:
            raise NotApplicable(f"{name} holds no lock")
        del self.locked[name]

    def evict(self, size):
        freed = []
        if size > self.state()["sizes"][0]:
            raise EvictionError
        while len(freed) < size:
            node = min(self._leaves(), key=self.used.get)
            for page in self._pages(node):
                freed += self.slots.pop(page)
            del self.used[node]
        return freed

    def state(self):
        sizes = [0, 0]
        for node in self.used:
            sizes[self._num_locks(node) > 0] += self.page_size * len(self._pages(node))
        nodes = sorted((list(n), t, self._num_locks(n)) for n, t in self.used.items())
        return {
            "sizes": tuple(sizes),
            "nodes": nodes,
            "check_integrity()": "finds nothing",
        }

    def _walk(self, tokens):
        """The longest stored prefix; everything on its way is used now."""
        self.clock += 1
        end = len(tokens) // self.page_size * self.page_size
        while end and tuple(tokens[:end]) not in self.slots:
            end -= self.page_size
        prefix = tuple(tokens[:end])
        if prefix:
            self.used[prefix] = self.clock  # where a match ends, a node ends
        for node in self.used:
            if prefix[: len(node)] == node:
                self.used[node] = self.clock
        return prefix

    def _pages(self, node):
        """The prefixes that end with a page of this node."""
        above = [n for n in self.used if n != node and node[: len(n)] == n]
        start = max(map(len, above), default=0)
        ends = range(start, len(node), self.page_size)
        return [node[: end + self.page_size] for end in ends]

    def _num_locks(self, node):
        return sum(held[: len(node)] == node for held in self.locked.values())

    def _leaves(self):
        inner = {n[:end] for n in self.used for end in range(len(n))}
        return [n for n in self.used if n not in inner and not self._num_locks(n)]


def draw(world):
    """The tree, with locks."""
    locks = {tuple(prefix): count for prefix, _, count in world.state()["nodes"]}

    def parent(prefix):
        above = [n for n in locks if n != prefix and prefix[: len(n)] == n]
        return max(above, key=len, default=())

    def label(prefix):
        if not prefix:
            return "root"
        tokens = list(prefix[len(parent(prefix)) :])
        return f"{tokens} locked {locks[prefix]}x"

    return draw_tree(
        (), lambda prefix: [n for n in sorted(locks) if parent(n) == prefix], label
    )


def tree_of(answer, *prompts):
    """A tree into which `prompts` were inserted one after the other."""
    world = Engine(answer)
    for prompt in prompts:
        world.insert(prompt)
    return world


def grow_branch(tree, depth):
    """A branch of `depth` nodes of one token each; token and slot are the depth."""
    tokens = array("i", range(depth))
    tree.insert_prefix(RadixKey(tokens), tokens)
    for end in range(depth - 1, 0, -1):
        tree.match_prefix(RadixKey(tokens[:end]))  # splits off the last token


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
    world = Engine(answer)
    world.lock("A", [9])
    world.unlock("A")
    offence = world.state()["check_integrity()"]
    call = "lock and unlock what matches [9] in an empty tree; check_integrity()"
    check.equal(offence, "finds nothing", call=call, look="the root is never evicted")


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
    world = Engine(answer)
    grow_branch(world.tree, depth)
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
                actual=lambda size=page_size: Engine(answer, size),
                look=SAME_NODES,
                draw=draw,
            )
