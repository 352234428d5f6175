"""Single splits with everything that hangs on a node, and splits under way in a tree.

Long sequences run in the engine's tree, made of the answer's nodes, against a model
that has no nodes to split: it remembers every page by itself.
"""

import random
from array import array

from grading import NotApplicable, test
from minisgl.kvcache import radix_tree
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.radix_node import RadixTreeHandle
from radix_world import PrefixModel, TreeWorld, draw_rows, in_order, random_tokens

OBJECT = (
    "the deeper half stays this object: a handle that points at it must go on to mean "
    "the whole prefix. The new object is the upper half"
)
LOCKS = "whoever needs the deeper half needs the upper one too: it is locked as often"
KEYS = (
    "the upper half takes the place and the key that the node had in its parent; the "
    "deeper half lies under its own first page, `page_size` tokens of 4 bytes"
)


def pack(tokens):
    return RadixKey(tokens).packed


def new_node(answer, parent, tokens, slots, child_key=None, stamp=7):
    node = answer.RadixTreeNode(pack(tokens), array("i", slots), stamp)
    node.set_parent(parent, pack(tokens[:1]) if child_key is None else child_key)
    return node


def new_root(answer):
    return answer.RadixTreeNode(b"", array("i"), 0)


def content(node):
    return {"tokens": node.key.tolist(), "slots": node.value.tolist()}


@test("the first tokens go into a new node above", example=True)
def _(answer, check):
    node = new_node(answer, new_root(answer), [1, 2, 3, 4], [10, 11, 12, 13])
    upper = node.split_at(1, 1)
    check.equal(
        content(upper),
        {"tokens": [1], "slots": [10]},
        call="what split_at(1, page_size=1) of a node [1, 2, 3, 4] returns",
        look="the upper half is returned, with the first `pos` tokens and slots",
    )
    check.equal(
        content(node),
        {"tokens": [2, 3, 4], "slots": [11, 12, 13]},
        call="node [1, 2, 3, 4] after node.split_at(1, page_size=1)",
        look=OBJECT,
    )


@test("the deeper half keeps its children and its handles", example=True)
def _(answer, check):
    root = new_root(answer)
    node = new_node(answer, root, [1, 2, 3, 4], [10, 11, 12, 13])
    child = new_node(answer, node, [5], [14])
    handle = RadixTreeHandle(4, node)
    node.split_at(2, 1)
    call = "split_at(2, page_size=1) of a node [1, 2, 3, 4] with the child [5]"
    check.true(
        child.parent is node and list(node.children.values()) == [child],
        call=call,
        expected="[5] lies below the deeper half, [3, 4]",
        actual=f"[5] lies below {child.parent}; children of {node}: "
        f"{list(node.children.values())}",
        look=OBJECT,
    )
    check.equal(
        handle.matched_slots().tolist(),
        [10, 11, 12, 13],
        call=f"the slots of a handle for [1, 2, 3, 4], after {call}",
        look=OBJECT,
    )


@test("each half lies under its key")
def _(answer, check):
    tokens, page = [1, 2, 3, 4, 5, 6], pack([1, 2])
    for child_key in (page, ((("extra_key", "tenant"),), page)):
        root = new_root(answer)
        other = new_node(answer, root, [8, 9], [6, 7], child_key=pack([8, 9]))
        node = new_node(answer, root, tokens, [0, 1, 2, 3, 4, 5], child_key=child_key)
        upper = node.split_at(4, 2)
        where = "with" if type(child_key) is tuple else "without"
        call = f"split_at(4, page_size=2) of a node {tokens} {where} a namespace"
        check.equal(
            list(root.children),
            [pack([8, 9]), child_key],
            call=f"keys of the children of the root, after {call}",
            look=KEYS,
        )
        check.equal(
            list(upper.children),
            [pack([5, 6])],
            call=f"keys of the children of the upper half, after {call}",
            look=KEYS,
        )
        links = {
            "the root finds the upper half": root.children.get(child_key) is upper,
            "its parent is the root": upper.parent is root,
            "its child_key is the node's old one": upper.child_key == child_key,
            "it finds the deeper half": upper.children.get(pack([5, 6])) is node,
            "whose parent it is": node.parent is upper,
            "whose child_key is its first page": node.child_key == pack([5, 6]),
            "the other child is there": root.children.get(pack([8, 9])) is other,
        }
        check.equal(
            links,
            dict.fromkeys(links, True),
            call=call,
            look="`set_parent(parent, child_key)` makes a link in both directions",
        )


@test("both halves are locked as often as the node was")
def _(answer, check):
    for count in (0, 1, 3):
        node = new_node(answer, new_root(answer), [1, 2, 3], [0, 1, 2])
        node.ref_count = count
        upper = node.split_at(1, 1)
        check.equal(
            {"upper": upper.ref_count, "deeper": node.ref_count},
            {"upper": count, "deeper": count},
            call=f"ref_count of the halves of a node that was locked {count} times",
            look=LOCKS,
        )


