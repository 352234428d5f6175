"""Chapter 1: the lengths of a request, batches, the context, sampling parameters."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest

import minisgl
from minisgl.core import (
    Batch,
    Context,
    Req,
    SamplingParams,
    get_global_ctx,
    reset_global_ctx,
    set_global_ctx,
)
from minisgl.errors import ContextError, MiniSGLError, SamplingParamsError
from minisgl.torch_free import MODULES

STAGE = Path(minisgl.__file__).resolve().parent.parent


def new_req(prompt_len: int = 5, output_len: int = 3, cached_len: int = 0) -> Req:
    return Req(
        input_ids=array("i", range(100, 100 + prompt_len)),
        table_idx=0,
        cached_len=cached_len,
        output_len=output_len,
        uid=7,
        sampling_params=SamplingParams(),
    )


def lens(req: Req) -> tuple[int, int, int]:
    return req.cached_len, req.device_len, req.max_device_len


# --- the lengths of a request ---------------------------------------------------------


def test_a_new_request_has_its_whole_prompt_to_compute():
    req = new_req(prompt_len=5, output_len=3)
    assert lens(req) == (0, 5, 8)
    assert (req.prompt_len, req.extend_len, req.remain_len) == (5, 5, 3)
    assert req.can_decode and not req.is_chunk


def test_a_cached_prefix_leaves_only_the_rest_to_compute():
    req = new_req(prompt_len=5, output_len=3, cached_len=3)
    assert lens(req) == (3, 5, 8)
    assert (req.extend_len, req.remain_len) == (2, 3)


def test_prefill_makes_the_prompt_cached_and_the_first_token_next():
    req = new_req(prompt_len=5, output_len=3, cached_len=3)
    req.complete_one()
    assert lens(req) == (5, 6, 8)
    assert (req.extend_len, req.remain_len) == (1, 2)


def test_each_decode_step_moves_both_lengths_by_one_until_nothing_remains():
    req = new_req(prompt_len=2, output_len=3)
    seen = []
    while req.can_decode:
        req.complete_one()
        seen.append((*lens(req), req.remain_len))
    assert seen == [(2, 3, 5, 2), (3, 4, 5, 1), (4, 5, 5, 0)]
    # the last sampled token was never fed, so its KV is not there
    assert req.cached_len == req.device_len - 1


def test_a_long_prompt_is_computed_in_slices():
    req = new_req(prompt_len=5, output_len=3)
    req.limit_chunk(2)
    assert (lens(req), req.extend_len, req.is_chunk) == ((0, 2, 8), 2, True)
    req.complete_chunk()
    assert (lens(req), req.extend_len) == ((2, 5, 8), 3)
    req.limit_chunk(2)
    assert (lens(req), req.is_chunk) == ((2, 4, 8), True)
    req.complete_chunk()
    req.limit_chunk(2)
    assert (lens(req), req.is_chunk) == ((4, 5, 8), False)
    req.complete_one()
    assert (lens(req), req.is_chunk) == ((5, 6, 8), False)


def test_a_slice_starts_after_the_cached_prefix():
    req = new_req(prompt_len=5, cached_len=1)
    req.limit_chunk(3)
    assert lens(req) == (1, 4, 8)


@pytest.mark.parametrize("max_tokens", [5, 6, 1000])
def test_a_limit_that_the_prompt_fits_in_changes_nothing(max_tokens: int):
    req = new_req(prompt_len=5)
    req.limit_chunk(max_tokens)
    assert lens(req) == (0, 5, 8) and not req.is_chunk


def test_a_slice_of_one_token_is_still_a_slice():
    req = new_req(prompt_len=2)
    req.limit_chunk(1)
    assert (lens(req), req.is_chunk) == ((0, 1, 5), True)


def test_a_sampled_token_is_noted_without_moving_the_lengths():
    req = new_req(prompt_len=2, output_len=2)
    req.complete_one()
    req.append_host(42)
    assert list(req.input_ids) == [100, 101, 42]
    assert (lens(req), req.prompt_len) == ((2, 3, 4), 2)


def test_a_request_may_ask_for_no_output_at_all():
    req = new_req(prompt_len=2, output_len=0)
    assert req.remain_len == 0 and not req.can_decode


@pytest.mark.parametrize("cached_len", [-1, 5, 6])
def test_a_cached_length_that_leaves_nothing_to_compute_is_our_own_bug(cached_len: int):
    with pytest.raises(AssertionError, match=f"{cached_len}/5/8"):
        new_req(prompt_len=5, cached_len=cached_len)


def test_an_empty_prompt_is_our_own_bug():
    with pytest.raises(AssertionError):
        new_req(prompt_len=0)


def test_tokens_are_32_bit_integers():
    with pytest.raises(AssertionError, match="q"):
        Req(array("q", [1]), 0, 0, 1, uid=0, sampling_params=SamplingParams())


def test_a_slice_samples_nothing_and_a_whole_prompt_is_no_slice():
    req = new_req(prompt_len=5)
    with pytest.raises(AssertionError):
        req.complete_chunk()
    req.limit_chunk(2)
    with pytest.raises(AssertionError):
        req.complete_one()
    assert lens(req) == (0, 2, 8)


def test_a_decoding_request_cannot_be_sliced():
    req = new_req(prompt_len=5)
    req.complete_one()
    with pytest.raises(AssertionError):
        req.limit_chunk(1)


def test_requests_with_equal_fields_are_still_different_requests():
    a, b = new_req(), new_req()
    assert a != b and len({a, b}) == 2


def test_a_request_prints_its_lengths():
    assert repr(new_req()) == "Req(uid=7, row=0, cached/device/max=0/5/8)"


# --- batches --------------------------------------------------------------------------


def test_a_prefill_batch_counts_the_tokens_of_all_its_requests():
    whole = new_req(prompt_len=5)
    hit = new_req(prompt_len=6, cached_len=4)
    chunk = new_req(prompt_len=9)
    chunk.limit_chunk(3)
    batch = Batch([whole, hit, chunk], "prefill")
    assert (batch.size, batch.num_tokens) == (3, 5 + 2 + 3)
    assert batch.is_prefill and not batch.is_decode
    assert batch.sampled_reqs == [whole, hit]


def test_a_decode_batch_computes_one_token_per_request():
    reqs = [new_req(prompt_len=2), new_req(prompt_len=9)]
    for req in reqs:
        req.complete_one()
    batch = Batch(reqs, "decode")
    assert (batch.size, batch.num_tokens) == (2, 2)
    assert batch.is_decode and not batch.is_prefill
    assert batch.sampled_reqs == reqs


def test_a_prompt_and_a_decoding_request_may_share_a_prefill_batch():
    decoding = new_req(prompt_len=2)
    decoding.complete_one()
    assert Batch([new_req(prompt_len=5), decoding], "prefill").num_tokens == 6


def test_a_batch_of_slices_samples_no_request():
    req = new_req(prompt_len=5)
    req.limit_chunk(4)
    batch = Batch([req], "prefill")
    assert batch.sampled_reqs == [] and batch.num_tokens == 4


def test_a_decode_batch_refuses_a_request_with_two_tokens_to_compute():
    with pytest.raises(AssertionError, match="0/2/5"):
        Batch([new_req(prompt_len=2)], "decode")


def test_an_empty_batch_is_refused():
    with pytest.raises(AssertionError):
        Batch([], "prefill")


# --- the context ----------------------------------------------------------------------


def one_batch() -> Batch:
    return Batch([new_req()], "prefill")


def test_there_is_no_context_until_one_is_set():
    with pytest.raises(ContextError, match="set_global_ctx"):
        get_global_ctx()


def test_a_context_that_was_set_is_found_and_can_be_forgotten():
    ctx = Context(page_size=4)
    set_global_ctx(ctx)
    assert get_global_ctx() is ctx
    reset_global_ctx()
    with pytest.raises(ContextError):
        get_global_ctx()


def test_a_second_context_does_not_replace_the_first():
    first = Context()
    set_global_ctx(first)
    with pytest.raises(ContextError, match="reset_global_ctx"):
        set_global_ctx(Context())
    assert get_global_ctx() is first


@pytest.mark.parametrize("page_size", [0, -1, 1.0, True, "4", None])
def test_a_page_holds_a_whole_number_of_tokens(page_size: Any):
    with pytest.raises(ContextError, match=repr(page_size)):
        Context(page_size=page_size)


def test_a_forward_has_its_context_and_batch_only_inside_the_with():
    ctx, batch = Context(), one_batch()
    with ctx.forward_batch(batch):
        assert get_global_ctx() is ctx
        assert ctx.batch is batch
    with pytest.raises(ContextError, match="no forward is running"):
        _ = ctx.batch
    with pytest.raises(ContextError):
        get_global_ctx()


def test_a_context_set_by_hand_has_no_batch():
    set_global_ctx(Context())
    with pytest.raises(ContextError, match="forward_batch"):
        _ = get_global_ctx().batch


def test_a_forward_inside_the_forward_of_another_engine_gives_it_back():
    by_hand, outer, inner = Context(), Context(), Context()
    outer_batch, inner_batch = one_batch(), one_batch()
    set_global_ctx(by_hand)
    with outer.forward_batch(outer_batch):
        with inner.forward_batch(inner_batch):
            assert get_global_ctx() is inner and inner.batch is inner_batch
        assert get_global_ctx() is outer and outer.batch is outer_batch
    assert get_global_ctx() is by_hand


def test_an_exception_in_a_forward_leaves_nothing_behind():
    by_hand, ctx = Context(), Context()
    set_global_ctx(by_hand)
    with pytest.raises(ZeroDivisionError), ctx.forward_batch(one_batch()):
        raise ZeroDivisionError
    assert get_global_ctx() is by_hand
    with pytest.raises(ContextError):
        _ = ctx.batch
    again = one_batch()
    with ctx.forward_batch(again):
        assert ctx.batch is again


def test_an_exception_in_an_inner_forward_keeps_the_outer_one():
    outer, inner, batch = Context(), Context(), one_batch()
    with outer.forward_batch(batch):
        with pytest.raises(ZeroDivisionError), inner.forward_batch(one_batch()):
            raise ZeroDivisionError
        assert get_global_ctx() is outer and outer.batch is batch


def test_one_context_runs_one_forward_at_a_time():
    ctx, batch = Context(), one_batch()
    with ctx.forward_batch(batch):
        second = ctx.forward_batch(one_batch())
        with pytest.raises(ContextError, match="already"), second:
            pytest.fail("a second forward was let in")
        assert get_global_ctx() is ctx and ctx.batch is batch


# --- sampling parameters --------------------------------------------------------------

NAN, INF = float("nan"), float("inf")
BAD_PARAMS = {
    "temperature": [-0.1, -1, NAN, INF, -INF, True, "0.5", None, 10**400],
    "top_k": [0, -2, 1.0, 2.5, NAN, True, "5", None],
    "top_p": [0, 0.0, -0.5, 1.0001, 2, NAN, INF, True, "0.9", None],
    "ignore_eos": [0, 1, "no", None],
    "max_tokens": [0, -1, 1.0, NAN, True, "16", None],
    "seed": [-1, 0.5, NAN, False, "7"],
}
ALLOWED = {
    "temperature": "a finite number, 0 or more",
    "top_k": "-1 (keep all) or an integer from 1 up",
    "top_p": "a number above 0 and at most 1",
    "ignore_eos": "True or False",
    "max_tokens": "an integer from 1 up",
    "seed": "None or an integer from 0 up",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in BAD_PARAMS.items() for value in values],
    ids=lambda value: str(value)[:12],
)
def test_a_bad_sampling_parameter_is_named_with_what_is_allowed(name: str, value: Any):
    with pytest.raises(SamplingParamsError) as caught:
        SamplingParams(**{name: value})
    assert str(caught.value) == f"{name} is {value!r}; it must be {ALLOWED[name]}"
    assert isinstance(caught.value, MiniSGLError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "good",
    [
        dict(temperature=0),
        dict(temperature=1e300),
        dict(temperature=5e-324),
        dict(top_k=-1),
        dict(top_k=1),
        dict(top_k=10**9),
        dict(top_p=1),
        dict(top_p=1e-9),
        dict(max_tokens=1),
        dict(seed=0),
        dict(seed=2**64),
        dict(ignore_eos=True),
    ],
    ids=str,
)
def test_the_edges_of_what_is_allowed_are_allowed(good: dict[str, Any]):
    params = SamplingParams(**good)
    assert {name: getattr(params, name) for name in good} == good


def test_without_parameters_the_most_likely_token_is_taken():
    assert SamplingParams() == SamplingParams(
        temperature=0.0,
        top_k=-1,
        top_p=1.0,
        ignore_eos=False,
        max_tokens=1024,
        seed=None,
    )
    assert SamplingParams().is_greedy


def test_only_a_temperature_and_a_choice_make_sampling_random():
    assert SamplingParams(temperature=1.0, top_k=1).is_greedy
    assert not SamplingParams(temperature=1.0, top_k=2).is_greedy
    assert not SamplingParams(temperature=0.01).is_greedy


def test_parameters_cannot_change_once_they_were_checked():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().temperature = -1.0


# --- no torch -------------------------------------------------------------------------


@pytest.mark.parametrize("module", MODULES)
def test_a_torch_free_module_imports_with_torch_and_numpy_blocked(module: str):
    """The interpreter has no site-packages, and the two are blocked by name besides."""
    script = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['numpy'] = None\n"
        f"sys.path.insert(0, {str(STAGE)!r})\n"
        f"import {module} as module\n"
        "tops = {name.partition('.')[0] for name in sys.modules}\n"
        "tops -= {'torch', 'numpy', 'minisgl', '__main__'}\n"
        "print(module.__file__, *(tops - sys.stdlib_module_names))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    file, *foreign = done.stdout.split("\n")[0].rsplit(".py", 1)
    assert file.startswith(str(STAGE)), file
    assert foreign == [""], f"not in the standard library: {foreign}"


def test_the_list_of_torch_free_modules_begins_with_this_chapter():
    assert {"minisgl", "minisgl.core", "minisgl.errors", "minisgl.torch_free"} <= set(
        MODULES
    )
