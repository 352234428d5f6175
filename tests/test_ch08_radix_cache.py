"""Chapter 08: the radix cache as the scheduler sees it, with tensors outside."""

from __future__ import annotations

import random
from array import array

import pytest
import torch

from minisgl.core import Context, set_global_ctx
from minisgl.errors import ContextError
from minisgl.kernel.torch_ops import fast_compare_key
from minisgl.kvcache import create_prefix_cache
from minisgl.kvcache.base import LockError
from minisgl.kvcache.radix_cache import RadixPrefixCache
from minisgl.kvcache.radix_key import InvalidKeyError, RadixKey, common_prefix_bytes


def t(*values: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def make_cache(page_size: int = 1):
    return RadixPrefixCache(torch.device("cpu"), page_size)


def test_a_drawing_of_insert_match_lock_and_evict_is_as_in_the_textbook(capsys):
    def show(node, depth=0):
        for n in sorted(node.children.values(), key=lambda n: n._key.tolist()):
            key, value = n._key.tolist(), n.value.tolist()
            print(f"{'    ' * depth}└─ key={key} value={value} ref={n.ref_count}")
            show(n, depth + 1)

    set_global_ctx(Context(page_size=1))
    cache = RadixPrefixCache(torch.device("cpu"))
    cache.insert_prefix(t(1, 2, 3, 4), t(10, 11, 12, 13))
    cache.insert_prefix(t(1, 2, 5, 6), t(10, 11, 20, 21))
    cache.insert_prefix(t(7, 8), t(30, 31))
    handle = cache.match_prefix(t(1, 2, 3, 9)).cuda_handle
    cache.lock_handle(handle)
    assert handle.cached_len == 3
    assert handle.get_matched_indices().tolist() == [10, 11, 12]
    show(cache.root_node)
    assert capsys.readouterr().out.splitlines() == [
        "└─ key=[1, 2] value=[10, 11] ref=1",
        "    └─ key=[3] value=[12] ref=1",
        "        └─ key=[4] value=[13] ref=0",
        "    └─ key=[5, 6] value=[20, 21] ref=0",
        "└─ key=[7, 8] value=[30, 31] ref=0",
    ]
    assert tuple(cache.size_info) == (5, 3)
    assert cache.evict(2).tolist() == [13, 20, 21]
    assert cache.evict(1).tolist() == [30, 31]
    show(cache.root_node)
    assert capsys.readouterr().out.splitlines() == [
        "└─ key=[1, 2] value=[10, 11] ref=1",
        "    └─ key=[3] value=[12] ref=1",
    ]
    cache.check_integrity()
    assert sorted(cache.held_slots()) == [10, 11, 12]


def test_locks_and_last_use_decide_what_the_cache_evicts():
    cache = make_cache()
    cache.insert_prefix(t(1, 2, 3), t(10, 11, 12))
    cache.insert_prefix(t(7, 8), t(20, 21))
    cache.insert_prefix(t(4, 5), t(30, 31))
    handle = cache.match_prefix(t(7, 8)).cuda_handle
    cache.lock_handle(handle)
    assert cache.size_info == (5, 2)
    assert cache.evict(3).tolist() == [10, 11, 12]
    cache.lock_handle(handle, unlock=True)
    assert cache.evict(2).tolist() == [30, 31]
    cache.check_integrity()
    cache.reset()
    assert cache.size_info == (0, 0)


@pytest.mark.parametrize(
    "form",
    [
        t,
        lambda *values: t(*values, dtype=torch.int64),
        lambda *values: torch.stack([t(*values), t(*values)], dim=1)[:, 0],
        lambda *values: array("i", values),
        lambda *values: list(values),
    ],
    ids=["int32", "int64", "strided", "array", "list"],
)
def test_tokens_and_slots_come_in_several_forms(form):
    cache = make_cache(page_size=2)
    assert cache.match_prefix(form()).cuda_handle.cached_len == 0
    result = cache.insert_prefix(form(1, 2, 3, 4, 5), form(0, 1, 2, 3, 4))
    assert (result.cached_len, result.handle.cached_len) == (0, 4)
    handle = cache.match_prefix(form(1, 2, 3, 4)).cuda_handle
    assert handle.matched_slots() == array("i", [0, 1, 2, 3])
    assert cache.match_prefix(t(1, 2, 3, 4)).cuda_handle.cached_len == 4
    for indices in (handle.get_matched_indices(), cache.evict(1)):
        assert indices.dtype == torch.int32 and indices.tolist() == [0, 1, 2, 3]
    empty = cache.match_prefix(form(1, 2)).cuda_handle.get_matched_indices()
    assert empty.dtype == torch.int32 and empty.shape == (0,)


def test_the_cache_keeps_copies_of_the_tensors_it_is_given():
    cache = make_cache()
    tokens, indices = t(1, 2), t(0, 1)
    cache.insert_prefix(tokens, indices)
    tokens.fill_(9)
    indices.fill_(9)
    handle = cache.match_prefix(t(1, 2)).cuda_handle
    handle.get_matched_indices().fill_(9)
    assert handle.get_matched_indices().tolist() == [0, 1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.tensor([1.0]), "torch.float32 tensor of shape"),
        (torch.tensor([True]), "torch.bool tensor"),
        (torch.tensor([[1]], dtype=torch.int32), r"shape \[1, 1\]"),
        (torch.tensor(1, dtype=torch.int32), r"shape \[\]"),
        (t(-1), "-1"),
        (torch.tensor([-1]), "goes from -1 to -1"),
        (torch.tensor([1, 2**31]), "to 2147483648"),
        (torch.empty(1, dtype=torch.int32, device="meta"), "is on meta"),
        ([1.5], "integers"),
        (array("i", [-2]), "-2"),
        (None, "integers"),
    ],
)
def test_bad_tokens_and_slots_are_refused_before_anything_changes(values, message):
    cache = make_cache()
    cache.insert_prefix(t(1, 2, 3), t(0, 1, 2))
    with pytest.raises(InvalidKeyError, match=f"(input|token)_ids.*{message}"):
        cache.match_prefix(values)
    with pytest.raises(InvalidKeyError, match=f"(input|token)_ids.*{message}"):
        cache.insert_prefix(values, t(5))
    with pytest.raises(InvalidKeyError, match=f"indices.*{message}"):
        cache.insert_prefix(t(1), values)
    with pytest.raises(InvalidKeyError, match="2 tokens came with 1 slots"):
        cache.insert_prefix(t(1, 9), t(5))
    (node,) = cache.root_node.children.values()
    assert (node.key.tolist(), node.value.tolist()) == ([1, 2, 3], [0, 1, 2])
    assert cache.size_info == (3, 0)