@test("both halves carry the stamp of the node")
def _(answer, check):
    node = new_node(answer, new_root(answer), [1, 2, 3], [0, 1, 2], stamp=41)
    upper = node.split_at(2, 1)
    check.equal(
        {"upper": upper.timestamp, "deeper": node.timestamp},
        {"upper": 41, "deeper": 41},
        call="timestamp of the halves of a node with the stamp 41",
        look="a split uses nothing: both halves begin with the node's stamp. The walk "
        "that asked for the split stamps the upper one",
    )


@test("each half owns what it holds")
def _(answer, check):
    node = new_node(answer, new_root(answer), [1, 2, 3, 4], [0, 1, 2, 3])
    upper = node.split_at(2, 1)
    look = "a half has an array('i') and bytes of its own, with nothing of the other's"
    call = "split_at(2, page_size=1) of a node [1, 2, 3, 4]"
    for half, tokens, slots in ((upper, [1, 2], [0, 1]), (node, [3, 4], [2, 3])):
        check.equal(
            half.packed, pack(tokens), call=f"{call}: a half's packed", look=look
        )
        check.equal(
            half.value, array("i", slots), call=f"{call}: a half's value", look=look
        )
    upper.value[1] = 99
    check.equal(
        node.value,
        array("i", [2, 3]),
        call=f"{call}: the deeper value, after a change to the upper one",
        look=look,
    )


# --- sequences in a tree --------------------------------------------------------------


def state_of(world):
    """Of every node its path, its slots, its stamp and how often it is locked."""
    return {
        "(evictable, protected)": world.sizes(),
        "nodes": in_order(world.rows()),
        "check_integrity()": world.integrity(),
    }


class Model(PrefixModel):
    state = state_of

    def read(self, name):
        if name not in self.held:
            raise NotApplicable(f"{name} holds nothing")
        return self.slots(self.held[name])


class Tree(TreeWorld):
    """The engine's tree, made of the answer's nodes."""

    state = state_of

    def __init__(self, answer, page_size):
        self.node_class = answer.RadixTreeNode
        super().__init__(self._with_nodes(radix_tree.RadixTree, page_size))

    def insert(self, tokens, slots, space):
        return self._with_nodes(super().insert, tokens, slots, space)

    def read(self, name):
        return self.handles[name].matched_slots().tolist()

    def _with_nodes(self, function, *arguments):
        """Whatever the engine's tree makes in between is of the answer's class."""
        before = radix_tree.RadixTreeNode
        radix_tree.RadixTreeNode = self.node_class
        try:
            return function(*arguments)
        finally:
            radix_tree.RadixTreeNode = before


def draw(world):
    """The nodes of a world as a tree."""

    def label(row):
        path, slots, stamp, locks = row
        space = "" if path[0] is None or len(path) > 2 else f" of {path[0]!r}"
        return f"{path[-1]}{space}  slots {slots}  stamp {stamp}  locked {locks}×"

    return draw_rows(world.rows(), label)


def random_operations(seed, page_size):
    """Prefixes that share much, so that nodes are split, also while they are held."""
    rng = random.Random(seed)
    operations, slot = [], 0
    for _ in range(70):
        key = random_tokens(rng, page_size), rng.choice((None, None, "a"))
        choice = rng.random()
        if choice < 0.3:
            slots = list(range(slot, slot + len(key[0])))
            slot += len(slots)
            operations.append(("insert", key[0], slots, key[1]))
        elif choice < 0.5:
            operations.append(("match", *key))
        elif choice < 0.65:
            operations.append(("lock", rng.choice("ABC"), *key))
        elif choice < 0.8:
            operations.append(("read", rng.choice("ABC")))
        elif choice < 0.9:
            operations.append(("unlock", rng.choice("ABC")))
        else:
            operations.append(("evict", rng.randrange(1, 2 * page_size + 1)))
    return operations


@test("a lock taken before a split is released after it")
def _(answer, check):
    operations = [
        ("insert", [1, 2, 3, 4], [0, 1, 2, 3], None),
        ("lock", "A", [1, 2, 3, 4], None),
        ("match", [1, 2, 9], None),
        ("read", "A"),
        ("unlock", "A"),
        ("evict", 4),
    ]
    check.operations(
        operations,
        expected=lambda: Model(1),
        actual=lambda: Tree(answer, 1),
        look=f"{OBJECT}. {LOCKS}",
        draw=draw,
    )


@test("splits between inserts, locks and evictions")
def _(answer, check):
    for page_size in (1, 2, 4):
        for seed in (1, 2, 3):
            check.operations(
                random_operations(seed, page_size),
                expected=lambda size=page_size: Model(size),
                actual=lambda size=page_size: Tree(answer, size),
                look="both halves of a split: tokens, slots, stamp and locks. " + LOCKS,
                draw=draw,
            )
