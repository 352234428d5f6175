"""The tree benchmark: its two caches must agree on every hit and eviction."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench import app
from benchmarks.traces import TRACES, build_trace
from benchmarks.tree import Ours, Textbook, compare, run_trace
from typer.testing import CliRunner


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("name", TRACES)
def test_the_tree_and_the_textbook_agree_on_hits_and_evictions(
    name: str, page_size: int
):
    trace = build_trace(name, shrink=16)
    if name == "e":
        trace = replace(trace, pool_size=trace.pool_size // 16)
    ours = run_trace(Ours(page_size), trace, page_size)
    textbook = run_trace(Textbook(page_size), trace, page_size)
    assert ours.hits == textbook.hits and sum(ours.hits) > 0
    assert ours.evicted == textbook.evicted
    assert (name == "e") == bool(ours.evicted)


def test_a_cache_that_answers_otherwise_is_found_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Ours, "close", lambda self, key, row, handle: handle.cached_len)
    with pytest.raises(AssertionError, match="trace a: hits differ"):
        compare(build_trace("a", shrink=20), 1, 1, lambda: None)


def test_a_trace_is_the_same_every_time():
    first, second = build_trace("e", shrink=16), build_trace("e", shrink=16)
    assert first.prompts == second.prompts and first.pool_size == second.pool_size


def test_an_unknown_trace_is_refused_with_the_known_ones():
    result = CliRunner().invoke(app, ["tree", "--trace", "x"])
    assert result.exit_code == 2
    assert "no trace x" in result.output and "a, b, c, d, e" in result.output
