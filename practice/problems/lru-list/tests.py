"""The list against a plain Python list of names."""

from __future__ import annotations

import random
from itertools import islice

from grading import Check, NotApplicable, draw_table, test
from minisgl.kvcache.unified.node import ComponentData, ComponentType, UnifiedTreeNode

SWA, MAMBA = "SWA", "MAMBA"  # the lists are known by their component
NAMES = "abcdefgh"


class CountedData(ComponentData):
    """Counts how often a link is read or written."""

    __slots__ = ()
    touches = 0

    def _link(name):
        slot = getattr(ComponentData, name)

        def read(self):
            CountedData.touches += 1
            return slot.__get__(self)

        def write(self, value):
            CountedData.touches += 1
            slot.__set__(self, value)

        return property(read, write)

    lru_prev, lru_next = _link("lru_prev"), _link("lru_next")


def make_node(number: int) -> UnifiedTreeNode:
    node = UnifiedTreeNode(number, b"", 0, 0)
    node.component_data = [CountedData() for _ in ComponentType]
    return node


class Lists:
    """The answer's list, or two that share their nodes; a node is known by its name."""

    def __init__(self, answer, kinds=(SWA,)) -> None:
        self.nodes = {name: make_node(i) for i, name in enumerate(NAMES)}
        self.lists = {
            kind: answer.UnifiedLRUList(ComponentType[kind]) for kind in kinds
        }

    def insert(self, name, newer, kind=SWA):
        node = None if newer is None else self.nodes[newer]
        return self.lists[kind].insert(self.nodes[name], node)

    def remove(self, name, kind=SWA):
        return self.lists[kind].remove(self.nodes[name])

    def promote(self, names, kind=SWA):
        return self.lists[kind].promote([self.nodes[name] for name in names])

    def iterate(self, kind=SWA):
        return self._names(islice(self.lists[kind], len(NAMES) + 1))

    def backwards(self, kind=SWA):
        """By `lru_prev`, from the newest node."""
        found, data = [], self.lists[kind]._ring.lru_prev
        while data is not None and data.node is not None and len(found) <= len(NAMES):
            found.append(data.node)
            data = data.lru_prev
        return self._names(found)

    def listed(self, kind=SWA):
        return [name for name, node in self.nodes.items() if node in self.lists[kind]]

    def state(self):
        return [
            {
                "oldest first": self.iterate(kind),
                "newest first": self.backwards(kind),
                "listed": self.listed(kind),
            }
            for kind in self.lists
        ]

    def _names(self, nodes):
        known = {id(node): name for name, node in self.nodes.items()}
        return [known.get(id(node), f"a {type(node).__name__}") for node in nodes]


class Model:
    """The same with Python lists."""

    def __init__(self, kinds=(SWA,)) -> None:
        self.order = {kind: [] for kind in kinds}

    def insert(self, name, newer, kind=SWA):
        names = self.order[kind]
        if name in names or (newer is not None and newer not in names):
            raise NotApplicable
        names.insert(len(names) if newer is None else names.index(newer), name)

    def remove(self, name, kind=SWA):
        if name not in self.order[kind]:
            raise NotApplicable
        self.order[kind].remove(name)

    def promote(self, names, kind=SWA):
        moved = [name for name in names if name in self.order[kind]]
        stay = [name for name in self.order[kind] if name not in moved]
        self.order[kind] = stay + moved[::-1]

    def state(self):
        return [
            {
                "oldest first": list(names),
                "newest first": names[::-1],
                "listed": sorted(names),
            }
            for names in self.order.values()
        ]


def draw(world) -> str:
    rows = [
        [kind, *(" ".join(value) or "-" for value in state.values())]
        for kind, state in zip((SWA, MAMBA), world.state(), strict=False)
    ]
    return draw_table(["list", "oldest first", "newest first", "listed"], rows)


def listing(answer, names: str) -> Lists:
    world = Lists(answer)
    for name in names:
        world.insert(name, None)
    return world


