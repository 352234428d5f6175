"""Healthy trees pass; damaged ones are found out, and the damage is named."""

import random
from array import array

from grading import draw_tree, test
from minisgl.errors import IntegrityError
from minisgl.kvcache import radix_tree, tree_check
from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.radix_node import RadixTreeNode
from minisgl.kvcache.radix_tree import RadixTree
from radix_world import plant_branch

HEALTHY = "nothing is wrong with this tree"
LOOP = "keep a list of nodes to visit: a branch may be deeper than Python's stack"
IDENTITY = (
    "the sums are right, and a slot is in two places all the same: ask which slots "
    "they are"
)
RECEIPTS = (
    "each node is needed by the receipts whose prefix runs through it: count those, "
    "and compare each node with its own number"
)
NAME_IT = "the error names the offence: the node or the slot, and the wrong number"


def _missing(*_):
    raise NotImplementedError("the engine's own check_tree is not here: you write it")


radix_tree.check_tree = tree_check.check_tree = _missing


def plant(*prompts, page_size=2):
    """A tree of `prompts`, inserted one after the other; slots count from 1000."""
    tree = RadixTree(page_size)
    first = 1000
    for tokens in prompts:
        insert(tree, tokens, first)
        first += len(tokens)
    return tree


def insert(tree, tokens, first_slot, extra_key=None):
    slots = array("i", range(first_slot, first_slot + len(tokens)))
    tree.insert_prefix(RadixKey(tokens, extra_key), slots)


def lock(tree, tokens):
    handle = tree.match_prefix(RadixKey(tokens))
    tree.lock(handle)
    return handle


def sample():
    """[1, 2] -> ([3, 4], [5, 6]) and [7, 8, 9, 10]; [1, 2, 3, 4] and [1, 2] locked."""
    tree = plant([1, 2, 3, 4], [1, 2, 5, 6], [7, 8, 9, 10])
    lock(tree, [1, 2, 3, 4])
    lock(tree, [1, 2])
    return tree


SAMPLE = "[1, 2] -> ([3, 4], [5, 6]) and [7, 8, 9, 10]; [1, 2, 3, 4] and [1, 2] locked"


def node_of(tree, tokens):
    """The node whose own tokens are `tokens`."""
    return next(n for n in tree.nodes() if n.key.tolist() == tokens)


def picture(tree):
    """All that a check may not change."""
    nodes = [
        (repr(n), n.packed, n.value.tolist(), n.ref_count, n.timestamp, len(n.children))
        for n in tree.nodes()
    ]
    return nodes, tuple(tree.size_info), len(tree.receipts)


def draw(tree):
    """The tree as it is, damaged or not; its first nodes, if it is large."""
    drawn = set()

    def children(node):
        if node in drawn or len(drawn) > 30:
            return []
        drawn.add(node)
        return node.children.values()

    def label(node):
        if node is tree.root_node:
            return f"root: evictable {tree.evictable_size}, protected " + (
                f"{tree.protected_size}, {len(tree.receipts)} receipts"
            )
        return f"{node.key.tolist()} slots {node.value.tolist()}, ref {node.ref_count}"

    return draw_tree(tree.root_node, children, label)


def check_healthy(check, answer, tree, call, look=HEALTHY):
    before = picture(tree)
    try:
        result = answer.check_tree(tree)
    except (IntegrityError, RecursionError) as error:
        result = f"{type(error).__name__}: {error}"
    check.equal(result, None, call=call, look=look, draw=lambda _: draw(tree))
    call = f"the tree after {call}"
    check.equal(picture(tree), before, call=call, look="a check changes nothing")


def check_found(check, answer, tree, call, mentions, look):
    texts = [str(mention) for mention in mentions]
    expected = f"raises IntegrityError, with {texts} in its text"
    try:
        actual = f"returns {answer.check_tree(tree)}"
    except (IntegrityError, RecursionError) as error:
        actual = f"raises {type(error).__name__}: {error}"
        if isinstance(error, IntegrityError):
            look = NAME_IT
            if all(text in str(error) for text in texts):
                actual = expected
    check.equal(actual, expected, call=call, look=look, draw=lambda _: draw(tree))


@test("a healthy tree passes", example=True)
def _(answer, check):
    check_healthy(check, answer, RadixTree(), "check_tree(an empty tree)")
    check_healthy(check, answer, sample(), f"check_tree({SAMPLE})")


@test("a slot in two places is named", example=True)
def _(answer, check):
    tree = plant()
    insert(tree, [1, 2], 1000)
    insert(tree, [7, 8], 1001)
    call = "check_tree([1, 2] in slots 1000, 1001 and [7, 8] in slots 1001, 1002)"
    check_found(check, answer, tree, call, [1001], IDENTITY)
    tree = plant([1, 2], [1, 2, 3, 4])
    node_of(tree, [3, 4]).value[1] = 1000
    call = "check_tree([1, 2] in slots 1000, 1001 -> [3, 4] in slots 1004, 1000)"
    check_found(check, answer, tree, call, [1000], IDENTITY)
    tree = plant([1, 2, 3, 4])
    node_of(tree, [1, 2, 3, 4]).value[3] = 1001
    call = "check_tree([1, 2, 3, 4] in slots 1000, 1001, 1002, 1001)"
    check_found(check, answer, tree, call, [1001], IDENTITY)


