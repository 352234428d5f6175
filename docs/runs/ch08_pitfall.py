"""A split that makes the old object the upper half: locks are never given back."""

from array import array
from unittest.mock import patch

from minisgl.errors import IntegrityError
from minisgl.kvcache.radix_key import TOKEN_BYTES, RadixKey
from minisgl.kvcache.radix_node import RadixTreeNode
from minisgl.kvcache.radix_tree import RadixTree

POOL = 16


def careless_split(node, pos, page_size):
    """The obvious way: cut the node short, and hang the rest below it."""
    cut = pos * TOKEN_BYTES
    rest = RadixTreeNode(node.packed[cut:], node.value[pos:], node.timestamp)
    rest.ref_count = node.ref_count
    node.packed, node.value = node.packed[:cut], node.value[:pos]
    rest.set_parent(node, rest.packed[: page_size * TOKEN_BYTES])
    return node


def serve():
    """A runs; B has half of A's prompt, comes and goes meanwhile; six times over."""
    tree, free = RadixTree(), list(range(POOL))
    print("round   evictable   protected   free")
    for number in range(1, 7):
        if len(free) < 4:
            free += tree.evict(4 - len(free))
        prompt = [4 * number + i for i in range(-3, 1)]
        a = tree.insert_prefix(RadixKey(prompt), array("i", free[:4])).handle
        del free[:4]
        tree.lock(a)
        b = tree.match_prefix(RadixKey([*prompt[:2], 99]))
        tree.lock(b)
        tree.unlock(b)
        tree.unlock(a)
        evictable, protected = tree.size_info
        print(f"{number:5}   {evictable:9}   {protected:9}   {len(free):4}")
        if number == 1:
            check(tree)


def check(tree):
    try:
        tree.check_integrity()
    except IntegrityError as error:
        print(f"IntegrityError: {error}")


print("the old object becomes the upper half:")
with patch.object(RadixTreeNode, "split_at", careless_split):
    try:
        serve()
    except KeyError as error:
        print(f"KeyError: {error}")
print("\nthe old object stays the deeper half:")
serve()
