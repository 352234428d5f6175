"""Clean-up against a table of what lies where, with components made for the test."""

from __future__ import annotations

import random
from array import array

from grading import Check, NotApplicable, draw_tree, test
from minisgl.kvcache.base import StaleHandleError
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified.full_component import FullComponent
from minisgl.kvcache.unified.node import ComponentType
from minisgl.kvcache.unified.params import EvictParams, InsertParams
from minisgl.kvcache.unified.tree_component import TreeComponent

FULL, SWA, MAMBA = KINDS = "FULL", "SWA", "MAMBA"

# The tree of all tests: name -> (parent, tokens).
TREE = {
    "a": (None, [1, 2]),
    "b": ("a", [3]),
    "c": ("b", [4, 5]),
    "d": ("c", [6]),
    "e": ("a", [7, 8, 9]),
    "f": (None, [5]),
}


class Simple(TreeComponent):
    """Data that a test puts there, and that no lock covers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.component_type = ComponentType[kind]

    def evict_component(self, node) -> int:
        return len(self._take_value(node))

    def redistribute_on_node_split(self, upper, lower) -> None:
        raise AssertionError("these tests do not split")

    def drive_eviction(self, params, tracker) -> None: ...

    def locked_nodes(self, receipt):
        return []


class Tree:
    """The answer's tree, with `data` of the kinds that are named per node.

    Every node begins with Full data. A state has one unit, window KV one per token.
    """

    def __init__(self, answer, data: dict[str, str] | None = None) -> None:
        self.freed: list[int] = []
        parts = [FullComponent(self.freed.extend), Simple(SWA), Simple(MAMBA)]
        self.cache = answer.UnifiedRadixCache(1, parts)
        self.components = dict(zip(KINDS, parts, strict=True))
        self.nodes, self.keys, self.receipts = {}, {}, {}
        for i, (name, (parent, tokens)) in enumerate(TREE.items()):
            key = self.keys[name] = self.keys.get(parent, []) + tokens
            slots = array("i", range(100 * i, 100 * i + len(key)))
            result = self.cache.insert(InsertParams(RadixKey(key), slots))
            self.nodes[name] = result.last_node
        for name, given in (data or {}).items():
            for kind in given.split():
                num_units = 1 if kind == MAMBA else len(TREE[name][1])
                value = array("i", range(num_units))
                self.components[kind]._set_value(self.nodes[name], value)

    def drop(self, name):
        """The node loses its Full data, and the tree clears up."""
        self.components[FULL].evict_component(self.nodes[name])
        self.cache._delete_dead_branch(self.nodes[name])

    def lock(self, name):
        self.receipts[name] = self.cache.inc_lock_ref(self.nodes[name])

    def release(self, name):
        receipt = self.receipts.pop(name)
        self.cache.dec_lock_ref(receipt.node, receipt.to_dec_params())
        self.cache._delete_dead_branch(receipt.node)

    def evict_all(self):
        return self.cache.evict(EvictParams(10**6)).num_tokens_evicted

    def state(self):
        in_tree = set(map(id, self.cache.nodes()))
        names = {name: n for name, n in self.nodes.items() if id(n) in in_tree}
        return {
            "nodes": {
                name: " ".join(
                    kind
                    for kind, component in self.components.items()
                    if component.node_has_component_data(node)
                )
                for name, node in names.items()
            },
            "sizes": {
                kind: component.evictable_size
                for kind, component in self.components.items()
            },
            "queued": [
                name
                for name, node in names.items()
                if node in self.cache.leaves and node.is_evictable_leaf()
            ],
        }


class Model:
    """The same as a dictionary: node -> kind -> units."""

    def __init__(self, data: dict[str, str] | None = None) -> None:
        self.locked = set()
        self.held = {
            name: {
                kind: 1 if kind == MAMBA else len(tokens)
                for kind in KINDS
                if kind == FULL or kind in (data or {}).get(name, "").split()
            }
            for name, (_, tokens) in TREE.items()
        }

    def drop(self, name):
        if FULL not in self.held.get(name, {}) or self._is_locked(name):
            raise NotApplicable
        del self.held[name][FULL]
        self._clear_up()

    def lock(self, name):
        if name not in self.held or name in self.locked:
            raise NotApplicable
        self.locked.add(name)

    def release(self, name):
        if name not in self.locked:
            raise NotApplicable
        self.locked.remove(name)
        self._clear_up()

    def evict_all(self):
        gone = [name for name in self.held if not self._is_locked(name)]
        return sum(self.held.pop(name).get(FULL, 0) for name in gone)

    def state(self):
        return {
            "nodes": {name: " ".join(held) for name, held in self.held.items()},
            "sizes": {
                kind: sum(
                    held.get(kind, 0)
                    for name, held in self.held.items()
                    if kind != FULL or not self._is_locked(name)
                )
                for kind in KINDS
            },
            "queued": [
                name
                for name, held in self.held.items()
                if FULL in held
                and self._is_childless(name)
                and not self._is_locked(name)
            ],
        }

    def _clear_up(self):
        for name in reversed(TREE):  # children before their parents
            if (
                name in self.held
                and FULL not in self.held[name]
                and self._is_childless(name)
                and not self._is_locked(name)
            ):
                del self.held[name]

    def _is_childless(self, name):
        return not any(TREE[other][0] == name for other in self.held)

    def _is_locked(self, name):
        return any(name in _path(locked) for locked in self.locked)


def _path(name: str | None) -> list[str]:
    return [] if name is None else [name, *_path(TREE[name][0])]


def draw(world) -> str:
    state = world.state()
    nodes = {
        name: f"{held or 'nothing'}{'  queued' * (name in state['queued'])}"
        for name, held in state["nodes"].items()
    }
    return f"sizes {state['sizes']}\n{draw_nodes(nodes)}"


def draw_nodes(nodes: dict[str, str] | list[str]) -> str:
    """The tree of these names, with what the dictionary says of them."""
    notes = nodes if isinstance(nodes, dict) else {}

    def label(name):
        return f"{name} {TREE[name][1]}  {notes.get(name, '')}" if name else "root"

    return draw_tree(None, lambda name: [x for x in nodes if TREE[x][0] == name], label)


def after(answer, *operations, data: dict[str, str] | None = None) -> Tree:
    tree = Tree(answer, data)
    for name, *arguments in operations:
        getattr(tree, name)(*arguments)
    return tree


PATH = "a - b - c - d and a - e"


@test("a childless node without Full data goes", example=True)
def _(answer, check: Check):
    tree = after(answer, ("drop", "d"))
    check.equal(
        list(tree.state()["nodes"]),
        ["a", "b", "c", "e", "f"],
        call=f"paths {PATH}, all with Full data; d loses it",
        look="nobody can make use of it any more; c has Full data and stays",
        draw=draw_nodes,
    )
    check.true(
        tree.nodes["d"].parent is None,
        call="d, which was deleted",
        expected="parent is None",
        actual=f"parent is {tree.nodes['d'].parent}",
        look="a lock on an evicted node is refused by its missing parent",
    )
    check.raises(
        StaleHandleError,
        lambda: tree.cache.inc_lock_ref(tree.nodes["d"]),
        call="lock d, which was deleted",
        look="a lock on an evicted node is refused by its missing parent",
    )


@test("childless ancestors go in turn", example=True)
def _(answer, check: Check):
    tree = after(answer, ("drop", "c"), ("drop", "b"), ("drop", "d"))
    check.equal(
        list(tree.state()["nodes"]),
        ["a", "e", "f"],
        call=f"paths {PATH}; c and b lose their Full data, then d does",
        look="a node is gone: its parent may have nothing left to be there for, and "
        "its parent in turn",
        draw=draw_nodes,
    )


@test("Full data or another child keeps an ancestor", example=True)
def _(answer, check: Check):
    tree = after(answer, ("drop", "c"), ("drop", "d"))
    check.equal(
        list(tree.state()["nodes"]),
        ["a", "b", "e", "f"],
        call=f"paths {PATH}; c loses its Full data, then d does",
        look="Full data keeps a node: b can still be matched",
        draw=draw_nodes,
    )
    tree = after(answer, ("drop", "a"), ("drop", "e"))
    check.equal(
        list(tree.state()["nodes"]),
        ["a", "b", "c", "d", "f"],
        call=f"paths {PATH}; a loses its Full data, then e does",
        look="a has another child, b",
        draw=draw_nodes,
    )


@test("all other data goes with a node", example=True)
def _(answer, check: Check):
    tree = after(
        answer, ("drop", "c"), ("drop", "d"), data={"c": "SWA MAMBA", "d": "MAMBA"}
    )
    check.equal(
        tree.state()["sizes"],
        {FULL: 7, SWA: 0, MAMBA: 0},
        call="c has window KV and a state, d a state; c loses its Full data, then d "
        "does; the sizes of all components",
        look="what other components still keep there goes too, by their "
        "evict_component: only it knows the pool and the counter",
    )
    tree = after(answer, ("drop", "b"), ("drop", "d"), data={"b": "MAMBA"})
    check.equal(
        tree.state()["nodes"],
        {"a": "FULL", "b": "MAMBA", "c": "FULL", "e": "FULL", "f": "FULL"},
        call="b has a state and loses its Full data; d goes",
        look="b has a child with Full data, and keeps its state",
        draw=draw_nodes,
    )


@test("what becomes a leaf is queued", example=True)
def _(answer, check: Check):
    tree = after(answer, ("drop", "b"), ("drop", "c"), ("drop", "d"), ("drop", "e"))
    check.equal(
        tree.state(),
        {
            "nodes": {"a": FULL, "f": FULL},
            "sizes": {FULL: 3, SWA: 0, MAMBA: 0},
            "queued": ["a", "f"],
        },
        call=f"paths {PATH}, and f; all but a and f lose their Full data",
        look="a is childless and unlocked: it can be evicted now, so it has to be "
        "queued",
    )
    check.equal(
        tree.evict_all(),
        3,
        call="then evict everything",
        look="eviction takes what is queued",
    )


@test("a locked node stays")
def _(answer, check: Check):
    tree = after(answer, ("drop", "c"), ("lock", "c"), ("drop", "d"))
    call = f"paths {PATH}; c loses its Full data and is locked, then d loses its own"
    check.equal(
        list(tree.state()["nodes"]),
        ["a", "b", "c", "e", "f"],
        call=call,
        look="a request stands on this node, and its release begins here",
        draw=draw_nodes,
    )
    tree.release("c")
    check.equal(
        list(tree.state()["nodes"]),
        ["a", "b", "e", "f"],
        call=f"{call}; c is released, and the tree clears up",
        look="now nothing keeps c",
        draw=draw_nodes,
    )


@test("the root stays, and is no leaf")
def _(answer, check: Check):
    operations = [("drop", name) for name in "abcdef"]
    tree = after(answer, *operations)
    check.equal(
        tree.state(),
        {"nodes": {}, "sizes": {FULL: 0, SWA: 0, MAMBA: 0}, "queued": []},
        call="all nodes lose their Full data, from the top down",
        look="the climb ends at the root",
    )
    tree.cache._delete_dead_branch(tree.cache.root_node)
    check.true(
        tree.cache.root_node not in tree.cache.leaves,
        call="the same for the root of the empty tree",
        expected="the root is not queued",
        actual="the root is queued for eviction",
        look="_update_evictable_leaf queues evictable leaves only",
    )
    result = tree.cache.insert(InsertParams(RadixKey([1, 2]), array("i", [1, 2])))
    check.equal(
        result.prefix_len,
        0,
        call="then insert [1,2]",
        look="the root has forgotten its children, so nothing is found",
    )


@test("the queue forgets what left the tree")
def _(answer, check: Check):
    tree = Tree(answer)
    tree.drop("d")
    tree.drop("f")
    queued = [name for name in "df" if tree.nodes[name] in tree.cache.leaves]
    check.equal(
        queued,
        [],
        call="leaves d and f lose their Full data and go; which of them are queued?",
        look="self.leaves.remove(node), or the queue keeps every node that ever was",
    )


@test("agrees with the table over many operations")
def _(answer, check: Check):
    for seed in range(8):
        rng = random.Random(seed)
        data = {
            name: " ".join(kind for kind in (SWA, MAMBA) if rng.random() < 0.5)
            for name in TREE
        }
        # inner nodes lose their data first, so that locked ones can become childless
        operations = [("drop", name) for name in rng.sample("abc", rng.randrange(3))]
        kinds = ["drop", "drop", "lock", "release"]
        operations += [(rng.choice(kinds), rng.choice("abcdef")) for _ in range(30)]
        operations.append(("evict_all",))
        check.operations(
            operations,
            expected=lambda data=data: Model(data),
            actual=lambda data=data: Tree(answer, data),
            look="what keeps a node: children, Full data, a lock; what is queued: "
            "childless nodes with Full data and no lock",
            draw=draw,
        )
