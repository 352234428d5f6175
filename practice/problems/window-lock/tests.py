"""Window locks against a model in which a lock is the set of tokens that it covers."""

from __future__ import annotations

import random
from array import array

from grading import Check, NotApplicable, draw_table, draw_tree, test
from minisgl.kvcache.unified.full_component import FullComponent
from minisgl.kvcache.unified.node import ComponentType
from minisgl.kvcache.unified.params import DecLockRefParams
from minisgl.kvcache.unified.unified_radix_cache import UnifiedRadixCache

FULL, SWA = ComponentType.FULL, ComponentType.SWA

# The tree of most tests: name -> (parent, tokens).
TREE = {
    "a": (None, 4),
    "b": ("a", 4),
    "c": ("b", 2),
    "d": ("c", 4),
    "e": ("b", 6),
}


class NoPool:
    """A window pool that keeps no books."""

    def free(self, full_slots) -> None: ...

    def move(self, source, target) -> None: ...


class Tree:
    """The answer's component on a tree, with tombstones where they are named.

    A part of a node is known as "b[0:2]": the first two tokens of what began as b.
    """

    def __init__(self, answer, window: int, tombstones: str = "", tree=TREE) -> None:
        self.component = answer.SWAComponent(NoPool(), window)
        full = FullComponent(lambda slots: None)
        self.cache = UnifiedRadixCache(1, [full, self.component])
        self.tree, self.receipts = tree, {}
        self.nodes = {None: self.cache.root_node}
        self.names: dict[int, str] = {}  # by the id of the node
        for number, (name, (parent, num_tokens)) in enumerate(tree.items()):
            slots = array("i", range(100 * number, 100 * number + num_tokens))
            node = self.nodes[name] = self.cache._make_node(slots.tobytes())
            node.set_parent(self.nodes[parent], node.key[:4])
            self.names[node.id] = f"{name}[0:{num_tokens}]"
            full._set_value(node, slots)
            if name not in tombstones:
                self.component._set_value(node, slots)

    def lock(self, receipt, name):
        """Where the lock's mark is found afterwards."""
        lock = self.receipts[receipt] = self.cache.inc_lock_ref(self.nodes[name])
        mark = lock.swa_uuid_for_lock
        if mark is None:
            return "no mark: up to the root"
        return [
            self.names[node.id]
            for node in self.cache.nodes()
            if node.component_data[SWA].metadata == mark
        ]

    def release(self, receipt):
        lock = self.receipts.pop(receipt)
        self.cache.dec_lock_ref(lock.node, lock.to_dec_params())

    def release_window(self, receipt):
        """Only the window part of the lock."""
        lock = self.receipts[receipt]
        self.cache.dec_lock_ref(lock.node, DecLockRefParams(lock, SWA))

    def split(self, name, at):
        """Cut what began as a node `at` tokens before its end."""
        node = self.nodes[name]
        start, end = map(int, self.names[node.id][2:-1].split(":"))
        middle = end - at
        if not start < middle < end:
            return
        upper = self.cache.split_node(node, middle - start)
        self.names[upper.id] = f"{name}[{start}:{middle}]"
        self.names[node.id] = f"{name}[{middle}:{end}]"

    def heal(self, name):
        """The deepest part of a node gets window KV, if it has none."""
        node = self.nodes[name]
        if node.value(SWA) is None:
            self.component._set_value(node, node.value(FULL))

    def covered(self, receipt):
        nodes = self.component.locked_nodes(self.receipts[receipt])
        return [self.names[node.id] for node in nodes]

    def rows(self):
        """Node -> [above, its tokens, window KV, locks]."""
        rows = {}
        for node in self.cache.nodes():
            data = node.component_data[SWA]
            kind = "tombstone" if data.value is None else "live"
            rows[self.names[node.id]] = [
                self.names.get(node.parent.id),
                kind,
                data.lock_ref,
            ]
        return dict(sorted(rows.items()))

    def locks(self):
        return {name: row[2] for name, row in self.rows().items()}

    def marks(self):
        return [
            self.names[node.id]
            for node in self.cache.nodes()
            if node.component_data[SWA].metadata is not None
        ]

    def sizes(self):
        return self.component.evictable_size, self.component.protected_size

    def state(self):
        return {"nodes": self.rows(), "evictable, protected": self.sizes()}


