"""The unified-tree benchmark: what its rows have to agree on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench import app
from benchmarks.traces import TRACES, build_trace
from benchmarks.unified import SETS, UnifiedRun, compare
from typer.testing import CliRunner


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("name", TRACES)
def test_every_set_of_components_serves_every_trace(name: str, page_size: int):
    trace = build_trace(name, shrink=16)
    if name == "e":
        trace = replace(trace, pool_size=trace.pool_size // 16)
    row = compare(trace, page_size, 1, lambda: None)
    assert row.hits[0] == row.hits[1] and row.evicted[0] == row.evicted[1]
    assert (name == "e") == bool(row.evicted[0])
    assert len(row.us_per_request) == len(row.hits) == 1 + len(SETS)
    assert min(row.hits) > 0


@pytest.mark.parametrize("components", SETS)
def test_no_slot_is_lost_on_the_way(components: str):
    trace = build_trace("c", shrink=16)
    run = UnifiedRun(components, 4, trace.pool_size)
    for tokens in trace.prompts:
        run.serve(tokens)
        run.tree.check_integrity()
    held = run.tree.evictable_size() + run.tree.protected_size()
    assert len(run.free) == len(set(run.free)) == trace.pool_size // 4 * 4 - held
    assert not run.tree.receipts


def test_an_unknown_trace_is_refused_with_the_known_ones():
    result = CliRunner().invoke(app, ["unified", "--trace", "x"])
    assert result.exit_code == 2
    assert "no trace x" in result.output and "a, b, c, d, e" in result.output
