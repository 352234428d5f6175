"""Verdicts on whole paths, against one flag for every token."""

from __future__ import annotations

import random
from array import array

from grading import Check, NotApplicable, draw_table, draw_tree, test
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.unified.full_component import FullComponent
from minisgl.kvcache.unified.node import ComponentData, ComponentType, UnifiedTreeNode
from minisgl.kvcache.unified.params import InsertParams, MatchPrefixParams
from minisgl.kvcache.unified.unified_radix_cache import UnifiedRadixCache

SWA = ComponentType.SWA


class NoPool:
    """A window pool that keeps no books."""

    def free(self, full_slots) -> None: ...

    def move(self, source, target) -> None: ...


def empty_tree(answer, window: int):
    """A tree with the answer's component, and that component."""
    component = answer.SWAComponent(NoPool(), window)
    return UnifiedRadixCache(1, [FullComponent(lambda slots: None), component])


def hang(parent: UnifiedTreeNode, number: int, num_tokens: int) -> UnifiedTreeNode:
    key = array("i", range(1000 * number, 1000 * number + num_tokens)).tobytes()
    node = UnifiedTreeNode(number, key, 0, 2)
    node.set_parent(parent, key[:4])
    return node


def set_live(node: UnifiedTreeNode, is_live: bool) -> None:
    value = array("i", range(len(node))) if is_live else None
    node.component_data[SWA].value = value


class Path:
    """Nodes below one another; a number says how many live tokens, -2: a tombstone."""

    def __init__(self, answer, window: int, runs: list[int]) -> None:
        self.runs, self.window = runs, window
        self.cache = empty_tree(answer, window)
        self.component = self.cache.components[1]
        self.nodes, node = [], self.cache.root_node
        for number, run in enumerate(runs):
            node = hang(node, number, abs(run))
            set_live(node, run > 0)
            self.nodes.append(node)

    def verdicts(self):
        """What the predicate says, deepest first, asked about all nodes."""
        may_end = self.component.create_match_validator()
        return [may_end(node) for node in reversed(self.nodes)]

    def usable(self):
        """Tokens up to the deepest node that it accepts."""
        may_end = self.component.create_match_validator()
        for last in reversed(range(len(self.nodes))):
            if may_end(self.nodes[last]) is True:
                return sum(map(abs, self.runs[: last + 1]))
        return 0

    def __str__(self) -> str:
        runs = [f"{abs(run)} {'live' if run > 0 else 'tombstone'}" for run in self.runs]
        return f"window {self.window}, from the root: {', '.join(runs)}"

    def draw(self, verdicts) -> str:
        rows, end = [], 0
        for run, verdict in zip(self.runs, reversed(verdicts), strict=False):
            start, end = end, end + abs(run)
            kind = "live" if run > 0 else "tombstone"
            rows.append([f"[{start}, {end})", kind, "yes" if verdict else "no"])
        return draw_table(["tokens", "window KV", "may end here"], rows)


def expected_verdicts(window: int, runs: list[int]) -> list[bool]:
    is_live, verdicts = [], []
    for run in runs:
        is_live += [run > 0] * abs(run)
        verdicts.append(all(is_live[-window:]))
    return verdicts[::-1]


LAST_WINDOW = (
    "exactly the last `sliding_window_size` tokens have to be live, no matter "
)
LAST_WINDOW += "how they are cut into nodes"


@test("a tombstone ends the run", example=True)
def _(answer, check: Check):
    for runs, usable in (
        ([2, -2, 2, -2, 2], 2),
        ([3, -2, 2], 3),
        ([3, -2, 2, 2], 9),
        ([2, 2, -1, 3], 4),
    ):
        path = Path(answer, 4, runs)
        check.equal(
            path.usable(),
            usable,
            call=f"{path}; usable tokens",
            look="a tombstone ends the run of live tokens: behind it, a whole window "
            "is needed again",
        )


@test("a short prefix without a gap is usable", example=True)
def _(answer, check: Check):
    for runs, usable in ([6], 6), ([1, 2, 3], 6), ([6, -4], 6), ([-1, 6], 0):
        path = Path(answer, 10, runs)
        check.equal(
            path.usable(),
            usable,
            call=f"{path}; usable tokens",
            look="with a tombstone before it a run needs the whole window"
            if runs[0] < 0
            else "it is shorter than a window and begins at the root: nothing is "
            "missing from it",
        )