@test("keeps nodes in the order in which they came", example=True)
def _(answer, check: Check):
    world = listing(answer, "abc")
    check.equal(
        world.iterate(),
        ["a", "b", "c"],
        call="list(lru_list) after insert(a, None), insert(b, None), insert(c, None)",
        look="with None a node becomes the newest; both neighbours have to be told, in "
        "`lru_next` and in `lru_prev`",
    )
    check.equal(
        world.backwards(),
        ["c", "b", "a"],
        call="the same, followed along `lru_prev`",
        look="both neighbours have to be told, in `lru_next` and in `lru_prev`",
    )


@test("places a node before another one", example=True)
def _(answer, check: Check):
    world = listing(answer, "abc")
    world.insert("d", "b")
    world.insert("e", "a")
    check.equal(
        world.state(),
        [
            {
                "oldest first": ["e", "a", "d", "b", "c"],
                "newest first": ["c", "b", "d", "a", "e"],
                "listed": ["a", "b", "c", "d", "e"],
            }
        ],
        call="a, b, c; then insert(d, newer=b), insert(e, newer=a)",
        look="the node comes just before `newer`, so that `newer` stays the newer one",
    )


@test("takes a node out from anywhere", example=True)
def _(answer, check: Check):
    for name, rest in ("b", "acd"), ("a", "bcd"), ("d", "abc"):
        world = listing(answer, "abcd")
        world.remove(name)
        check.equal(
            world.iterate(),
            list(rest),
            call=f"a, b, c, d; then remove({name})",
            look="its older neighbour is linked with its newer one, which may be the "
            "sentinel",
        )
        check.equal(
            world.backwards(),
            list(rest[::-1]),
            call=f"a, b, c, d; then remove({name}), followed along `lru_prev`",
            look="its newer neighbour is linked with its older one too",
        )


@test("a node that was taken out is not in the list", example=True)
def _(answer, check: Check):
    world = listing(answer, "abc")
    world.remove("b")
    check.equal(
        world.listed(),
        ["a", "c"],
        call="a, b, c; then remove(b); which nodes are `in` the list?",
        look="`lru_next` tells whether it is listed: a node that leaves keeps no link",
    )
    data = world.nodes["b"].component_data[ComponentType.SWA]
    check.true(
        data.node is None and data.lru_prev is None and data.lru_next is None,
        call="a, b, c; then remove(b)",
        expected="node, lru_prev and lru_next of b are None",
        actual=f"node is {data.node}, lru_prev is {_describe(data.lru_prev)}, "
        f"lru_next is {_describe(data.lru_next)}",
        look="a node that leaves the tree must not keep others alive by its links",
    )
    world.insert("b", None)
    check.equal(
        world.iterate(),
        ["a", "c", "b"],
        call="a, b, c; then remove(b), insert(b, None)",
        look="a node may come back",
    )


def _describe(data) -> str:
    return "None" if data is None else "still a link"


@test("promotes several nodes, the first most of all", example=True)
def _(answer, check: Check):
    for start, given, end in (
        ("abc", "ab", "cba"),
        ("abcd", "bd", "acdb"),
        ("abc", "cba", "abc"),
        ("abc", "b", "acb"),
        ("abc", "c", "abc"),
        ("a", "a", "a"),
    ):
        world = listing(answer, start)
        world.promote(list(given))
        check.equal(
            world.iterate(),
            list(end),
            call=f"{', '.join(start)}; then promote([{', '.join(given)}])",
            look="the first node of the call ends up newest, the second next to it: a "
            "path is given from its deepest node up",
        )


