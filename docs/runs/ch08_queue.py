"""Where the leaves wait: in the plain queue, or in the heap."""

from array import array

from minisgl.kvcache.radix_key import RadixKey
from minisgl.kvcache.radix_tree import RadixTree

NAMES = "abcd"
tree = RadixTree()


def match(name):
    return tree.match_prefix(RadixKey([ord(name)]))


def name_of(node):
    return chr(node.key[0])


def show(what):
    in_order = " ".join(map(name_of, tree.leaves._in_order))
    late = [f"{name_of(node)} as of {stamp}" for stamp, node in tree.leaves._late]
    leaves = sorted(tree.root_node.children.values(), key=name_of)
    stamps = " ".join(f"{name_of(leaf)}:{leaf.timestamp}" for leaf in leaves)
    print(f"{what:16} {stamps:19} {in_order:10} {' '.join(late)}".rstrip())


def evict():
    (slot,) = tree.evict(1)
    show(f"evict: {NAMES[slot]} goes")


print(f"{'':16} {'last use':19} {'queue':10} heap")
for slot, name in enumerate(NAMES):
    tree.insert_prefix(RadixKey([ord(name)]), array("i", [slot]))
show("all have come")
handle = match("a")
tree.lock(handle)
show("a: used, locked")
match("b")
match("c")
show("b, c are used")
evict()
evict()
tree.unlock(handle)
show("a is released")
match("a")
show("a is used")
evict()
tree.check_integrity()
