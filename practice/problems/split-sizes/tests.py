"""Cuts against a model that knows every prefix by itself, and where nodes end."""

from __future__ import annotations

import random
from array import array
from itertools import islice

from grading import Check, NotApplicable, draw_tree, test
from minisgl.kvcache.radix_key import TOKEN_BYTES, RadixKey, unpack
from minisgl.kvcache.unified.node import ComponentType
from minisgl.kvcache.unified.params import (
    EvictParams,
    InsertParams,
    MatchPrefixParams,
)
from minisgl.kvcache.unified.tree_component import TreeComponent

FULL = ComponentType.FULL


class Tree:
    """The answer's tree with its Full component."""

    def __init__(self, answer, page_size: int = 1, *others: TreeComponent) -> None:
        self.freed: list[int] = []
        full = answer.FullComponent(self.freed.extend)
        self.cache = answer.UnifiedRadixCache(page_size, [full, *others])
        self.receipts = {}

    def insert(self, tokens, first_slot, space=None):
        slots = array("i", range(first_slot, first_slot + len(tokens)))
        params = InsertParams(RadixKey(tokens, space), slots)
        return self.cache.insert(params).prefix_len

    def match(self, tokens, space=None):
        return self._match(tokens, space).device_indices.tolist()

    def lock(self, name, tokens, space=None):
        found = self._match(tokens, space)
        self.receipts[name] = self.cache.inc_lock_ref(found.last_device_node)
        return found.cached_len

    def release(self, name):
        receipt = self.receipts.pop(name)
        self.cache.dec_lock_ref(receipt.node, receipt.to_dec_params())

    def evict_all(self):
        before = len(self.freed)
        self.cache.evict(EvictParams(10**6))
        return sorted(self.freed[before:])

    def node(self, *path):
        """The node at the end of a path of first tokens."""
        node = self.cache.root_node
        for token in path:
            node = next(
                child
                for child in node.children.values()
                if unpack(child.key)[0] == token
            )
        return node

    def rows(self):
        return sorted(map(self._row, islice(self.cache.nodes(), 40)), key=_place)

    def state(self):
        return {
            "nodes": self.rows(),
            "evictable": self.cache.evictable_size(),
            "protected": self.cache.protected_size(),
        }

    def _match(self, tokens, space):
        return self.cache.match_prefix(MatchPrefixParams(RadixKey(tokens, space)))

    def _row(self, node):
        data, path = node.component_data[FULL], [node]
        while path[-1].parent.parent is not None and len(path) < 40:
            path.append(path[-1].parent)
        top = path[-1].child_key
        tokens = unpack(b"".join(part.key for part in reversed(path))).tolist()
        return {
            "space": top[0][0][1] if isinstance(top, tuple) else None,
            "above": tokens[: len(tokens) - len(node)],
            "tokens": tokens[len(tokens) - len(node) :],
            "slots": None if data.value is None else data.value.tolist(),
            "locks": data.lock_ref,
            "used at": node.last_access_time,
        }


