"""Evictions against a table of what lies where, with components made for the test."""

from __future__ import annotations

import random
from array import array

from grading import Check, NotApplicable, draw_tree, test
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified.full_component import FullComponent
from minisgl.kvcache.unified.node import ComponentType
from minisgl.kvcache.unified.params import InsertParams
from minisgl.kvcache.unified.tree_component import TreeComponent

FULL, SWA, MAMBA = "FULL", "SWA", "MAMBA"
PRIORITY = {FULL: 2, SWA: 1, MAMBA: 0}  # inside the tree; on evictable leaves all are 0

# The tree of all tests: name -> (parent, tokens).
TREE = {
    "a": (None, [1, 2, 3, 4]),
    "b": ("a", [5, 6]),
    "c": ("a", [7, 8, 9]),
    "d": ("c", [5]),
    "e": (None, [6, 6]),
}


class Simple(TreeComponent):
    """Data that a test puts there; a lock covers the node it is for."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.component_type = ComponentType[kind]
        self.asked_for_nothing = []

    def eviction_priority(self, is_leaf: bool) -> int:
        return 0 if is_leaf else PRIORITY[self.component_type.name]

    def evict_component(self, node) -> int:
        if not self.node_has_component_data(node):
            self.asked_for_nothing.append(repr(node))
            return 0
        return len(self._take_value(node))

    def redistribute_on_node_split(self, upper, lower) -> None:
        raise AssertionError("these tests do not split")

    def drive_eviction(self, params, tracker) -> None: ...

    def locked_nodes(self, receipt):
        return []


class Tree:
    """The answer's tree, with `data` of the kinds that are named per node.

    A state has one unit, window KV one per token.
    """

    def __init__(self, answer, data: dict[str, str], kinds=(FULL, SWA, MAMBA)) -> None:
        others = [Simple(kind) for kind in kinds if kind != FULL]
        self.freed: list[int] = []
        full = FullComponent(self.freed.extend)
        self.cache = answer.UnifiedRadixCache(1, [full, *others])
        self.components = {c.component_type.name: c for c in self.cache.components}
        self.nodes, self.keys, self.receipts = {}, {}, {}
        for i, (name, (parent, tokens)) in enumerate(TREE.items()):
            key = self.keys[name] = self.keys.get(parent, []) + tokens
            slots = array("i", range(100 * i, 100 * i + len(key)))
            result = self.cache.insert(InsertParams(RadixKey(key), slots))
            self.nodes[name] = result.last_node
        for name, given in data.items():
            for kind in given.split():
                num_units = 1 if kind == MAMBA else len(TREE[name][1])
                value = array("i", range(num_units))
                self.components[kind]._set_value(self.nodes[name], value)

    def evict(self, name, kind):
        tracker = [0] * len(ComponentType)
        self.cache.evict_node(self.nodes[name], self.components[kind], tracker)
        return tracker

    def lock(self, name):
        """A request reads what Full has up to this node."""
        self.receipts[name] = self.cache.inc_lock_ref(self.nodes[name])

    def release(self, name):
        receipt = self.receipts.pop(name)
        self.cache.dec_lock_ref(receipt.node, receipt.to_dec_params())

    def state(self):
        return {
            "nodes": {
                name: " ".join(
                    kind
                    for kind, component in self.components.items()
                    if component.node_has_component_data(node)
                )
                for name, node in self.nodes.items()
                if node.parent is not None
            },
            "evictable": {
                kind: component.evictable_size
                for kind, component in self.components.items()
            },
        }

    def asked_for_nothing(self):
        return [
            (kind, node)
            for kind in self.components
            if kind != FULL
            for node in self.components[kind].asked_for_nothing
        ]


class Model:
    """The same as a dictionary: node -> kind -> units."""

    def __init__(self, data: dict[str, str], kinds=(FULL, SWA, MAMBA)) -> None:
        self.kinds, self.locked = kinds, set()
        self.held = {
            name: {
                kind: 1 if kind == MAMBA else len(tokens)
                for kind in kinds
                if kind == FULL or kind in data.get(name, "").split()
            }
            for name, (_, tokens) in TREE.items()
        }

    def evict(self, name, kind):
        held = self.held.get(name, {})
        is_leaf = name not in {TREE[other][0] for other in self.held} and not any(
            name in _path(locked) for locked in self.locked
        )
        if kind not in held or (kind == FULL and not is_leaf):
            raise NotApplicable
        tracker = [0, 0, 0]
        for other in list(held):
            if is_leaf or PRIORITY[other] <= PRIORITY[kind]:
                tracker[ComponentType[other]] += held.pop(other)
        if is_leaf:
            del self.held[name]
        return tracker

    def lock(self, name):
        if name not in self.held or name in self.locked:
            raise NotApplicable
        self.locked.add(name)

    def release(self, name):
        if name not in self.locked:
            raise NotApplicable
        self.locked.remove(name)

    def state(self):
        in_use = {name for locked in self.locked for name in _path(locked)}
        return {
            "nodes": {name: " ".join(held) for name, held in self.held.items()},
            "evictable": {
                kind: sum(
                    held.get(kind, 0)
                    for name, held in self.held.items()
                    if kind != FULL or name not in in_use
                )
                for kind in self.kinds
            },
        }


def _path(name: str | None) -> list[str]:
    return [] if name is None else [name, *_path(TREE[name][0])]


def draw(world) -> str:
    state = world.state()
    return f"evictable {state['evictable']}\n{draw_nodes(state['nodes'])}"


def draw_nodes(nodes: dict[str, str]) -> str:
    def label(name):
        return f"{name} {TREE[name][1]}  {nodes[name] or 'nothing'}" if name else "root"

    return draw_tree(None, lambda name: [x for x in nodes if TREE[x][0] == name], label)


ALL = "FULL SWA MAMBA"


@test("inside the tree: the state alone, or the window and the state", example=True)
def _(answer, check: Check):
    tree = Tree(answer, {"a": "SWA MAMBA", "c": "SWA MAMBA"})
    check.equal(
        tree.evict("a", MAMBA),
        [0, 0, 1],
        call="a (4 tokens, with children) has Full, window and state; evict its state",
        look="what depends on nothing goes first: the window is good without a state",
    )
    check.equal(
        tree.evict("c", SWA),
        [0, 3, 1],
        call="c (3 tokens, with a child) has Full, window and state; evict its window",
        look="a state is of no use without it: the window's priority is 1, the "
        "state's 0",
    )
    check.equal(
        tree.state()["nodes"],
        {"a": "FULL SWA", "b": "FULL", "c": "FULL", "d": "FULL", "e": "FULL"},
        call="what the nodes hold after both evictions",
        look="an inner node stays, and so does the data of a higher priority",
        draw=draw_nodes,
    )


@test("on an evictable leaf everything goes, whoever asks", example=True)
def _(answer, check: Check):
    for kind in (FULL, SWA, MAMBA):
        tree = Tree(answer, {"b": "SWA MAMBA"})
        check.equal(
            tree.evict("b", kind),
            [2, 2, 1],
            call=f"b (2 tokens, a leaf) has Full, window and state; evict by {kind}",
            look="all priorities are 0 on an evictable leaf",
        )
        check.equal(
            tree.state(),
            {
                "nodes": dict.fromkeys("acde", "FULL"),
                "evictable": {FULL: 10, SWA: 0, MAMBA: 0},
            },
            call=f"b (2 tokens, a leaf) evicted by {kind}; what is left in the tree",
            look="the leaf is gone from the tree, and its units from the counters",
        )


@test("a leaf that is locked in Full stays", example=True)
def _(answer, check: Check):
    for kind, held, gone, left in (
        (SWA, "SWA", [0, 2, 0], "FULL"),
        (MAMBA, "SWA MAMBA", [0, 0, 1], "FULL SWA"),
    ):
        tree = Tree(answer, {"b": held})
        tree.lock("b")
        call = f"b (2 tokens, childless) has FULL {held} and is locked in Full; evict "
        call += f"by {kind}"
        try:
            tracker = tree.evict("b", kind)
        except AssertionError as error:
            tracker = f"stopped: {error}"
        check.equal(
            tracker,
            gone,
            call=call,
            look="a request reads the Full slots of this node: ask "
            "node.is_evictable_leaf(), not for children alone",
        )
        check.equal(
            tree.state()["nodes"]["b"],
            left,
            call=f"{call}; what b holds then",
            look="it is treated like an inner node, and stays",
        )


@test("a tombstone gives nothing", example=True)
def _(answer, check: Check):
    tree = Tree(answer, {"b": "MAMBA"})
    check.equal(
        tree.evict("b", FULL),
        [2, 0, 1],
        call="b (2 tokens, a leaf) has Full and a state, no window KV; evict by FULL",
        look="only data that is there is counted",
    )
    check.equal(
        tree.asked_for_nothing(),
        [],
        call="components that were asked to evict without having data on b",
        look="a tombstone has nothing to give back: first ask "
        "node_has_component_data(node)",
    )


@test("a tree without a window component")
def _(answer, check: Check):
    tree = Tree(answer, {"a": "MAMBA", "b": "MAMBA"}, (FULL, MAMBA))
    check.equal(
        tree.evict("a", MAMBA),
        [0, 0, 1],
        call="components FULL and MAMBA; a (with children) loses its state",
        look="each is counted under its `component_type`, whatever its place in "
        "self.components",
    )
    check.equal(
        tree.evict("b", FULL),
        [2, 0, 1],
        call="components FULL and MAMBA; b (2 tokens, a leaf with a state) is evicted",
        look="each is counted under its `component_type`, whatever its place in "
        "self.components",
    )


@test("the tracker goes on counting")
def _(answer, check: Check):
    tree = Tree(answer, {"b": "SWA", "c": "SWA MAMBA", "d": "SWA"})
    tracker = [7, 5, 3]
    for name, kind in ("c", SWA), ("b", SWA), ("d", FULL):
        tree.cache.evict_node(tree.nodes[name], tree.components[kind], tracker)
    check.equal(
        tracker,
        [7 + 2 + 1, 5 + 3 + 2 + 1, 3 + 1],
        call="tracker = [7, 5, 3]; evict c's window and state, leaf b, leaf d",
        look="the caller's tracker holds what is gone so far: add to it",
    )


@test("an ancestor becomes a leaf when its last child is gone")
def _(answer, check: Check):
    check.operations(
        [("evict", "b", SWA), ("evict", "d", FULL), ("evict", "c", MAMBA)]
        + [("evict", "a", FULL)],
        expected=lambda: Model({"a": ALL, "b": ALL, "c": ALL}),
        actual=lambda: Tree(
            answer, {"a": "SWA MAMBA", "b": "SWA MAMBA", "c": "SWA MAMBA"}
        ),
        look="once its children are gone, a node is evicted as a whole: ask when it "
        "is evicted",
        draw=draw,
    )


@test("agrees with the table over many evictions")
def _(answer, check: Check):
    for seed in range(8):
        rng = random.Random(seed)
        kinds = (FULL, MAMBA) if seed == 7 else (FULL, SWA, MAMBA)
        data = {
            name: " ".join(kind for kind in kinds[1:] if rng.random() < 0.7)
            for name in TREE
        }
        operations = []
        for _ in range(30):
            name, kind = rng.choice("abcde"), rng.choice(["evict"] * 3 + ["lock"])
            if kind == "evict":
                operations.append(("evict", name, rng.choice(kinds)))
            else:
                operations.append((rng.choice(["lock", "release"]), name))
        check.operations(
            operations,
            expected=lambda data=data, kinds=kinds: Model(data, kinds),
            actual=lambda data=data, kinds=kinds: Tree(answer, data, kinds),
            look="which row of the table counts here, and which columns are at or "
            "below the trigger's?",
            draw=draw,
        )