class Model:
    """Tokens are (name, place in the node); a lock is the tokens of whole parts."""

    def __init__(self, window: int, tombstones: str = "", tree=TREE) -> None:
        self.window, self.tree = window, tree
        self.cuts = {name: [0, size] for name, (_, size) in tree.items()}
        self.dead = {
            (name, at)
            for name, (_, size) in tree.items()
            for at in range(size)
            if name in tombstones
        }
        self.held: dict[str, set[tuple[str, int]]] = {}

    def lock(self, receipt, name):
        if receipt in self.held:
            raise NotApplicable
        covered: set[tuple[str, int]] = set()
        parts = self._parts_up_from(name)
        while parts and len(covered) < self.window:
            topmost = parts.pop(0)
            covered.update(_tokens(topmost))
        self.held[receipt] = covered
        return [_label(topmost)] if parts else "no mark: up to the root"

    def release(self, receipt):
        if receipt not in self.held:
            raise NotApplicable
        del self.held[receipt]

    def split(self, name, at):
        middle = self.cuts[name][-1] - at
        if self.cuts[name][-2] < middle < self.cuts[name][-1]:
            self.cuts[name].insert(-1, middle)

    def heal(self, name):
        start, end = self.cuts[name][-2:]
        self.dead -= {(name, at) for at in range(start, end)}

    def rows(self):
        rows = {}
        for name in self.tree:
            parts = self._parts_up_from(name)
            for part, above in zip(parts, [*parts[1:], None], strict=True):
                tokens = _tokens(part)
                rows[_label(part)] = [
                    above and _label(above),
                    "tombstone" if tokens[0] in self.dead else "live",
                    self._num_locks(tokens[0]),
                ]
        return dict(sorted(rows.items()))

    def sizes(self):
        live = [
            (name, at)
            for name, (_, size) in self.tree.items()
            for at in range(size)
            if (name, at) not in self.dead
        ]
        num_locked = sum(1 for token in live if self._num_locks(token))
        return len(live) - num_locked, num_locked

    def state(self):
        return {"nodes": self.rows(), "evictable, protected": self.sizes()}

    def _num_locks(self, token):
        return sum(1 for covered in self.held.values() if token in covered)

    def _parts_up_from(self, name):
        parts = []
        while name is not None:
            cuts = self.cuts[name]
            parts += [(name, *pair) for pair in zip(cuts, cuts[1:], strict=False)][::-1]
            name = self.tree[name][0]
        return parts


def _label(part) -> str:
    name, start, end = part
    return f"{name}[{start}:{end}]"


def _tokens(part) -> list[tuple[str, int]]:
    name, start, end = part
    return [(name, at) for at in range(start, end)]


def draw(world) -> str:
    state = world.state()
    evictable, protected = state["evictable, protected"]
    return f"evictable {evictable}, protected {protected}\n{draw_rows(state['nodes'])}"


def draw_rows(rows) -> str:
    def label(name):
        if name is None:
            return "root"
        return f"{name}  {rows[name][1]}, locks {rows[name][2]}"

    return draw_tree(
        None, lambda name: [other for other in rows if rows[other][0] == name], label
    )


def draw_locks(locks) -> str:
    return draw_table(["node", "window locks"], list(locks.items()))


CHAIN = {
    "a": (None, 10),
    "b": ("a", 10),
    "c": ("b", 10),
    "d": ("c", 10),
    "e": ("d", 10),
    "f": ("e", 10),
}


@test("locks the last window only", example=True)
def _(answer, check: Check):
    tree = Tree(answer, 10, tree=CHAIN)
    mark = tree.lock("R", "f")
    call = "window 10; six nodes a to f of 10 tokens; lock f"
    check.equal(
        tree.locks(),
        {
            "a[0:10]": 0,
            "b[0:10]": 0,
            "c[0:10]": 0,
            "d[0:10]": 0,
            "e[0:10]": 0,
            "f[0:10]": 1,
        },
        call=f"{call}; the locks of each node",
        look="stop as soon as the window is filled: f alone has 10 tokens",
        draw=draw_locks,
    )
    check.equal(
        tree.sizes(),
        (50, 10),
        call=f"{call}; evictable and protected size",
        look="what a lock covers is protected, all else can be evicted",
    )
    check.equal(
        mark,
        ["f[0:10]"],
        call=f"{call}; the nodes that have the receipt's mark",
        look="f is the topmost locked node",
    )


