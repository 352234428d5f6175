"""The queue of leaves: by hand, counted, and inside the engine's tree."""

import random

from grading import test
from minisgl.errors import IntegrityError
from minisgl.kvcache.radix_tree import RadixTree
from radix_world import PrefixModel, TreeWorld, draw_rows

ORDER = "the evictable leaf whose `timestamp` is the lowest comes out"
JOINS = (
    "a leaf that was not used just now joins where its last use puts it: behind older "
    "ones, before newer ones"
)
STALE = (
    "an entry of the heap does not move when its node is used: if it is older than the "
    "node's stamp when it comes up, the node belongs further back"
)
ASK = (
    "nobody tells the queue of locks, nor that a leaf in the heap got a child: ask the "
    "node itself when its turn comes"
)
ONE_ENTRY = "one entry for a node is enough; `node.is_late` says that there is one"
FAST = (
    "one leaf is wanted of thousands: keep them in order instead of looking for the "
    "oldest"
)


class Looks:
    """How often nodes were looked at, or their stamps compared."""

    count = 0


class Stamp(int):
    """A number that counts how often it is compared."""

    def _counted(name):
        compare = getattr(int, name)

        def method(self, other):
            Looks.count += 1
            return compare(self, other)

        return method

    __lt__, __le__ = _counted("__lt__"), _counted("__le__")
    __gt__, __ge__ = _counted("__gt__"), _counted("__ge__")
    __eq__, __ne__ = _counted("__eq__"), _counted("__ne__")
    __hash__ = int.__hash__


class Leaf:
    """Stands for a node of the tree: what a queue may ask it, and set."""

    def __init__(self, name, timestamp):
        self.name = name
        self.timestamp = Stamp(timestamp)
        self.is_late = False
        self.children = {}
        self.parent = "the root"
        self.ref_count = 0
        self.is_evicted = False

    def is_evictable_leaf(self):
        return not self.children and not self.ref_count

    def __getattribute__(self, name):
        Looks.count += 1
        return object.__getattribute__(self, name)

    def __hash__(self):
        Looks.count += 1
        return object.__hash__(self)

    def __repr__(self):
        return f"leaf {self.name}"


class Leaves:
    """Leaves that are known by a name, and the answer's queue."""

    def __init__(self, answer, names=""):
        self.queue = answer.LeafQueue()
        self.leaves = {}
        self.clock = 0
        for name in names:
            self.new(name)

    def new(self, name):
        self.clock += 1
        self.leaves[name] = Leaf(name, self.clock)
        self.queue.add(self.leaves[name])

    def use(self, *names):
        for name in names:
            self.clock += 1
            self.leaves[name].timestamp = Stamp(self.clock)
            self.queue.refresh(self.leaves[name])

    def lock(self, *names):
        for name in names:
            self.leaves[name].ref_count += 1

    def unlock(self, *names):
        for name in names:
            self.leaves[name].ref_count -= 1
            self.queue.add(self.leaves[name])

    def get_child(self, name):
        self.leaves[name].children["page"] = "child"
        self.queue.discard(self.leaves[name])

    def lose_child(self, name):
        self.leaves[name].children.clear()
        self.queue.add(self.leaves[name])

    def places(self):
        """The names in `_in_order`, and those in the heap."""
        in_order = "".join(leaf.name for leaf in self.queue._in_order)
        return in_order, "".join(sorted(leaf.name for _, leaf in self.queue._late))

    def pop(self, count=1):
        """The names of the next `count` leaves."""
        names = []
        for _ in range(count):
            leaf = self.queue.pop_oldest()
            names.append(leaf.name)
            leaf.parent, leaf.is_evicted = None, True
            del self.leaves[leaf.name]
        return names


@test("leaves come out oldest first", example=True)
def _(answer, check):
    leaves = Leaves(answer, "abc")
    look = ORDER
    check.equal(leaves.pop(3), ["a", "b", "c"], call="add a, b, c; pop 3", look=look)
    leaves = Leaves(answer, "abc")
    leaves.use("a", "b", "a")
    call = "add a, b, c; use a, b, a; pop 3"
    check.equal(leaves.pop(3), ["c", "b", "a"], call=call, look=look)