class Model:
    """The slots of the last page of every cached prefix, and where nodes end."""

    def __init__(self, page_size: int = 1) -> None:
        self.page_size, self.clock = page_size, 0
        self.slots, self.locks = {}, {}
        self.ends = {}  # the time of last use of the node that ends there

    def insert(self, tokens, first_slot, space=None):
        matched = self._walk(tokens, space)
        whole = len(tokens) - len(tokens) % self.page_size
        for end in range(matched + self.page_size, whole + 1, self.page_size):
            page = range(first_slot + end - self.page_size, first_slot + end)
            self.slots[space, tuple(tokens[:end])] = list(page)
        if whole > matched:
            self.ends[space, tuple(tokens[:whole])] = self.clock
        return matched

    def match(self, tokens, space=None):
        matched = self._walk(tokens, space)
        return self._slots(space, tuple(tokens[:matched]), 0)

    def lock(self, name, tokens, space=None):
        if name in self.locks:
            raise NotApplicable
        matched = self._walk(tokens, space)
        self.locks[name] = (space, tuple(tokens[:matched]))
        return matched

    def release(self, name):
        if name not in self.locks:
            raise NotApplicable
        del self.locks[name]

    def evict_all(self):
        gone = [place for place in self.slots if not self._num_locks(place)]
        self.ends = {end: at for end, at in self.ends.items() if end not in gone}
        return sorted(slot for place in gone for slot in self.slots.pop(place))

    def rows(self):
        return sorted(map(self._row, self.ends), key=_place)

    def state(self):
        locked = sum(map(bool, map(self._num_locks, self.slots))) * self.page_size
        return {
            "nodes": self.rows(),
            "evictable": len(self.slots) * self.page_size - locked,
            "protected": locked,
        }

    def _walk(self, tokens, space):
        self.clock += 1
        lengths = range(0, len(tokens) + 1, self.page_size)
        matched = max(
            n for n in lengths if not n or (space, tuple(tokens[:n])) in self.slots
        )
        if matched:
            self.ends.setdefault((space, tuple(tokens[:matched])), 0)
        for n in lengths[1:]:
            if n <= matched and (space, tuple(tokens[:n])) in self.ends:
                self.ends[space, tuple(tokens[:n])] = self.clock
        return matched

    def _slots(self, space, tokens, start):
        ends = range(start + self.page_size, len(tokens) + 1, self.page_size)
        return [slot for end in ends for slot in self.slots[space, tokens[:end]]]

    def _num_locks(self, place):
        space, tokens = place
        return sum(
            1
            for owner, locked in self.locks.values()
            if owner == space and locked[: len(tokens)] == tokens
        )

    def _row(self, end):
        space, tokens = end
        start = max(
            (n for n in range(1, len(tokens)) if (space, tokens[:n]) in self.ends),
            default=0,
        )
        return {
            "space": space,
            "above": list(tokens[:start]),
            "tokens": list(tokens[start:]),
            "slots": self._slots(space, tokens, start),
            "locks": self._num_locks(end),
            "used at": self.ends[end],
        }


def _place(row):
    return row["space"] or "", row["above"] + row["tokens"]


def draw(world) -> str:
    state = world.state()
    rows = state["nodes"]
    root = {"space": None, "above": [], "tokens": []}

    def children(row):
        path = row["above"] + row["tokens"]
        return [
            other
            for other in rows
            if other["above"] == path
            and (other["space"] == row["space"] or row is root)
        ]

    def label(row):
        if row is root:
            return (
                f"root, evictable {state['evictable']}, protected {state['protected']}"
            )
        space = f"{row['space']}: " if row["space"] and not row["above"] else ""
        return (
            f"{space}{row['tokens']} slots {row['slots']} locks {row['locks']} "
            f"used at {row['used at']}"
        )

    return draw_tree(root, children, label)


SIZES = (
    "evictable and protected are sums over nodes, and the same slots are still there"
)


@test("gives each half its tokens and slots", example=True)
def _(answer, check: Check):
    tree = Tree(answer)
    tree.insert([1, 2, 3, 4], 10)
    upper = tree.cache.split_node(tree.node(1), 2)
    call = "insert [1,2,3,4] with slots 10 to 13; split_node(its node, 2)"
    check.equal(
        [(row["tokens"], row["slots"]) for row in tree.rows()],
        [([1, 2], [10, 11]), ([3, 4], [12, 13])],
        call=call,
        look="token i of the node has slot i: cut both at the same place, `len(upper)`",
    )
    check.true(
        upper is tree.node(1),
        call=call,
        expected="the returned node is the one with the tokens [1, 2]",
        actual=f"it is {_named(upper)}",
        look="the upper half is what the walk goes on with",
    )


def _named(node) -> str:
    tokens = unpack(node.key).tolist() if hasattr(node, "key") else None
    return f"the node with the tokens {tokens}" if tokens else repr(node)