@test("goes up through as many nodes as it needs", example=True)
def _(answer, check: Check):
    for window, covered, mark in (
        (4, ["d"], "d"),
        (5, ["d", "c"], "c"),
        (6, ["d", "c"], "c"),
        (7, ["d", "c", "b"], "b"),
        (10, ["d", "c", "b"], "b"),
        (11, ["d", "c", "b", "a"], None),
        (99, ["d", "c", "b", "a"], None),
    ):
        tree = Tree(answer, window)
        found = tree.lock("R", "d")
        call = f"a, b, c, d have 4, 4, 2, 4 tokens; window {window}; lock d"
        sizes = {name: f"{name}[0:{size}]" for name, (_, size) in TREE.items()}
        check.equal(
            tree.locks(),
            {label: int(name in covered) for name, label in sizes.items()},
            call=f"{call}; the locks of each node",
            look="whole nodes are locked, until together they have the window's tokens",
            draw=draw_locks,
        )
        check.equal(
            found,
            "no mark: up to the root" if mark is None else [sizes[mark]],
            call=f"{call}; the nodes that have the receipt's mark",
            look="the mark is on the topmost locked node; a lock that covers the whole "
            "path has none",
        )
        check.equal(
            tree.covered("R"),
            [sizes[name] for name in covered],
            call=f"{call}; locked_nodes(its receipt)",
            look="from the receipt's node up, the deepest first",
        )


@test("tombstones are locked and move no sizes", example=True)
def _(answer, check: Check):
    tree = Tree(answer, 10, "b")
    tree.lock("R", "d")
    call = "window 10; a, b, c, d have 4, 4, 2, 4 tokens, e below b 6; b is a "
    call += "tombstone; lock d"
    check.equal(
        tree.locks(),
        {"a[0:4]": 0, "b[0:4]": 1, "c[0:2]": 1, "d[0:4]": 1, "e[0:6]": 0},
        call=f"{call}; the locks of each node",
        look="the run is contiguous: a tombstone's tokens count towards the window",
        draw=draw_locks,
    )
    check.equal(
        tree.sizes(),
        (10, 6),
        call=f"{call}; evictable and protected size",
        look="a tombstone has no token to protect: only a and e are evictable, c and "
        "d protected",
    )
    tree.heal("b")
    tree.release("R")
    check.equal(
        tree.sizes(),
        (20, 0),
        call=f"{call}; b gets new window KV; release; evictable and protected size",
        look="b was locked all the time, so what it gets is protected until then",
    )


@test("a node that is locked already moves no sizes")
def _(answer, check: Check):
    tree = Tree(answer, 6)
    tree.lock("R1", "d")
    tree.lock("R2", "c")
    check.equal(
        tree.locks(),
        {"a[0:4]": 0, "b[0:4]": 1, "c[0:2]": 2, "d[0:4]": 1, "e[0:6]": 0},
        call="window 6; a, b, c, d have 4, 4, 2, 4 tokens; lock d, lock c; the locks",
        look="the first lock covers d and c, the second c and b",
        draw=draw_locks,
    )
    check.equal(
        tree.sizes(),
        (10, 10),
        call="window 6; a, b, c, d, e have 4, 4, 2, 4, 6 tokens; lock d, lock c; "
        "evictable and protected size",
        look="tokens move with the first lock on their node, not with the second",
    )


@test("two locks that end at the same node share its mark")
def _(answer, check: Check):
    for order in ("R1", "R2"), ("R2", "R1"):
        tree = Tree(answer, 6)
        tree.lock("R1", "d")
        tree.lock("R2", "d")
        call = "window 6; a, b, c, d have 4, 4, 2, 4 tokens; lock d twice"
        check.equal(
            [tree.covered(receipt) for receipt in order],
            [["d[0:4]", "c[0:2]"]] * 2,
            call=f"{call}; locked_nodes of both receipts",
            look="keep the mark that is there: the other receipt looks for it",
        )
        for receipt in order:
            tree.release(receipt)
        check.equal(
            (tree.sizes(), tree.marks()),
            ((20, 0), []),
            call=f"{call}; release {order[0]}, then {order[1]}; sizes, and what is "
            "marked still",
            look="with the last lock on a node its mark goes too",
        )


