"""A live drawing of the unified tree, with the components of chapters 11, 12 and 13."""

from __future__ import annotations

from array import array
from typing import Any

from live.play import (
    BadInput,
    Node,
    Operation,
    Picture,
    Size,
    World,
    in_python,
    listed,
    play,
    space_of,
    title_of,
    typed,
)

from minisgl.errors import IntegrityError
from minisgl.kvcache import unified
from minisgl.kvcache.page_allocator import (
    PageAllocator,
    num_pages_for,
    pages_of_slots,
    slots_of_pages,
)
from minisgl.kvcache.radix_key import RadixKey, unpack
from minisgl.kvcache.unified import (
    ComponentType,
    DecLockRefParams,
    EvictParams,
    FullComponent,
    IncLockRefResult,
    InsertParams,
    MatchPrefixParams,
    UnifiedRadixCache,
)
from minisgl.kvcache.unified.node import UnifiedTreeNode

NUM_SLOTS = 64  # of each pool of tokens
NUM_STATES = 6
NEEDS = {
    "insert-late": "swa",
    "unlock-swa": "swa",
    "evict-swa": "swa",
    "evict-mamba": "mamba",
}
UNIT = {"full": "tokens", "swa": "window tokens", "mamba": "states"}


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Play operations on an empty tree; see `play`."""
    return play(UnifiedWorld, asked)


class UnifiedWorld(World):
    """A tree with its pools, and the receipts that its users would keep."""

    title = "the unified tree"
    options = {"components": "full", "page_size": "1", "window": "4"}

    def __init__(self, options: dict[str, str] | None = None) -> None:
        super().__init__(options or {})
        self.page_size = self.whole("page_size", 1, 16)
        self.kinds = self._kinds()
        self.pool = PageAllocator(NUM_SLOTS // self.page_size)
        components: list[Any] = [FullComponent(self._free)]
        self.swa = self.mamba = self.mapping = self.states = None
        if "swa" in self.kinds:
            self._add_window(components)
        if "mamba" in self.kinds:
            self._add_states(components)
        self.cache = UnifiedRadixCache(self.page_size, components)
        self.receipts: list[IncLockRefResult] = []
        self.operations = tuple(
            operation
            for operation in self.operations
            if NEEDS.get(operation.name, "full") in self.kinds
        )

    def insert(self, tokens: list[int], space: str | None = None) -> str:
        self._note("insert", tokens, space)
        return self._insert(tokens, space, is_late=False)

    def insert_late(self, tokens: list[int], space: str | None = None) -> str:
        self._note("insert_late", tokens, space)
        return self._insert(tokens, space, is_late=True)

    def match(self, tokens: list[int], space: str | None = None) -> str:
        self._note("match", tokens, space)
        result = self.cache.match_prefix(MatchPrefixParams(RadixKey(tokens, space)))
        says = f"{result.cached_len} of {len(tokens)} tokens can be used"
        if result.full_hit_len > result.cached_len:
            says += f"; Full data is there for {result.full_hit_len}"
        if self.mamba and result.mamba_branching_seqlen:
            says += f", and a state after {result.mamba_branching_seqlen} would help"
        return f"{says}."

    def lock(self, tokens: list[int], space: str | None = None) -> str:
        self._note("lock", tokens, space)
        result = self.cache.match_prefix(MatchPrefixParams(RadixKey(tokens, space)))
        self.receipts.append(self.cache.inc_lock_ref(result.last_device_node))
        number, length = len(self.receipts), result.cached_len
        return f"Receipt {number} is for a prefix of {length} tokens."

    def unlock(self, receipt: int) -> str:
        found = self._receipt(receipt)
        self._note("unlock", receipt)
        self.cache.dec_lock_ref(found.node, found.to_dec_params())
        return f"Receipt {receipt} is given back."

    def unlock_swa(self, receipt: int) -> str:
        found = self._receipt(receipt)
        self._note("unlock_swa", receipt)
        params = DecLockRefParams(found, ComponentType.SWA)
        self.cache.dec_lock_ref(found.node, params)
        return f"Receipt {receipt} protects its window no longer."

    def evict(self, size: int) -> str:
        self._note("evict", size)
        return self._evict(EvictParams(num_tokens=size))

    def evict_swa(self, size: int) -> str:
        self._note("evict_swa", size)
        return self._evict(EvictParams(swa_num_tokens=size))

    def evict_mamba(self, count: int) -> str:
        self._note("evict_mamba", count)
        return self._evict(EvictParams(mamba_num=count))

    operations = (
        Operation(
            "insert TOKENS [@SPACE]", "store a prefix, with all its data", insert
        ),
        Operation(
            "insert-late TOKENS [@SPACE]",
            "store what a long request has: its window data of early tokens is gone",
            insert_late,
        ),
        Operation("match TOKENS [@SPACE]", "find the longest usable prefix", match),
        Operation("lock TOKENS [@SPACE]", "match, and protect what it needs", lock),
        Operation("unlock RECEIPT", "give a receipt back", unlock),
        Operation(
            "unlock-swa RECEIPT", "give its window back ahead of time", unlock_swa
        ),
        Operation("evict COUNT", "free so many tokens, leaf by leaf", evict),
        Operation(
            "evict-swa COUNT", "free the window data of so many tokens", evict_swa
        ),
        Operation("evict-mamba COUNT", "free so many states", evict_mamba),
    )

    def setup(self) -> list[str]:
        options = {k: v for k, v in self.given.items() if v != self.options[k]}
        return [
            "from live.unified import UnifiedWorld  # in practice/web/python",
            "",
            f"world = UnifiedWorld({in_python(options or None)})",
        ]

    def sizes(self) -> list[Size]:
        sizes = []
        for kind in self.kinds:
            for what in ("evictable", "protected"):
                value = getattr(self, what)(kind)
                code = f"world.{what}({kind!r})"
                sizes.append(Size(f"{UNIT[kind]} {what}", code, value))
        return sizes

    def evictable(self, kind: str) -> int:
        return self.cache.evictable_size(ComponentType[kind.upper()])

    def protected(self, kind: str) -> int:
        return self.cache.protected_size(ComponentType[kind.upper()])

    def check(self) -> None:
        """The tree is in order, and what it does not hold is free in every pool."""
        self.cache.check_integrity()
        held = self.evictable("full") + self.protected("full")
        free = self.pool.num_free * self.page_size
        if held + free != self.pool.num_pages * self.page_size:
            raise IntegrityError(f"{held} slots are held and {free} are free")
        if self.mapping:
            self.mapping.check_integrity()
            held = self.evictable("swa") + self.protected("swa")
            paired = self.pool.num_pages - self.mapping.num_free
            if held != paired * self.page_size:
                raise IntegrityError(f"{paired} window pages for {held} tokens")
        if self.states:
            held = self.evictable("mamba") + self.protected("mamba")
            if held + self.states.num_free != NUM_STATES:
                raise IntegrityError(f"{held} states held, {self.states.num_free} free")

    def picture(self) -> Picture:
        root = Node(self.cache.root_node.id, "root")
        drawn = {self.cache.root_node: root}
        paths: dict[UnifiedTreeNode, tuple[list[int], str | None]] = {
            self.cache.root_node: ([], None)
        }
        for node in self.cache.nodes():
            above, space = paths[node.parent]
            if isinstance(node.child_key, tuple):
                space = space_of(node.child_key)
            tokens = unpack(node.key).tolist()
            paths[node] = above + tokens, space
            drawn[node] = Node(
                node.id,
                title_of(tokens, space if not above else None),
                [self._fact(node, kind) for kind in self.kinds],
                stamp=node.last_access_time,
                is_locked=any(data.lock_ref for data in node.component_data),
                typed=typed(*paths[node]),
            )
            drawn[node.parent].children.append(drawn[node])
        for node in drawn.values():
            node.children.sort(key=lambda child: child.typed)
        return Picture(root)

    def _fact(self, node: UnifiedTreeNode, kind: str) -> str:
        data = node.component_data[ComponentType[kind.upper()]]
        if data.value is not None:
            here = listed(data.value) if kind != "swa" else "live"
        else:
            here = "none" if kind == "mamba" else "tombstone"
        name = "state" if kind == "mamba" else "window" if kind == "swa" else kind
        lock = f", lock {data.lock_ref}" if data.lock_ref else ""
        mark = f", mark {data.metadata}" if data.metadata is not None else ""
        return f"{name}: {here}{lock}{mark}"

    def _insert(self, tokens: list[int], space: str | None, *, is_late: bool) -> str:
        """As a request would that computed all of its tokens and then ended."""
        key = RadixKey(tokens, space)
        pages = self.pool.allocate(num_pages_for(len(tokens), self.page_size))
        slots = slots_of_pages(pages, self.page_size)
        params = InsertParams(key, slots[: len(tokens)])
        if self.mapping:
            self.mapping.allocate(slots)
            if is_late:
                params.swa_evicted_seqlen = self.swa.max_evicted_seqlen(len(tokens))
                self.mapping.free(slots[: params.swa_evicted_seqlen])
        state = self.mamba.allocate_state() if self.mamba else None
        if state is not None:
            params.mamba_value = array("i", [state])
        result = self.cache.insert(params)
        stored_len = len(tokens) - len(tokens) % self.page_size
        if stored_len < len(tokens):
            self._free(slots[stored_len:])
        if result.mamba_exist:
            self.states.free(state)
        says = f"{result.prefix_len} of {len(tokens)} tokens were there already."
        if result.prefix_len:
            says += " What came twice is free again."
        if self.mamba and (state is None or result.mamba_exist):
            says += " No new state was stored."
        return says

    def _evict(self, params: EvictParams) -> str:
        result = self.cache.evict(params)
        counts = {
            "full": result.num_tokens_evicted,
            "swa": result.swa_num_tokens_evicted,
            "mamba": result.mamba_num_evicted,
        }
        said = (f"{counts[kind]} {UNIT[kind]}" for kind in self.kinds)
        return f"Evicted: {', '.join(said)}."

    def _free(self, slots: array[int]) -> None:
        """Give Full slots back, and the window slots paired with them."""
        if self.mapping:
            self.mapping.free(slots)
        self.pool.free(pages_of_slots(slots, self.page_size))

    def _add_window(self, components: list[Any]) -> None:
        from minisgl.kvcache.swa_mapping import SWAMapping
        from minisgl.kvcache.unified import SWAComponent

        num_pages = self.pool.num_pages
        self.mapping = SWAMapping(num_pages, num_pages, self.page_size)
        self.swa = SWAComponent(self.mapping, self.whole("window", 1, 64))
        components.append(self.swa)

    def _add_states(self, components: list[Any]) -> None:
        from minisgl.kvcache.unified import MambaComponent

        self.states = _States()
        self.mamba = MambaComponent(self.states)
        components.append(self.mamba)

    def _kinds(self) -> list[str]:
        """The components that are asked for, if the stage has them."""
        known = ["full", *(kind for kind in ("swa", "mamba") if _has(kind))]
        forms = ["full", *(f"full+{kind}" for kind in known[1:])]
        if len(known) > 2:
            forms.append("+".join(known))
        asked = self.given["components"]
        if asked not in [*forms, "all"]:
            raise BadInput(
                f"components={asked} is not of this chapter: give all, or one of "
                f"{', '.join(forms)}"
            )
        return known if asked == "all" else asked.split("+")

    def _receipt(self, number: int) -> IncLockRefResult:
        if not 1 <= number <= len(self.receipts):
            raise BadInput(
                f"there is no receipt {number}: {len(self.receipts)} are out"
            )
        return self.receipts[number - 1]

    def _note(self, verb: str, *arguments: object) -> None:
        self.code.append(f"world.{verb}({in_python(*arguments)})")


class _States:
    """A pool of states, in which nothing but the slots matters."""

    def __init__(self) -> None:
        self._pool = PageAllocator(NUM_STATES)

    @property
    def num_free(self) -> int:
        return self._pool.num_free

    def allocate(self) -> int | None:
        return self._pool.allocate(1)[0] if self.num_free else None

    def free(self, slot: int) -> None:
        self._pool.free([slot])

    def copy(self, source: int, target: int) -> None:
        """There is nothing in a state that could be copied."""


def _has(kind: str) -> bool:
    """Whether this chapter's stage has the component already."""
    return hasattr(unified, {"swa": "SWAComponent", "mamba": "MambaComponent"}[kind])