@test("the deeper half is the object that was there", example=True)
def _(answer, check: Check):
    tree = Tree(answer)
    tree.insert([1, 2, 3, 4], 10)
    tree.insert([1, 2, 3, 4, 5], 20)
    tree.insert([1, 2, 3, 4, 6], 30)
    node, below = tree.node(1), tree.node(1, 5)
    upper = tree.cache.split_node(node, 1)
    check.true(
        upper is not node and tree.node(1, 2) is node,
        call="split_node(the node of [1,2,3,4], 1)",
        expected="a new node has [1], and the old object has [2, 3, 4]",
        actual=f"the old object is {_named(node)}, the result {_named(upper)}",
        look="the deeper half stays the object that receipts point to: a lock on it "
        "still means the whole prefix",
    )
    check.equal(
        [row["above"] + row["tokens"] for row in tree.rows()],
        [[1], [1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4, 6]],
        call="split_node(the node of [1,2,3,4], 1), with children [5] and [6]",
        look="the children hang below the deeper half, as before",
    )
    check.true(
        below.parent is node and node.parent is upper,
        call="split_node(the node of [1,2,3,4], 1), with children [5] and [6]",
        expected="[5] is below [2, 3, 4], which is below [1]",
        actual=f"[5] is below {_named(below.parent)}, the old object is below "
        f"{_named(node.parent)}",
        look="every node knows its parent",
    )


@test("both halves keep every lock", example=True)
def _(answer, check: Check):
    tree = Tree(answer)
    tree.insert([1, 2, 3, 4], 10)
    tree.lock("first", [1, 2, 3, 4])
    tree.lock("second", [1, 2, 3, 4])
    tree.cache.split_node(tree.node(1), 2)
    call = "insert [1,2,3,4]; lock it twice; split_node(its node, 2)"
    check.equal(
        [(row["tokens"], row["locks"]) for row in tree.rows()],
        [([1, 2], 2), ([3, 4], 2)],
        call=call,
        look="whoever locked the node needs both halves, and its release takes one "
        "lock back from every node up to the root",
    )
    tree.release("first")
    check.equal(
        tree.evict_all(),
        [],
        call=f"{call}; release the first lock; evict everything",
        look="the second request still reads all four slots",
    )
    tree.release("second")
    check.equal(
        tree.evict_all(),
        [10, 11, 12, 13],
        call=f"{call}; release both; evict everything",
        look="nothing is locked any more",
    )


@test("the counters do not change", example=True)
def _(answer, check: Check):
    for locked, sizes in (False, (2, 4, 0)), (True, (2, 0, 4)):
        tree = Tree(answer)
        tree.insert([1, 2, 3, 4], 10)
        if locked:
            tree.lock("a", [1, 2, 3, 4])
        tree.cache.split_node(tree.node(1), 3)
        check.equal(
            (
                len(tree.rows()),
                tree.cache.evictable_size(),
                tree.cache.protected_size(),
            ),
            sizes,
            call=f"insert [1,2,3,4]{'; lock it' if locked else ''}; split_node(its "
            "node, 3); number of nodes, evictable and protected size",
            look=f"a cut moves no token from one counter to another: {SIZES}",
        )


@test("a node below the root of a namespace")
def _(answer, check: Check):
    tree = Tree(answer, 2)
    tree.insert([1, 2, 3, 4], 10)
    tree.insert([1, 2, 3, 4], 20, "tenant A")
    check.equal(
        tree.match([1, 2, 9, 9], "tenant A"),
        [20, 21],
        call="[1,2,3,4] is cached for nobody and for tenant A; match [1,2,9,9] for A",
        look="the upper half is found where the node was found: under its `child_key`, "
        "namespace included",
    )
    check.equal(
        [tree.match([1, 2, 3, 4], space) for space in (None, "tenant A")],
        [[10, 11, 12, 13], [20, 21, 22, 23]],
        call="then match [1,2,3,4] for nobody and for A",
        look="the upper half is found where the node was found: under its `child_key`, "
        "namespace included",
    )


@test("cuts between pages, and finds children by whole pages")
def _(answer, check: Check):
    tree = Tree(answer, 2)
    tree.insert([1, 2, 3, 4, 5, 6], 10)
    tree.insert([1, 2, 3, 9], 20)
    check.equal(
        [(row["above"], row["tokens"], row["slots"]) for row in tree.rows()],
        [([], [1, 2], [10, 11]), ([1, 2], [3, 4, 5, 6], [12, 13, 14, 15])]
        + [([1, 2], [3, 9], [22, 23])],
        call="page size 2: insert [1,2,3,4,5,6], then [1,2,3,9]",
        look="two children may begin with the same token: a child is found by its "
        "whole first page, `self._page_bytes` of its key",
    )