@test("a lock without a receipt is named")
def _(answer, check):
    tree = sample()
    node = node_of(tree, [7, 8, 9, 10])
    node.ref_count = 66
    tree.evictable_size -= 4
    tree.protected_size += 4
    call = f"check_tree({SAMPLE}; then [7, 8, 9, 10] has ref_count 66, and sizes fit)"
    check_found(check, answer, tree, call, [node, 66], RECEIPTS)


@test("a lock that is counted too often is named")
def _(answer, check):
    for tokens, count in (([1, 2], 66), ([3, 4], 2)):
        tree = sample()
        node = node_of(tree, tokens)
        node.ref_count = count
        call = f"check_tree({SAMPLE}; then {tokens} has ref_count {count})"
        check_found(check, answer, tree, call, [node, count], RECEIPTS)


@test("a lock that is counted too rarely is named")
def _(answer, check):
    tree = sample()
    node = node_of(tree, [3, 4])
    node.ref_count = 0
    tree.evictable_size += 2
    tree.protected_size -= 2
    call = f"check_tree({SAMPLE}; then [3, 4] has ref_count 0, and the sizes fit)"
    check_found(check, answer, tree, call, [node, 0], RECEIPTS)
    tree = sample()
    node = node_of(tree, [1, 2])
    node.ref_count = 1
    call = f"check_tree({SAMPLE}; then [1, 2] has ref_count 1)"
    check_found(check, answer, tree, call, [node, 1, 2], RECEIPTS)
    tree = sample()
    node = node_of(tree, [5, 6])
    node.ref_count = -1
    call = f"check_tree({SAMPLE}; then [5, 6] has ref_count -1)"
    check_found(check, answer, tree, call, [node, -1], RECEIPTS)


@test("a receipt for a node that is not in the tree is named")
def _(answer, check):
    look = "a receipt protects nothing if its node cannot be reached from the root"
    tree = sample()
    lock(tree, [7, 8, 9, 10])
    node = node_of(tree, [7, 8, 9, 10])
    del tree.root_node.children[node.child_key]
    tree.protected_size -= 4
    call = f"check_tree({SAMPLE}; then [7, 8, 9, 10] is locked and cut off)"
    check_found(check, answer, tree, call, [node], look)
    node.parent = node
    look = "only from a node of the tree, the parents are sure to lead to the root"
    call += ", and is its own parent"
    check_found(check, answer, tree, call, [node], look)


@test("sizes that do not add up are named, held and counted")
def _(answer, check):
    look = "add up the nodes with ref_count 0, and the others, and compare both"
    tree = sample()
    tree.evictable_size = 2222
    call = f"check_tree({SAMPLE}; evictable_size is 2222)"
    check_found(check, answer, tree, call, [2222, 6], look)
    tree = sample()
    tree.protected_size = 3333
    call = f"check_tree({SAMPLE}; protected_size is 3333)"
    check_found(check, answer, tree, call, [3333, 4], look)
    tree = sample()
    tree.evictable_size, tree.protected_size = 4, 6
    call = f"check_tree({SAMPLE}; evictable_size is 4 and protected_size 6)"
    check_found(check, answer, tree, call, [4, 6], look)


@test("a child in a wrong place is named")
def _(answer, check):
    look = "is each child where it says: under its key, below its parent?"
    tree = sample()
    node = node_of(tree, [5, 6])
    node.parent = tree.root_node
    call = f"check_tree({SAMPLE}; then the parent of [5, 6] is the root)"
    check_found(check, answer, tree, call, [node], look)
    tree = sample()
    node = node_of(tree, [5, 6])
    children = node.parent.children
    children[RadixKey([5, 9]).packed] = children.pop(node.child_key)
    call = f"check_tree({SAMPLE}; then [5, 6] lies under the page 5, 9)"
    check_found(check, answer, tree, call, [node], look)
    node.child_key = RadixKey([5, 9]).packed
    call += " and has that child_key"
    check_found(check, answer, tree, call, [node], look)
    tree = sample()
    node = node_of(tree, [5, 6])
    node.child_key = RadixKey([5, 9]).packed
    call = f"check_tree({SAMPLE}; then the child_key of [5, 6] is the page 5, 9)"
    check_found(check, answer, tree, call, [node], look)


@test("a branch that leads back to itself is named")
def _(answer, check):
    tree = sample()
    upper, leaf = node_of(tree, [1, 2]), node_of(tree, [5, 6])
    leaf.children[upper.child_key] = upper
    call = f"check_tree({SAMPLE}; then [1, 2] is a child of [5, 6] too)"
    look = "look at a child's parent before you go on to the child, or you never end"
    check_found(check, answer, tree, call, [upper], look)


