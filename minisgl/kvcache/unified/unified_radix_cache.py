"""One radix tree for every kind of KV cache.

The tree works on keys alone. What a node holds for full attention, for a sliding window
or for a recurrent state, and how that is protected and freed, is up to the components;
the tree calls their hooks in turn and treats them alike. Names and behaviour follow the
device tier of SGLang's UnifiedRadixCache.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from minisgl.kvcache.base import LockError, StaleHandleError
from minisgl.kvcache.radix_key import (
    TOKEN_BYTES,
    InvalidKeyError,
    RadixKey,
    common_prefix_bytes,
)
from minisgl.kvcache.unified import integrity
from minisgl.kvcache.unified.leaves import UnifiedLeafQueue
from minisgl.kvcache.unified.node import ComponentType, UnifiedTreeNode
from minisgl.kvcache.unified.params import (
    DecLockRefParams,
    Duplicate,
    EvictParams,
    EvictResult,
    IncLockRefResult,
    InsertParams,
    InsertResult,
    MatchPrefixParams,
    MatchResult,
)
from minisgl.kvcache.unified.tree_component import (
    CacheConfigError,
    CachingReq,
    TreeComponent,
)


class UnifiedRadixCache:
    """A radix tree whose nodes hold the data of one or more components.

    Keys are cut to whole pages of `page_size` tokens. The first component is the base:
    a node stays in the tree for as long as it has children, or data of the base.
    """

    def __init__(self, page_size: int, components: Sequence[TreeComponent]) -> None:
        """`components` come in the order of ComponentType; FULL is one of them.

        Raises CacheConfigError if they do not, or if the page size makes no sense.
        """
        if not isinstance(page_size, int) or page_size < 1:
            raise CacheConfigError(f"page_size is {page_size!r}; it must be 1 or more")
        kinds = [component.component_type for component in components]
        if kinds != sorted(set(kinds)) or ComponentType.FULL not in kinds:
            raise CacheConfigError(
                f"components are {[kind.name for kind in kinds]}; they must begin with "
                "FULL and follow the order of ComponentType, each at most once"
            )
        self.page_size = page_size
        self.components = tuple(components)
        self.receipts: set[IncLockRefResult] = set()  # given out, not yet returned
        self._base = self.components[0]
        self._base_type = self._base.component_type
        self._page_bytes = page_size * TOKEN_BYTES
        self._clock = 0  # ticks at every match and insert; never the time of day
        self._next_node_id = 0
        self._num_types = kinds[-1] + 1
        self.root_node = self._make_node(b"")
        self.leaves = UnifiedLeafQueue()  # those that can go as a whole
        for component in self.components:
            component.attach(self)
        self._validating = self._overriding("create_match_validator")
        self._finalizing = self._overriding("finalize_match_result")
        self._refreshing = self._overriding("refresh_lru")
        self._overlapping = self._overriding("update_component_on_insert_overlap")

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        """Find the longest cached prefix of a key that every component can use.

        Counts as a use of what was found, and may split a node so that the match ends
        with one. Nothing is protected yet: lock the result before anything can evict.
        """
        path, full_hit_len = self._walk(params.key)
        cached_len = full_hit_len
        if self._validating:
            cached_len -= self._drop_unusable(path)
        last_node = path[-1] if path else self.root_node
        kind = self._base_type
        values = [node.component_data[kind].value for node in path]
        branching_len = full_hit_len if full_hit_len > cached_len else None
        result = MatchResult(cached_len, last_node, full_hit_len, branching_len, values)
        for component in self._refreshing:
            component.refresh_lru(last_node)
        for component in self._finalizing:
            component.finalize_match_result(result, params)
        return result

    def insert(self, params: InsertParams) -> InsertResult:
        """Store the whole pages of a key, and free what the caller has in duplicate.

        The caller keeps the slots behind the last whole page; all others are the tree's
        now, or free. Raises InvalidKeyError, and changes nothing, if there are fewer
        slots than tokens.
        """
        result = self._insert_helper(params)
        self._free_duplicates(result)
        return result

    def evict(self, params: EvictParams) -> EvictResult:
        """Free what `params` asks for at least, or all that no lock protects.

        Whole nodes go, least recently used first, for one component after the other.
        """
        tracker = [0] * len(ComponentType)
        for component in self.components:
            component.drive_eviction(params, tracker)
        return EvictResult(*tracker)

    def inc_lock_ref(self, node: UnifiedTreeNode) -> IncLockRefResult:
        """Protect what a request that ends at `node` needs; returns the receipt.

        Raises StaleHandleError if the node was evicted.
        """
        if node.parent is None and node is not self.root_node:
            raise StaleHandleError(f"{node} was evicted; match again, then lock")
        receipt = IncLockRefResult(node, self.components)
        for component in self.components:
            component.acquire_component_lock(node, receipt)
        self.receipts.add(receipt)
        return receipt

    def dec_lock_ref(self, node: UnifiedTreeNode, params: DecLockRefParams) -> None:
        """Give a receipt back, or ahead of time the part of `params.component_type`.

        The parts of components that its eviction would take along go with that part.
        Raises LockError, and changes nothing, if this was released before or the
        receipt is for another node.
        """
        receipt, kind = params.receipt, params.component_type
        if receipt not in self.receipts:
            raise LockError(f"the lock on {receipt.node} was released already")
        if receipt.node is not node:
            raise LockError(f"a receipt for {receipt.node} cannot release {node}")
        released, held = receipt.held, ()
        if kind is not None:
            released, held = self._part(receipt, kind)
        for component in released:
            component.release_component_lock(receipt)
        receipt.held = held
        if not held:
            self.receipts.remove(receipt)
            self._update_evictable_leaf(node)

    def cache_finished_req(self, req: CachingReq, is_insert: bool = True) -> None:
        """Store what a finished request has computed, unless `is_insert` is False.

        Frees its other slots and releases its lock.
        """
        params, cache_len = self._prepare(req, is_finished=True)
        owned_len, result = req.cache_protected_len, None
        if is_insert:
            result = self.insert(params)
            owned_len = max(owned_len, cache_len)
        self._base.free(req.slots[owned_len:])
        self.dec_lock_ref(req.last_node, req.lock.to_dec_params())
        for component in self.components:
            component.cleanup_after_caching_req(req, params, result, is_finished=True)

    def cache_unfinished_req(self, req: CachingReq) -> None:
        """Store what a running request has computed, and lock it for the request.

        Where the tree had a token, the request's row is pointed at the tree's slot
        before its own is freed. The new lock is taken before the old one goes.
        """
        params, cache_len = self._prepare(req, is_finished=False)
        result = None
        if cache_len > req.cache_protected_len:
            result = self._insert_helper(params)
            for duplicate in result.duplicates:
                req.write_row(duplicate.start, duplicate.kept)
            lock = self.inc_lock_ref(result.last_node)
            self.dec_lock_ref(req.last_node, req.lock.to_dec_params())
            req.lock, req.last_node = lock, result.last_node
            req.cache_protected_len = cache_len
            self._free_duplicates(result)
        for component in self.components:
            component.cleanup_after_caching_req(req, params, result, is_finished=False)

    def evictable_size(self, kind: ComponentType = ComponentType.FULL) -> int:
        """Tokens (states, for MAMBA) that no lock covers."""
        return self._component(kind).evictable_size

    def protected_size(self, kind: ComponentType = ComponentType.FULL) -> int:
        """Tokens (states, for MAMBA) on locked nodes."""
        return self._component(kind).protected_size

    def nodes(self) -> Iterator[UnifiedTreeNode]:
        """Every node but the root, parents before their children."""
        stack = [*reversed(self.root_node.children.values())]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children.values()))

    def check_integrity(self) -> None:
        """Recount everything. Raises IntegrityError that names the offence."""
        integrity.check_integrity(self)

    def pretty_print(self) -> None:
        """Print the tree: slots, tombstones and locks of every component."""
        print(integrity.draw(self))

    # for the components

    def evict_node(
        self, node: UnifiedTreeNode, trigger: TreeComponent, tracker: list[int]
    ) -> None:
        """Evict `trigger`'s data on a node, and what is of no use without it.

        On an evictable leaf that is everything, and the leaf goes. Any other node stays
        and is a tombstone for the components that lost their data.
        """
        is_leaf = node.is_evictable_leaf()
        priority = trigger.eviction_priority(is_leaf)
        for component in self.components:
            if component.eviction_priority(
                is_leaf
            ) <= priority and component.node_has_component_data(node):
                tracker[component.component_type] += component.evict_component(node)
        self._delete_dead_branch(node)

    def split_node(self, node: UnifiedTreeNode, at: int) -> UnifiedTreeNode:
        """Cut a node before its token `at`. Returns the new upper half.

        The deeper half keeps the object, its children and its receipts, which are for
        the prefix that ends there. Splits happen on the way of a
        match or insert, so that the upper half is used now.
        """
        assert 0 < at < len(node) and at % self.page_size == 0, (at, len(node))
        cut = at * TOKEN_BYTES
        upper = self._make_node(node.key[:cut])
        upper.set_parent(node.parent, node.child_key)
        node.key = node.key[cut:]
        node.set_parent(upper, node.key[: self._page_bytes])
        for component in self.components:
            component.redistribute_on_node_split(upper, node)
        return upper

    # helpers

    def _walk(self, key: RadixKey) -> tuple[list[UnifiedTreeNode], int]:
        """The nodes that hold the key's longest prefix, and its length in tokens.

        All of them count as used now. If the prefix ends inside the last, it is split;
        the lower half, which was not reached, keeps its time of last use.
        """
        self._clock = now = self._clock + 1
        tokens, page_bytes = key.packed, self._page_bytes
        children, child_key = self.root_node.children, self._root_child_key(key)
        path, pos = [], 0
        while (node := children.get(child_key)) is not None:
            run = node.key
            if not tokens.startswith(run, pos):
                shared = common_prefix_bytes(tokens, pos, run, page_bytes)
                node = self.split_node(node, shared // TOKEN_BYTES)
                run = node.key
            node.last_access_time = now
            path.append(node)
            pos += len(run)
            children, child_key = node.children, tokens[pos : pos + page_bytes]
        if path:
            self.leaves.refresh(path[-1])
        return path, pos // TOKEN_BYTES

    def _drop_unusable(self, path: list[UnifiedTreeNode]) -> int:
        """Cut a path behind the last node that every component accepts as its end.

        Returns the number of tokens cut off.
        """
        validators = [c.create_match_validator() for c in self._validating]
        num_dropped = 0
        while path:
            is_usable = True
            for validator in validators:  # every one is asked about every node
                is_usable = validator(path[-1]) and is_usable
            if is_usable:
                break
            num_dropped += len(path.pop())
        return num_dropped

    def _insert_helper(self, params: InsertParams) -> InsertResult:
        key, num_slots = params.key, len(params.value)
        num_tokens = len(key)
        if num_slots < num_tokens:
            raise InvalidKeyError(f"{num_tokens} tokens came with {num_slots} slots")
        path, prefix_len = self._walk(key)
        insert_len = num_tokens - num_tokens % self.page_size
        node = path[-1] if path else self.root_node
        duplicates = self._overlap(path, prefix_len, params)
        is_new_leaf = prefix_len < insert_len
        if is_new_leaf:
            node = self._add_new_node(node, key, prefix_len, insert_len)
        result = InsertResult(prefix_len, is_new_leaf, node, duplicates)
        for component in self.components:
            component.commit_insert_component_data(node, params, result)
        for component in self._refreshing:
            component.refresh_lru(node)
        self._update_evictable_leaf(node)
        return result

    def _overlap(
        self, path: list[UnifiedTreeNode], end: int, params: InsertParams
    ) -> list[Duplicate]:
        """What the caller has too, on a path whose last node ends at token `end`."""
        duplicates, first = [], len(path)
        while end > params.prev_prefix_len:  # before that the slots are the tree's own
            first -= 1
            end -= len(path[first])
        for node in path[first:]:
            start, end = end, end + len(node)
            given, kept = params.value[start:end], node.value(self._base_type)
            if given != kept:
                duplicates.append(Duplicate(start, kept, given))
            for component in self._overlapping:
                component.update_component_on_insert_overlap(node, start, params)
        return duplicates

    def _free_duplicates(self, result: InsertResult) -> None:
        for duplicate in result.duplicates:
            self._base.free(duplicate.freed)

    def _add_new_node(
        self, parent: UnifiedTreeNode, key: RadixKey, start: int, end: int
    ) -> UnifiedTreeNode:
        """Hang the tokens of a key from `start` to `end` below `parent`."""
        node = self._make_node(key.packed[start * TOKEN_BYTES : end * TOKEN_BYTES])
        first_page = node.key[: self._page_bytes]
        node.set_parent(parent, first_page if start else self._root_child_key(key))
        self.leaves.discard(parent)
        return node

    def _root_child_key(self, key: RadixKey) -> Hashable:
        """Under what the root finds a key: its first page, tagged by namespace."""
        first_page = key.packed[: self._page_bytes]
        return first_page if key.namespace is None else (key.namespace, first_page)

    def _make_node(self, key: bytes) -> UnifiedTreeNode:
        node_id, self._next_node_id = self._next_node_id, self._next_node_id + 1
        return UnifiedTreeNode(node_id, key, self._clock, self._num_types)

    def _delete_dead_branch(self, node: UnifiedTreeNode) -> None:
        """Delete a node without children and base data, then its parents likewise."""
        kind, root = self._base_type, self.root_node
        while node is not root and not node.children and node.value(kind) is None:
            parent = node.parent
            del parent.children[node.child_key]
            node.parent = None
            self.leaves.remove(node)
            node = parent
        self._update_evictable_leaf(node)

    def _update_evictable_leaf(self, node: UnifiedTreeNode) -> None:
        if node.is_evictable_leaf():
            self.leaves.add(node)

    def _prepare(self, req: CachingReq, is_finished: bool) -> tuple[InsertParams, int]:
        """What to insert for a request, and how many tokens that is."""
        params = InsertParams(RadixKey(()), req.slots, req.cache_protected_len)
        limits = [len(req.token_ids)]
        for component in self.components:
            limit = component.prepare_for_caching_req(req, params, is_finished)
            if limit is not None:
                limits.append(limit)
        cache_len = min(limits) // self.page_size * self.page_size
        params.key = RadixKey(req.token_ids[:cache_len], req.extra_key)
        return params, cache_len

    def _part(
        self, receipt: IncLockRefResult, kind: ComponentType
    ) -> tuple[tuple[TreeComponent, ...], tuple[TreeComponent, ...]]:
        """The components of a receipt that go with `kind`, and those that stay."""
        trigger = self._component(kind)
        if trigger not in receipt.held:
            raise LockError(f"the {kind.name} part was released already")
        priority = trigger.eviction_priority(False)
        goes = [c for c in receipt.held if c.eviction_priority(False) <= priority]
        stays = [c for c in receipt.held if c not in goes]
        return tuple(goes), tuple(stays)

    def _component(self, kind: ComponentType) -> TreeComponent:
        for component in self.components:
            if component.component_type == kind:
                return component
        raise CacheConfigError(f"this tree has no component {kind.name}")

    def _overriding(self, hook: str) -> tuple[TreeComponent, ...]:
        """The components with a hook of their own; calls to the others cost a tenth."""
        default = getattr(TreeComponent, hook)
        return tuple(c for c in self.components if getattr(type(c), hook) != default)