@test("the window is counted to the token", example=True)
def _(answer, check: Check):
    for runs, usable in (
        ([-80, 9], 0),
        ([-80, 10], 90),
        ([-80, 5, 4], 0),
        ([-80, 5, 5], 90),
        ([-80, 1, 9], 90),
        ([70, -1, 10], 81),
        ([70, -1, 9], 70),
    ):
        path = Path(answer, 10, runs)
        check.equal(
            path.usable(), usable, call=f"{path}; usable tokens", look=LAST_WINDOW
        )


@test("only the last window counts")
def _(answer, check: Check):
    for runs in [-5, 4, 4, 4], [4, -4, 8, -1, 9, 1], [-1, 4]:
        path = Path(answer, 4, runs)
        check.equal(
            path.usable(),
            sum(map(abs, runs)),
            call=f"{path}; usable tokens",
            look="a tombstone further back than the window is in nobody's way",
        )


@test("a window of one token")
def _(answer, check: Check):
    path = Path(answer, 1, [1, -1, 2, -3])
    check.equal(
        path.verdicts(),
        [False, True, False, True],
        call=f"{path}; asked about every node, the deepest first",
        look="only the node itself matters here",
        draw=path.draw,
    )


@test("can be asked on after a yes")
def _(answer, check: Check):
    path = Path(answer, 4, [4, -2, 2, 2, 3, -1, 4])
    check.equal(
        path.verdicts(),
        expected_verdicts(4, path.runs),
        call=f"{path}; asked about every node, the deepest first",
        look="another component may have refused where this one agreed; above a "
        "tombstone, it is in nobody's way any more",
        draw=path.draw,
    )


@test("every match begins anew")
def _(answer, check: Check):
    path = Path(answer, 4, [4, -2, 2])
    first = path.component.create_match_validator()
    first(path.nodes[2])
    set_live(path.nodes[1], True)
    check.equal(
        path.usable(),
        8,
        call=f"{path}; one match is refused at 8, the tombstone gets new window KV, "
        "the next match; usable tokens",
        look="what one match has found out must not be kept on the component",
    )
    path = Path(answer, 4, [4, -2, 2, 2])
    one, other = (path.component.create_match_validator() for _ in range(2))
    verdicts = [[ask(node) for ask in (one, other)] for node in path.nodes[::-1]]
    check.equal(
        verdicts,
        [[True, True], [False, False], [False, False], [True, True]],
        call=f"{path}; two predicates, each asked about every node in turn",
        look="a predicate remembers for itself, in a closure, not on the component",
    )


@test("the table of the statement")
def _(answer, check: Check):
    table = {79: 0, 80: 0, 85: 0, 89: 0, 90: 90, 91: 91, 99: 99, 100: 100}
    for shared, usable in table.items():
        cache = empty_tree(answer, 10)
        tokens = list(range(1, 101))
        slots = array("i", range(100))
        cache.insert(InsertParams(RadixKey(tokens), slots, swa_evicted_seqlen=80))
        key = RadixKey([*tokens[:shared], 999])
        check.equal(
            cache.match_prefix(MatchPrefixParams(key)).cached_len,
            usable,
            call=f"window 10; [80, 100) of 100 tokens are live; match {shared} of them",
            look=LAST_WINDOW,
        )


class CountedData(ComponentData):
    """Counts how often the value is read."""

    __slots__ = ()
    reads = 0
    _slot = ComponentData.value

    @property
    def value(self):
        CountedData.reads += 1
        return CountedData._slot.__get__(self)

    @value.setter
    def value(self, value):
        CountedData._slot.__set__(self, value)