@test("a locked leaf is passed over, and joins again", example=True)
def _(answer, check):
    leaves = Leaves(answer, "abc")
    leaves.lock("a")
    call = "add a, b, c; lock a; pop 1"
    check.equal(leaves.pop(), ["b"], call=call, look=ASK)
    leaves.unlock("a")
    call += "; unlock a; pop 2"
    check.equal(leaves.pop(2), ["a", "c"], call=call, look=JOINS)


@test("a leaf that is locked and released before its turn keeps its place")
def _(answer, check):
    leaves = Leaves(answer, "abc")
    leaves.lock("b")
    leaves.unlock("b")
    call = "add a, b, c; lock and unlock b; pop 3"
    check.equal(leaves.pop(3), ["a", "b", "c"], call=call, look=JOINS)


@test("a node that has a child is not handed out")
def _(answer, check):
    leaves = Leaves(answer, "abc")
    leaves.get_child("a")
    call = "add a, b, c; a gets a child; pop 1"
    check.equal(leaves.pop(), ["b"], call=call, look=ASK)
    leaves.lose_child("a")
    call += "; a loses it; pop 2"
    check.equal(leaves.pop(2), ["a", "c"], call=call, look=JOINS)


@test("a parent joins by its own last use")
def _(answer, check):
    leaves = Leaves(answer, "abcd")
    leaves.get_child("b")
    leaves.get_child("c")
    leaves.lose_child("c")
    leaves.lose_child("b")
    call = "add a, b, c, d; b and c get a child; c, then b, loses it; pop 4"
    check.equal(leaves.pop(4), ["a", "b", "c", "d"], call=call, look=JOINS)


@test("leaves released late come out by their last use")
def _(answer, check):
    leaves = Leaves(answer, "abcdef")
    leaves.lock("a", "c", "d")
    call = "add a to f; lock a, c, d; pop 2"
    check.equal(leaves.pop(2), ["b", "e"], call=call, look=ORDER)
    leaves.unlock("d", "a", "c")
    call += "; unlock d, a, c; pop 4"
    check.equal(leaves.pop(4), ["a", "c", "d", "f"], call=call, look=JOINS)


@test("only a leaf that joins with an older stamp waits in the heap")
def _(answer, check):
    leaves = Leaves(answer, "abcde")
    look = "who was used just now goes to the end of `_in_order`, which takes one step"
    call = "add a to e"
    check.equal(leaves.places(), ("abcde", ""), call=call, look=look)
    leaves.use("b")
    check.equal(leaves.places(), ("acdeb", ""), call=f"{call}; use b", look=look)
    leaves.get_child("d")
    leaves.get_child("b")
    call += "; use b; d and b get a child"
    check.equal(leaves.places(), ("ace", ""), call=call, look="they are no leaves now")
    leaves.lose_child("d")
    leaves.lose_child("b")
    call += "; and lose it"
    look = "d is older than b, which was the newest; b joins as the newest again"
    check.equal(leaves.places(), ("aceb", "d"), call=call, look=look)


def leaves_in_the_heap(answer):
    """a, b and c were released after their turn; d is in order behind them."""
    leaves = Leaves(answer, "abcxd")
    leaves.lock("a", "b", "c")
    leaves.pop()
    leaves.unlock("c", "b", "a")
    return leaves, "add a, b, c, x, d; lock a, b, c; pop x; unlock c, b, a"


@test("a leaf that is used while it waits in the heap is put right")
def _(answer, check):
    leaves, call = leaves_in_the_heap(answer)
    leaves.use("a")
    call += "; use a; pop 4"
    check.equal(leaves.pop(4), ["b", "c", "d", "a"], call=call, look=STALE)
    leaves, call = leaves_in_the_heap(answer)
    leaves.use("a", "d", "b")
    call += "; use a, d, b; pop 4"
    check.equal(leaves.pop(4), ["c", "a", "d", "b"], call=call, look=STALE)


@test("what is locked or gets a child in the heap is not handed out")
def _(answer, check):
    leaves, call = leaves_in_the_heap(answer)
    leaves.lock("b")
    leaves.get_child("c")
    call += "; lock b; c gets a child; pop 2"
    check.equal(leaves.pop(2), ["a", "d"], call=call, look=ASK)
    leaves.new("e")
    leaves.lose_child("c")
    leaves.unlock("b")
    call += "; add e; c loses its child; unlock b; pop 3"
    check.equal(leaves.pop(3), ["b", "c", "e"], call=call, look=JOINS)