@test("skips nodes that are not listed")
def _(answer, check: Check):
    world = listing(answer, "abc")
    world.promote(["e", "a", "f", "b"])
    check.equal(
        world.state(),
        [
            {
                "oldest first": ["c", "b", "a"],
                "newest first": ["a", "b", "c"],
                "listed": ["a", "b", "c"],
            }
        ],
        call="a, b, c; then promote([e, a, f, b]), with e and f not in the list",
        look="a tombstone on the path has no data and is in no list; leave it out",
    )
    world.promote([])
    check.equal(world.iterate(), ["c", "b", "a"], call="promote([])", look="no change")


@test("takes any iterable of nodes")
def _(answer, check: Check):
    world = listing(answer, "abc")
    world.lists[SWA].promote(world.nodes[name] for name in "ab")
    check.equal(
        world.iterate(),
        ["c", "b", "a"],
        call="a, b, c; then promote(a generator that gives a, b)",
        look="an iterable can be gone through once only",
    )


@test("an emptied list is as good as new")
def _(answer, check: Check):
    world = listing(answer, "ab")
    world.remove("a")
    world.remove("b")
    check.equal(world.iterate(), [], call="a, b; then both removed", look="it is empty")
    world.insert("c", None)
    check.equal(
        (world.iterate(), world.backwards()),
        (["c"], ["c"]),
        call="a, b; then both removed, then insert(c, None)",
        look="in an empty list the sentinel is its own neighbour on both sides",
    )


@test("no call searches")
def _(answer, check: Check):
    calls = {
        "insert": lambda lru, nodes: lru.insert(nodes[-1], nodes[500]),
        "remove": lambda lru, nodes: lru.remove(nodes[500]),
        "promote": lambda lru, nodes: lru.promote([nodes[500]]),
    }
    for name, call in calls.items():
        lru = answer.UnifiedLRUList(ComponentType.SWA)
        nodes = [make_node(i) for i in range(1001)]
        ring = lru._ring = CountedData()
        ring.lru_prev = ring.lru_next = ring
        for node in nodes[:-1]:
            lru.insert(node, None)
        CountedData.touches = 0
        call(lru, nodes)
        check.true(
            4 <= CountedData.touches <= 40,
            call=f"{name} in the middle of a list of 1,000 nodes",
            expected="between 4 and 40 reads and writes of lru_prev and lru_next",
            actual=f"{CountedData.touches} of them",
            look="touches of a link do not grow with the list: the node knows its "
            "neighbours, so there is nothing to search for",
        )


@test("a node can be in two lists at once")
def _(answer, check: Check):
    operations = [
        ("insert", "a", None, SWA),
        ("insert", "b", None, SWA),
        ("insert", "b", None, MAMBA),
        ("insert", "a", None, MAMBA),
        ("promote", ["a"], SWA),
        ("insert", "c", "b", MAMBA),
        ("remove", "b", SWA),
        ("promote", ["c", "b"], MAMBA),
    ]
    check.operations(
        operations,
        expected=lambda: Model((SWA, MAMBA)),
        actual=lambda: Lists(answer, (SWA, MAMBA)),
        look="the links of this list are in `component_data[self._type]`, those of the "
        "other list next to them",
        draw=draw,
    )


@test("agrees with a plain list over many operations")
def _(answer, check: Check):
    for seed in range(4):
        check.operations(
            _operations(random.Random(seed), 120),
            expected=Model,
            actual=lambda: Lists(answer),
            look="compare the two directions: one that lacks a node shows the link "
            "that was not set",
            draw=draw,
        )


def _operations(rng: random.Random, count: int) -> list[tuple]:
    operations, listed = [], []
    while len(operations) < count:
        kind = rng.choice(["insert", "insert", "remove", "promote"])
        absent = [name for name in NAMES if name not in listed]
        if kind == "insert" and absent:
            name = rng.choice(absent)
            operations.append(("insert", name, rng.choice([None, *listed])))
            listed.append(name)
        elif kind == "remove" and listed:
            operations.append(("remove", listed.pop(rng.randrange(len(listed)))))
        elif kind == "promote":
            operations.append(("promote", rng.sample(NAMES, rng.randrange(1, 4))))
    return operations
