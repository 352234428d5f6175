"""What goes into the unified tree's operations, and what comes out."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import compress
from operator import eq, ne
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minisgl.kvcache.radix_key import RadixKey
    from minisgl.kvcache.unified.node import ComponentType, UnifiedTreeNode
    from minisgl.kvcache.unified.tree_component import TreeComponent


@dataclass(slots=True)
class MatchPrefixParams:
    key: RadixKey
    req: Any = None  # whom to match for, where a component has to prepare something


@dataclass(slots=True)
class MatchResult:
    """The longest usable prefix has `cached_len` tokens and ends at `last_device_node`.

    Full data was found for `full_hit_len` tokens. If that is more, another component
    lacks data there, and with new data at `mamba_branching_seqlen` tokens (if any) the
    next request could share more.
    """

    cached_len: int
    last_device_node: UnifiedTreeNode
    full_hit_len: int
    mamba_branching_seqlen: int | None
    values: list[array[int]]  # Full slots, node by node; these arrays never change

    @property
    def device_indices(self) -> array[int]:
        """The Full slots of the cached tokens, as an array of their own."""
        return array("i", b"".join(self.values))


@dataclass(slots=True)
class InsertParams:
    """Token i of `key` has its KV in the Full slot `value[i]`.

    The first `prev_prefix_len` slots are the tree's own already, the others the
    caller's; of these, the ones below `swa_evicted_seqlen` have no window KV any more.
    `mamba_value` holds the slot of the state after the whole key.
    """

    key: RadixKey
    value: array[int]
    prev_prefix_len: int = 0
    swa_evicted_seqlen: int = 0
    mamba_value: array[int] | None = None


@dataclass(slots=True)
class Duplicate:
    """From token `start` on the tree keeps its slots, `kept`, and not those `given`."""

    start: int
    kept: array[int]
    given: array[int]

    @property
    def end(self) -> int:
        return self.start + len(self.kept)

    @property
    def freed(self) -> array[int]:
        """What was given and is not the tree's own."""
        if not any(map(eq, self.given, self.kept)):
            return self.given  # as it nearly always is
        return array("i", compress(self.given, map(ne, self.given, self.kept)))


@dataclass(slots=True)
class InsertResult:
    """`prefix_len` tokens were in the tree before; the key now ends at `last_node`.

    With `mamba_exist` the state that was offered still belongs to the caller.
    """

    prefix_len: int
    is_new_leaf: bool
    last_node: UnifiedTreeNode
    duplicates: list[Duplicate]
    mamba_exist: bool = False


@dataclass(slots=True)
class EvictParams:
    num_tokens: int = 0
    swa_num_tokens: int = 0
    mamba_num: int = 0


@dataclass(slots=True)
class EvictResult:
    num_tokens_evicted: int
    swa_num_tokens_evicted: int
    mamba_num_evicted: int


@dataclass(slots=True, eq=False)
class IncLockRefResult:
    """The receipt of a lock on `node`, good for one release."""

    node: UnifiedTreeNode
    held: tuple[TreeComponent, ...]  # whose parts are not released yet
    swa_uuid_for_lock: int | None = None  # None: the window lock reaches the root

    def to_dec_params(self) -> DecLockRefParams:
        return DecLockRefParams(self)


@dataclass(slots=True)
class DecLockRefParams:
    receipt: IncLockRefResult
    component_type: ComponentType | None = None  # release this part only, ahead of time