@test("a cut of the topmost node, then the release")
def _(answer, check: Check):
    call = "window 5; a, b, c, d have 4, 4, 2, 4 tokens; lock d (and c); cut "
    for cuts, covered in (
        (["c"], ["d[0:4]", "c[1:2]", "c[0:1]"]),
        (["d"], ["d[3:4]", "d[0:3]", "c[0:2]"]),
        (["c", "d"], ["d[3:4]", "d[0:3]", "c[1:2]", "c[0:1]"]),
    ):
        tree = Tree(answer, 5)
        tree.lock("R", "d")
        for name in cuts:
            tree.split(name, 1)
        check.equal(
            tree.covered("R"),
            covered,
            call=f"{call}{' and '.join(cuts)}; locked_nodes(its receipt)",
            look="the mark is where the lock ends, however the nodes were cut since",
        )
        tree.release("R")
        check.equal(
            tree.sizes(),
            (20, 0),
            call=f"{call}{' and '.join(cuts)}; release; evictable and protected size",
            look="the mark is where the lock ends, however the nodes were cut since",
        )
    tree = Tree(answer, 2)
    tree.lock("R", "d")
    tree.split("d", 2)
    tree.split("d", 1)
    check.equal(
        tree.covered("R"),
        ["d[3:4]", "d[2:3]", "d[0:2]"],
        call="window 2; lock d of 4 tokens; cut it in the middle, and the lower half "
        "again; locked_nodes(its receipt)",
        look="the mark is where the lock ends: it has moved to the upper half",
    )


@test("a lock up to the root stays one, however nodes are cut")
def _(answer, check: Check):
    tree = Tree(answer, 99)
    tree.lock("R", "c")
    tree.split("a", 2)
    tree.split("c", 1)
    check.equal(
        tree.covered("R"),
        ["c[1:2]", "c[0:1]", "b[0:4]", "a[2:4]", "a[0:2]"],
        call="window 99; a, b, c have 4, 4, 2 tokens; lock c; cut a and c in the "
        "middle; locked_nodes(its receipt)",
        look="without a mark the lock goes up to the root",
    )
    tree.release("R")
    check.equal(tree.sizes(), (20, 0), call="then release it; sizes", look="all free")


@test("other locks' marks on the way do not matter")
def _(answer, check: Check):
    tree = Tree(answer, 6)
    tree.lock("R1", "d")  # d, c
    tree.lock("R2", "e")  # e
    tree.lock("R3", "c")  # c, b
    check.equal(
        [tree.covered(receipt) for receipt in ("R1", "R2", "R3")],
        [["d[0:4]", "c[0:2]"], ["e[0:6]"], ["c[0:2]", "b[0:4]"]],
        call="window 6; a, b, c, d have 4, 4, 2, 4 tokens, e below b 6; lock d, e, c; "
        "locked_nodes of each",
        look="c carries the mark of the first lock; the third one goes past it to its "
        "own, on b",
    )


@test("the root is never locked")
def _(answer, check: Check):
    tree = Tree(answer, 4)
    check.equal(
        (tree.lock("R", None), tree.covered("R"), tree.sizes()),
        ("no mark: up to the root", [], (20, 0)),
        call="lock the root, which is what an empty match ends with; its mark, its "
        "locked_nodes, the sizes",
        look="the root has no tokens: there is nothing to lock",
    )
    tree.release("R")
    check.equal(
        tree.cache.root_node.component_data[SWA].lock_ref,
        0,
        call="release the lock on the root; its lock_ref",
        look="the root has no tokens: there is nothing to lock",
    )


@test("the window part can be released ahead of time")
def _(answer, check: Check):
    tree = Tree(answer, 10, tree=CHAIN)
    tree.lock("R", "f")
    tree.release_window("R")
    check.equal(
        (tree.sizes(), tree.cache.protected_size()),
        ((60, 0), 60),
        call="window 10; six nodes of 10 tokens; lock f, release the window part; "
        "window sizes, Full tokens protected",
        look="the request has left this window, and reads Full still",
    )


@test("agrees with the model over many operations")
def _(answer, check: Check):
    for seed, window, tombstones in (
        (1, 3, ""),
        (2, 5, "c"),
        (3, 6, "b"),
        (4, 9, "bd"),
        (5, 12, "e"),
    ):
        check.operations(
            _operations(random.Random(seed), 50),
            expected=lambda args=(window, tombstones): Model(*args),
            actual=lambda args=(window, tombstones): Tree(answer, *args),
            look=f"window {window}: compare the locks of each node with the tokens "
            "that the receipts stand for",
            draw=draw,
        )


def _operations(rng: random.Random, count: int) -> list[tuple]:
    operations, held = [], []
    for step in range(count):
        kind = rng.choice(["lock", "lock", "release", "split", "heal"])
        if kind == "lock":
            held.append(f"R{step}")
            operations.append(("lock", held[-1], rng.choice("abcddee")))
        elif kind == "release" and held:
            operations.append(("release", held.pop(rng.randrange(len(held)))))
        elif kind == "split":
            operations.append(("split", rng.choice("abcde"), rng.randint(1, 3)))
        elif kind == "heal" and step > count // 2:
            operations.append(("heal", rng.choice("abcde")))
    return operations + [("release", receipt) for receipt in held]
