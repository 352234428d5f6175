"""Recount the unified tree from scratch, and draw it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from minisgl.errors import IntegrityError
from minisgl.kvcache.radix_key import TOKEN_BYTES, unpack

if TYPE_CHECKING:
    from minisgl.kvcache.unified.node import UnifiedTreeNode
    from minisgl.kvcache.unified.tree_component import TreeComponent
    from minisgl.kvcache.unified.unified_radix_cache import UnifiedRadixCache


def check_integrity(cache: UnifiedRadixCache) -> None:
    """Compare the tree with what its rules demand.

    Raises IntegrityError that names the first offence. Iterative, so the depth of the
    tree does not matter. It looks at the tree only: that its slots, the free ones and
    those of requests make up the pools is for their owner to check.
    """
    nodes = list(cache.nodes())
    for node in nodes:
        _check_structure(cache, node)
        _check_data(cache, node)
    for component in cache.components:
        _check_slots(component, nodes)
        _check_locks(cache, component, nodes)
        _check_sizes(component, nodes)
        _check_list(component, nodes)
    for node in nodes:
        if node.is_evictable_leaf() and node not in cache.leaves:
            raise IntegrityError(f"{node} can be evicted and is not queued for it")


def draw(cache: UnifiedRadixCache) -> str:
    """The tree as text: a line per node, tombstones and locks included."""
    lines = ["root"]
    depths = {cache.root_node: 0}
    for node in cache.nodes():
        depths[node] = depth = depths[node.parent] + 1
        tokens = _shorten(unpack(node.key).tolist())
        space = node.child_key[0] if isinstance(node.child_key, tuple) else None
        name = f"[{tokens}]" if space is None else f"{space!r} [{tokens}]"
        data = "  ".join(_describe(component, node) for component in cache.components)
        lines.append(f"{'   ' * (depth - 1)}└─ {name}  {data}")
    return "\n".join(lines)


def _describe(component: TreeComponent, node: UnifiedTreeNode) -> str:
    data = node.component_data[component.component_type]
    kind = component.component_type.name.lower()
    value = "tombstone" if data.value is None else f"[{_shorten(data.value.tolist())}]"
    lock = f" lock={data.lock_ref}" if data.lock_ref else ""
    mark = f" mark={data.metadata}" if data.metadata is not None else ""
    return f"{kind}={value}{lock}{mark}"


def _shorten(numbers: list[int]) -> str:
    if len(numbers) > 8:
        return f"{', '.join(map(str, numbers[:3]))}, … {numbers[-1]}; {len(numbers)}"
    return ", ".join(map(str, numbers))


def _check_structure(cache: UnifiedRadixCache, node: UnifiedTreeNode) -> None:
    page_bytes = cache.page_size * TOKEN_BYTES
    key = unpack(node.key).tolist()
    if not node.key or len(node.key) % page_bytes:
        raise IntegrityError(
            f"{node} has the key {key}, which is not whole pages of {cache.page_size}"
        )
    if node.parent.children.get(node.child_key) is not node:
        raise IntegrityError(f"{node.parent} does not find {node} as its child")
    in_space = isinstance(node.child_key, tuple)
    first_page = node.child_key[1] if in_space else node.child_key
    if first_page != node.key[:page_bytes]:
        raise IntegrityError(
            f"{node} stands under {unpack(first_page).tolist()} and has the key {key}"
        )
    if in_space and node.parent is not cache.root_node:
        raise IntegrityError(f"{node} has a namespace, but is not below the root")
    for child in node.children.values():
        if child.parent is not node:
            raise IntegrityError(f"{child} is a child of {node} and does not know")


def _check_data(cache: UnifiedRadixCache, node: UnifiedTreeNode) -> None:
    missing = None
    for component in sorted(cache.components, key=_priority, reverse=True):
        name = component.component_type.name
        value = node.value(component.component_type)
        if value is None:
            missing = name
        elif missing is not None:
            raise IntegrityError(f"{node} has {name} data but no {missing} data")
        elif len(value) != component.value_len(node):
            raise IntegrityError(
                f"{node} of {len(node)} tokens has {len(value)} {name} slots; it needs "
                f"{component.value_len(node)}"
            )
    if node.value(cache.components[0].component_type) is None:
        raise IntegrityError(f"{node} has no {missing} data and is still there")


def _priority(component: TreeComponent) -> int:
    return component.eviction_priority(False)


def _check_slots(component: TreeComponent, nodes: list[UnifiedTreeNode]) -> None:
    owners: dict[int, UnifiedTreeNode] = {}
    for node in nodes:
        slots = node.value(component.component_type) or ()
        for slot in slots:
            owner = owners.setdefault(slot, node)
            if owner is not node:
                name = component.component_type.name
                raise IntegrityError(
                    f"{name} slot {slot} is owned twice, by {owner} and by {node}"
                )


def _check_locks(
    cache: UnifiedRadixCache, component: TreeComponent, nodes: list[UnifiedTreeNode]
) -> None:
    expected = Counter(
        node
        for receipt in cache.receipts
        if component in receipt.held
        for node in component.locked_nodes(receipt)
    )
    for node in nodes:
        count = node.component_data[component.component_type].lock_ref
        if count != expected[node]:
            raise IntegrityError(
                f"{node} has {count} {component.component_type.name} locks; the "
                f"receipts that are out make it {expected[node]}"
            )


def _check_sizes(component: TreeComponent, nodes: list[UnifiedTreeNode]) -> None:
    sizes = [0, 0]  # evictable, protected
    for node in nodes:
        data = node.component_data[component.component_type]
        sizes[data.lock_ref > 0] += len(data.value or ())
    counted = [component.evictable_size, component.protected_size]
    if counted != sizes:
        raise IntegrityError(
            f"{component.component_type.name} counts {counted} evictable and "
            f"protected; the nodes hold {sizes}"
        )


def _check_list(component: TreeComponent, nodes: list[UnifiedTreeNode]) -> None:
    if component.lru_list is None:
        return
    listed, name = set(component.lru_list), component.component_type.name
    for node in nodes:
        if component.node_has_component_data(node) != (node in listed):
            raise IntegrityError(f"the {name} list and {node} disagree on its data")
    if not listed <= set(nodes):
        raise IntegrityError(f"the {name} list holds a node that left the tree")