def test_the_cache_separates_namespaces():
    cache = make_cache()
    cache.insert_prefix(t(1, 2), t(0, 1), extra_key="tenant")
    assert cache.match_prefix(t(1, 2)).cuda_handle.cached_len == 0
    assert cache.match_prefix(t(1, 2), "other").cuda_handle.cached_len == 0
    assert cache.match_prefix(t(1, 2), "tenant").cuda_handle.cached_len == 2


def test_the_page_size_is_that_of_the_context_unless_given():
    assert RadixPrefixCache(torch.device("cpu"), page_size=2).page_size == 2
    with pytest.raises(ContextError):
        RadixPrefixCache(torch.device("cpu"))
    set_global_ctx(Context(page_size=4))
    assert RadixPrefixCache(torch.device("cpu")).page_size == 4
    with pytest.raises(InvalidKeyError, match="page_size is 0"):
        RadixPrefixCache(torch.device("cpu"), page_size=0)


def test_the_cache_is_registered_by_name():
    cache = create_prefix_cache("radix", torch.device("cpu"), 4)
    assert isinstance(cache, RadixPrefixCache) and cache.page_size == 4


def test_a_foreign_handle_is_refused():
    cache = make_cache()
    with pytest.raises(LockError, match="not a handle of a radix cache"):
        cache.lock_handle(object())


def test_matched_indices_are_on_the_device_and_evicted_ones_on_the_host(device: str):
    cache = RadixPrefixCache(torch.device(device), 1)
    handle = cache.insert_prefix(t(1, 2), t(3, 4)).handle
    assert handle.get_matched_indices().device.type == device
    assert handle.get_matched_indices().tolist() == [3, 4]
    assert cache.evict(2).device.type == "cpu"


def test_the_packed_comparison_equals_the_textbook_one():
    rng = random.Random(0)
    for _ in range(400):
        x = rng.choices(range(3), k=rng.randrange(40))
        y = x[: rng.randrange(40)] + rng.choices(range(3), k=rng.randrange(20))
        before = rng.choices(range(3), k=rng.randrange(5))
        expected = fast_compare_key(torch.tensor(x), torch.tensor(y))
        for page_size in (1, 2, 3):
            shared = common_prefix_bytes(
                RadixKey(before + x).packed,
                4 * len(before),
                RadixKey(y).packed,
                4 * page_size,
            )
            assert shared == expected // page_size * page_size * 4
