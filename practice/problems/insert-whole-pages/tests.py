"""Inserts into small trees drawn by hand, and long sequences against a plain model.

Walks, splits and evictions are the engine's; the model is a dictionary of prefixes.
"""

import random
from array import array

from grading import draw_tree, test
from minisgl.errors import IntegrityError
from minisgl.kvcache.base import EvictionError
from minisgl.kvcache.radix_key import InvalidKeyError, RadixKey

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
    rows, stack = [], [([], tree.root_node)]
    while stack:
        above, node = stack.pop()
        for child in node.children.values():
            path = [*above, child.key.tolist()]
            rows.append((path, child.value.tolist(), child.timestamp))
            stack.append((path, child))
    return sorted(rows)


def tree_state(tree):
    sizes = (tree.evictable_size, tree.protected_size)
    return {
        "clock": tree.clock,
        "(evictable, protected)": sizes,
        "nodes": nodes_of(tree),
        "check_integrity()": integrity(tree),
    }


def integrity(tree):
    """What the tree's own recount says."""
    try:
        tree.check_integrity()
    except IntegrityError as error:
        return str(error)
    return "passes"


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
        tree_state(tree),
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
            tree_state(tree),
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
        before = tree_state(tree)
        call = f"insert {tokens} with slots {slots}"
        check.raises(
            InvalidKeyError,
            lambda tree=tree, tokens=tokens, slots=slots: insert(tree, tokens, slots),
            call=call,
            mentions=[str(len(tokens)), str(len(slots))],
            look="InvalidKeyError, with both lengths in its text",
        )
        check.equal(tree_state(tree), before, call=f"the tree after: {call}", look=look)


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


class Model:
    """What a radix tree holds: for each prefix of whole pages, slots and a stamp."""

    def __init__(self, page_size):
        self.page_size = page_size
        self.pages = {}  # tokens up to the end of a page -> [slots, stamp]
        self.ends = set()  # those that end a node
        self.clock = 0

    def insert(self, tokens, slots):
        known = len(self._walk(tokens)) * self.page_size
        held = []
        for prefix in self._prefixes(tokens):
            page = slots[len(prefix) - self.page_size : len(prefix)]
            held += self.pages.setdefault(prefix, [page, self.clock])[0]
        if held:
            self.ends.add(prefix)
        return expect(known, held)

    def match(self, tokens):
        return [slot for prefix in self._walk(tokens) for slot in self.pages[prefix][0]]

    def evict(self, size):
        if size > len(self.pages) * self.page_size:
            raise EvictionError(f"{size} tokens are not there")
        freed = []
        while len(freed) < size:
            inner = {prefix[: -self.page_size] for prefix in self.pages}
            leaf = min(self.pages.keys() - inner, key=lambda end: self.pages[end][1])
            freed += self._row(leaf)[1]
            self.ends.remove(leaf)
            while leaf in self.pages and leaf not in self.ends:
                del self.pages[leaf]
                leaf = leaf[: -self.page_size]
        return freed

    def state(self):
        return {
            "clock": self.clock,
            "(evictable, protected)": (len(self.pages) * self.page_size, 0),
            "nodes": sorted(map(self._row, self.ends)),
            "check_integrity()": "passes",
        }

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

    def _row(self, end):
        """The node that ends there, as in `nodes_of`."""
        path, slots, start = [], [], 0
        for prefix in self._prefixes(end):
            slots += self.pages[prefix][0]
            if prefix in self.ends:
                path.append(list(prefix[start:]))
                start = len(prefix)
        return path, slots[-len(path[-1]) :], self.pages[end][1]


class Tree:
    """The same with the answer."""

    def __init__(self, answer, page_size):
        self.tree = answer.RadixTree(page_size)

    def insert(self, tokens, slots):
        return insert(self.tree, tokens, slots)

    def match(self, tokens):
        return self.tree.match_prefix(RadixKey(tokens)).matched_slots().tolist()

    def evict(self, size):
        return self.tree.evict(size).tolist()

    def state(self):
        return tree_state(self.tree)


def draw(world):
    """The nodes of a world as a tree."""
    nodes = world.state()["nodes"]

    def label(row):
        return f"{row[0][-1]}  slots {row[1]}  stamp {row[2]}" if row else "root"

    def children(row):
        return [node for node in nodes if node[0][:-1] == (row[0] if row else [])]

    return draw_tree(None, children, label)


def random_tokens(rng, page_size):
    """Some pages that differ in their last token only, and a part of one."""
    tokens = []
    for last in rng.choices((1, 2), weights=(3, 1), k=rng.randrange(7)):
        tokens += [1] * (page_size - 1) + [last]
    return tokens + [1] * rng.randrange(page_size)


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
                actual=lambda size=page_size: Tree(answer, size),
                look=f"{OWN}. {PAGES}",
                draw=draw,
            )