@test("a leaf is queued once, however often it is used and released")
def _(answer, check):
    leaves, call = leaves_in_the_heap(answer)
    for _ in range(50):
        for name in "abcd":
            leaves.lock(name)
            leaves.use(name)
            leaves.unlock(name)
    call += "; 50 times: lock, use and unlock a, b, c, d"
    queue = leaves.queue
    entries = len(queue._in_order) + len(queue._late)
    check.equal(entries, 4, call=f"entries after {call}", look=ONE_ENTRY)
    check.equal(leaves.pop(4), list("abcd"), call=f"{call}; pop 4", look=STALE)


def count_looks(leaves, rounds, rng):
    """Uses and releases leaves and takes one out, `rounds` times.

    Returns the looks of a round, on average, and whether the right leaves came.
    """
    expected = sorted(leaves.leaves, key=lambda name: leaves.leaves[name].timestamp)
    right = True
    Looks.count = 0
    for _ in range(rounds):
        name = rng.choice(expected)
        leaves.use(name)
        leaves.lock(name)
        leaves.unlock(name)
        expected.remove(name)
        expected.append(name)
        right = right and leaves.pop() == [expected.pop(0)]
    return Looks.count // rounds, right


@test("taking one of many leaves does not look at them all")
def _(answer, check):
    rng = random.Random(1)
    many, rounds = 1000, 100
    leaves = Leaves(answer, range(many))
    late = rng.sample(range(many), many // 2)
    for name in late:
        leaves.get_child(name)
    for name in late:
        leaves.lose_child(name)
    looks, right = count_looks(leaves, rounds, rng)
    call = f"{many} leaves, half of them joined late: use one, take one, {rounds} times"
    check.true(right, call=call, expected="by last use", actual="not so", look=ORDER)
    check.true(
        looks <= 150,
        call=call,
        expected="at most 150 looks at nodes and stamps for one that is taken out",
        actual=f"{looks} looks, on average",
        look=FAST,
    )


# --- inside the tree ------------------------------------------------------------------


class Engine(TreeWorld):
    """The engine's tree with the answer's queue."""

    def __init__(self, answer, page_size):
        super().__init__(RadixTree(page_size))
        self.tree.leaves = answer.LeafQueue()

    def state(self):
        leaves = {node for node in self.tree.nodes() if node.is_evictable_leaf()}
        return {"nodes": nodes_of(self), "queue": self._queue_fault(leaves)}

    def _queue_fault(self, leaves):
        try:
            self.tree.leaves.check(leaves)
        except IntegrityError as error:
            return str(error)
        return "complete and in order"


class Model(PrefixModel):
    def state(self):
        return {"nodes": nodes_of(self), "queue": "complete and in order"}


def nodes_of(world):
    """(path, stamp, locks) of every node."""
    return sorted((path[1:], stamp, locks) for path, _, stamp, locks in world.rows())


def draw(world):
    """The tree, with stamps and locks."""

    def label(row):
        nodes, stamp, locks = row
        return f"{nodes[-1]} used at {stamp}" + f", locked {locks}x" * (locks > 0)

    return draw_rows(world.state()["nodes"], label)


def random_life(seed, page_size):
    """Prompts that go on from earlier ones; locks that last; one eviction at a time."""
    rng = random.Random(seed)
    operations, prompts = [], [[]]
    for _ in range(70):
        start = rng.choice(prompts)[: rng.randrange(3 * page_size)]
        prompts.append(start + rng.choices((1, 2), k=rng.randrange(2 * page_size + 1)))
        tokens, name = rng.choice(prompts), rng.choice("abc")
        operations.append(
            rng.choice(
                [("insert", prompts[-1])] * 5
                + [("match", tokens), ("lock", name, tokens)] * 2
                + [("unlock", name)] * 3
                + [("evict", rng.choice((1, 1, 2, 5)))] * 3
            )
        )
    return operations


@test("inside the tree, through inserts, splits, locks and evictions")
def _(answer, check):
    for page_size in (1, 2, 4):
        for seed in (1, 6, 8, 21):
            check.operations(
                random_life(seed, page_size),
                expected=lambda size=page_size: Model(size),
                actual=lambda size=page_size: Engine(answer, size),
                look="the oldest evictable leaf goes; one entry for a node is enough; "
                + STALE,
                draw=draw,
            )