@test("a node that does not hold whole pages, with their slots, is named")
def _(answer, check):
    look = "whole pages, at least one, and as many slots as tokens"
    for packed, slots, what in (
        (RadixKey([5, 6]).packed, [2000], "has one slot"),
        (RadixKey([5, 6]).packed, [2000, 2001, 2002, 2003], "has four slots"),
        (RadixKey([5, 6, 7]).packed, [2000, 2001, 2002], "is [5, 6, 7], page size 2"),
    ):
        tree = sample()
        node = node_of(tree, [5, 6])
        tree.evictable_size += len(slots) - 2
        node.packed, node.value = packed, array("i", slots)
        call = f"check_tree({SAMPLE}; then [5, 6] {what})"
        check_found(check, answer, tree, call, [node], look)
    tree = sample()
    node = RadixTreeNode(b"", array("i"), 1)
    node.set_parent(node_of(tree, [5, 6]), b"")
    call = f"check_tree({SAMPLE}; then an empty node below [5, 6])"
    check_found(check, answer, tree, call, [node], look)


@test("prompts with a namespace pass, and are named too")
def _(answer, check):
    tree = plant([1, 2], [3, 4])
    insert(tree, [1, 2, 3, 4], 2000, "tenant")
    tree.match_prefix(RadixKey([1, 2], "tenant"))
    tree.match_prefix(RadixKey([1, 2, 9, 9], "tenant"))
    call = "check_tree([1, 2], [3, 4], and [1, 2] -> [3, 4] for a tenant)"
    look = "below the root, a key may be a pair: the namespace and the first page"
    check_healthy(check, answer, tree, call, look)
    node = next(n for n in tree.root_node.children.values() if n.value[0] == 2000)
    children = tree.root_node.children
    key = (node.child_key[0], RadixKey([3, 4]).packed)
    del children[node.child_key]
    children[key], node.child_key = node, key
    call += ", where the tenant's [1, 2] lies under the page 3, 4"
    check_found(check, answer, tree, call, [node], look)


@test("a branch of 1,500 nodes passes, and its end is looked at")
def _(answer, check):
    depth = 1500
    tree = RadixTree()
    plant_branch(tree, depth)
    handle = lock(tree, range(depth))
    call = f"check_tree(a locked branch of {depth} nodes)"
    check_healthy(check, answer, tree, call, LOOP)
    handle.node.value[0] = 0
    call += ", with slot 0 at both ends"
    check_found(check, answer, tree, call, [0], LOOP)


def random_tree(seed, page_size):
    """A tree after a random life, with locks that are out."""
    rng = random.Random(seed)
    tree, prompts, handles = RadixTree(page_size), [[]], []
    for at in range(40):
        start = rng.choice(prompts)[: rng.randrange(4 * page_size)]
        new = rng.choices((1, 2, 3), k=rng.randrange(3 * page_size + 1))
        prompts.append(start + new)
        insert(tree, prompts[-1], 1000 + 100 * at, rng.choice((None, None, "tenant")))
        if rng.random() < 0.3:
            handles.append(lock(tree, rng.choice(prompts)))
        if handles and rng.random() < 0.2:
            tree.unlock(handles.pop(rng.randrange(len(handles))))
        if rng.random() < 0.2:
            tree.evict(min(3, tree.evictable_size))
    return tree, rng


def damage(tree, rng):
    """Damages a tree in one way; what was done, and what must be named."""
    nodes = [node for node in tree.nodes() if node.parent]
    node, other = rng.sample(nodes, 2)
    free = rng.choice([n for n in nodes if not n.ref_count])
    kind = rng.choice(("slot", "lock", "size", "parent", "key", "value"))
    if kind == "slot":
        node.value[-1] = other.value[0]
        return f"{node} got a slot of {other}", [other.value[0]]
    if kind == "lock":
        node.ref_count += 1
        if node.ref_count == 1:
            tree.evictable_size -= node.length
            tree.protected_size += node.length
        return f"{node} got a lock without a receipt", [node.ref_count]
    if kind == "size":
        tree.evictable_size += 5000
        return "evictable_size grew by 5000", [tree.evictable_size]
    if kind == "parent":
        free.parent = RadixTreeNode(b"", array("i"), 0)
        return f"{free} got a parent that is not in the tree", [free]
    if kind == "key":
        children = free.parent.children
        children[b"none"] = children.pop(free.child_key)
        return f"{free} lies under another key", [free]
    free.value = free.value[:-1]
    tree.evictable_size -= 1
    return f"{free} lost a slot", [free]


@test("random trees pass")
def _(answer, check):
    for page_size in (1, 2, 4):
        for seed in range(8):
            tree, _ = random_tree(seed, page_size)
            call = (
                f"check_tree(a tree after 40 steps, seed {seed}, pages of {page_size})"
            )
            check_healthy(check, answer, tree, call)


@test("random damage is named")
def _(answer, check):
    for page_size in (1, 2, 4):
        for seed in range(20):
            tree, rng = random_tree(seed, page_size)
            done, mentions = damage(tree, rng)
            call = f"check_tree(random tree {seed}, pages of {page_size}; then {done})"
            check_found(check, answer, tree, call, mentions, NAME_IT)