@test("the upper half counts as used now, the lower one as before")
def _(answer, check: Check):
    tree = Tree(answer)
    tree.insert([1, 2, 3, 4], 10)
    tree.insert([7], 20)
    tree.match([1, 2, 9])
    check.equal(
        [(row["tokens"], row["used at"]) for row in tree.rows()],
        [([1, 2], 3), ([3, 4], 1), ([7], 2)],
        call="insert [1,2,3,4] at tick 1 and [7] at tick 2; match [1,2,9] at tick 3",
        look="the match did not reach the lower half, which is older than [7] still",
    )
    tree.cache.split_node(tree.node(1, 3), 1)
    check.equal(
        [(row["tokens"], row["used at"]) for row in tree.rows()],
        [([1, 2], 3), ([3], 3), ([4], 1), ([7], 2)],
        call="the same; then split_node(the node of [3, 4], 1)",
        look="self._make_node stamps the new node; leave both stamps as they are",
    )


class Witness(TreeComponent):
    """Keeps nothing, and writes down how it is told about a cut."""

    component_type = ComponentType.MAMBA

    def __init__(self) -> None:
        super().__init__()
        self.calls = []

    def redistribute_on_node_split(self, upper, lower) -> None:
        self.calls.append(
            {
                "upper": unpack(upper.key).tolist(),
                "lower": unpack(lower.key).tolist(),
                "lower is below upper": lower.parent is upper
                and upper.children == {lower.key[:TOKEN_BYTES]: lower},
                "upper hangs in the tree": upper in upper.parent.children.values(),
            }
        )

    def evict_component(self, node) -> int:
        return 0

    def drive_eviction(self, params, tracker) -> None: ...

    def locked_nodes(self, receipt):
        return []


@test("every component is told once, when the links are right")
def _(answer, check: Check):
    witness = Witness()
    tree = Tree(answer, 1, witness)
    tree.insert([1, 2, 3, 4], 10)
    tree.cache.split_node(tree.node(1), 1)
    tree.cache.split_node(tree.node(1, 2), 2)
    right = {"lower is below upper": True, "upper hangs in the tree": True}
    check.equal(
        witness.calls,
        [
            {"upper": [1], "lower": [2, 3, 4], **right},
            {"upper": [2, 3], "lower": [4], **right},
        ],
        call="a tree with one more component; split the node of [1,2,3,4] at 1, then "
        "the lower half at 2",
        look="call the hook of each of self.components after the cut, as "
        "(upper, lower)",
    )


@test("cuts under many locks")
def _(answer, check: Check):
    check.operations(
        [
            ("insert", [1, 2, 3, 4], 10),
            ("lock", "a", [1, 2, 3, 4]),
            ("match", [1, 2, 9]),
            ("lock", "b", [1, 2, 3, 9]),
            ("match", [1, 9]),
            ("release", "a"),
            ("evict_all",),
            ("release", "b"),
            ("evict_all",),
        ],
        expected=Model,
        actual=lambda: Tree(answer),
        look="a release goes from the receipt's node up to the root; each node on the "
        "way must have this lock",
        draw=draw,
    )


@test("agrees with the model over many operations")
def _(answer, check: Check):
    for seed, page_size in (1, 1), (2, 1), (3, 2), (4, 2):
        check.operations(
            _operations(random.Random(seed), 80),
            expected=lambda size=page_size: Model(size),
            actual=lambda size=page_size: Tree(answer, size),
            look=f"page size {page_size}: compare slots, locks and stamps of each node "
            "with the expected ones",
            draw=draw,
        )


def _operations(rng: random.Random, count: int) -> list[tuple]:
    operations, locked = [], []
    for step in range(count):
        kind = rng.choice(["insert", "insert", "match", "lock", "lock", "release"])
        tokens = [rng.choice((1, 1, 2)) for _ in range(rng.randint(1, 8))]
        space = rng.choice((None, None, "A"))
        if kind == "insert":
            operations.append(("insert", tokens, 10 * step, space))
        elif kind == "match":
            operations.append(("match", tokens, space))
        elif kind == "lock":
            locked.append(f"lock {step}")
            operations.append(("lock", locked[-1], tokens, space))
        elif locked:
            operations.append(("release", locked.pop(rng.randrange(len(locked)))))
        if step % 20 == 19:
            operations.append(("evict_all",))
    return operations