@test("does not look at the same nodes again and again")
def _(answer, check: Check):
    path = Path(answer, 300, [400, *[-1] * 3, *[1] * 299, -1, *[1] * 299])
    for node in path.nodes:
        node.component_data[SWA] = CountedData()
    for node, run in zip(path.nodes, path.runs, strict=True):
        set_live(node, run > 0)
    CountedData.reads = 0
    usable = path.usable()
    num_nodes, reads = len(path.nodes), CountedData.reads
    call = f"window 300; a path of 400 live tokens and {num_nodes - 1} nodes of one "
    call += "token, among them 4 tombstones"
    check.equal(usable, 400, call=f"{call}; usable tokens", look=LAST_WINDOW)
    check.true(
        reads <= 2 * num_nodes,
        call=call,
        expected=f"at most {2 * num_nodes} reads of a node's data",
        actual=f"{reads} reads",
        look="one look at each node is enough: what stopped the deepest node stops "
        "all those between it and the tombstone",
    )


# A tree for sequences of operations: name -> (parent, tokens).
TREE = {
    "a": (None, 3),
    "b": ("a", 2),
    "c": ("b", 1),
    "d": ("c", 2),
    "e": ("d", 4),
    "f": ("b", 3),
    "g": ("f", 2),
}


def _path(name: str | None) -> list[str]:
    return [] if name is None else [*_path(TREE[name][0]), name]


class Tree:
    """The answer's component on the fixed tree; matches go to a node by name."""

    def __init__(self, answer, window: int) -> None:
        self.cache = empty_tree(answer, window)
        self.component = self.cache.components[1]
        self.nodes = {None: self.cache.root_node}
        for number, (name, (parent, num_tokens)) in enumerate(TREE.items()):
            self.nodes[name] = hang(self.nodes[parent], number, num_tokens)
            set_live(self.nodes[name], True)

    def evict(self, name):
        set_live(self.nodes[name], False)

    def heal(self, name):
        set_live(self.nodes[name], True)

    def match(self, name):
        """Which nodes of the path are accepted, the deepest first."""
        may_end = self.component.create_match_validator()
        return [(node, may_end(self.nodes[node])) for node in reversed(_path(name))]

    def live(self):
        return {
            name: self.nodes[name].component_data[SWA].value is not None
            for name in TREE
        }


class Model:
    """The same with a flag for every token."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.is_live = {name: [True] * size for name, (_, size) in TREE.items()}

    def evict(self, name):
        self._set(name, False)

    def heal(self, name):
        self._set(name, True)

    def match(self, name):
        verdicts, path = [], _path(name)
        for last in reversed(range(len(path))):
            flags = [flag for node in path[: last + 1] for flag in self.is_live[node]]
            verdicts.append((path[last], all(flags[-self.window :])))
        return verdicts

    def live(self):
        return {name: all(flags) for name, flags in self.is_live.items()}

    def _set(self, name, is_live):
        if self.is_live[name][0] == is_live:
            raise NotApplicable
        self.is_live[name] = [is_live] * len(self.is_live[name])


def draw(world) -> str:
    live = world.live()

    def label(name):
        if name is None:
            return "root"
        return f"{name}, {TREE[name][1]} tokens{'' if live[name] else ', tombstone'}"

    return draw_tree(None, lambda name: [x for x in TREE if TREE[x][0] == name], label)


@test("agrees with the flags over many evictions and matches")
def _(answer, check: Check):
    for seed, window in (1, 3), (2, 4), (3, 6), (4, 9):
        rng = random.Random(seed)
        operations = []
        for _ in range(60):
            kind = rng.choice(["evict", "heal", "match", "match"])
            operations.append(
                (kind, rng.choice("cdefg" if kind == "match" else "abcdefg"))
            )
        check.operations(
            operations,
            expected=lambda window=window: Model(window),
            actual=lambda window=window: Tree(answer, window),
            look=f"window {window}: go from the end of the node up until you have "
            "that many tokens, or are at the root",
            draw=draw,
        )


@test("agrees with the flags on many paths")
def _(answer, check: Check):
    rng = random.Random(5)
    for _ in range(60):
        window = rng.randint(1, 8)
        runs = [
            rng.choice((1, 1, -1)) * rng.randint(1, 5) for _ in range(rng.randint(1, 9))
        ]
        path = Path(answer, window, runs)
        check.equal(
            path.verdicts(),
            expected_verdicts(window, runs),
            call=f"{path}; asked about every node, the deepest first",
            look="mark the last tokens up to each end, as many as the window has: is "
            "a tombstone among them?",
            draw=path.draw,
        )
