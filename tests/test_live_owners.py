"""The live drawing of rows and their owners, against the stage's own manager."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live.owners import OwnersWorld
from support.live_laws import BAD, Player

owners = Player(OwnersWorld)
TWICE = (
    "admit a 1 2 3 4 5",
    "admit b 1 2 3 4 5",
    "compute a",
    "compute b",
    "share a",
    "share b",
)


def rows(step: dict, name: str) -> list[list[str]]:
    """Page and owner of each token of a request."""
    [table, _] = step["tables"]
    return [
        row["cells"][2:]
        for row in table["rows"]
        if row["cells"][0].startswith(f"{name} ") and row["mark"] != "gone"
    ]


def test_whoever_shares_second_reads_the_caches_pages_and_frees_its_own():
    step = owners.last(*TWICE)
    assert step["says"] == (
        "b reads pages 0, 1 from the cache now. Pages 3, 4, which the cache had "
        "already, went back."
    )
    shared = [[page, "the cache, locked by b"] for page in "0011"]
    rest = [["5", "b alone"], ["", "nobody yet: not computed"]]
    assert rows(step, "b") == shared + rest
    assert step["sizes"] == [
        "free pages 4",
        "pages to be evicted at will 0",
        "protected pages 2",
    ]


def test_a_copy_is_told_by_its_page_and_not_by_its_place():
    """The first page is the cache's own: only the second is there twice."""
    step = owners.last(
        "admit a 1 2 9",
        "compute a",
        "share a",
        "admit b 1 2 3 4 5",
        "admit c 1 2 3 4 5",
        "compute b",
        "compute c",
        "finish b",
        "finish c",
    )
    assert "Page 4, which the cache had already, went back." in step["says"]
    assert "Page 5, which is not full, went back." in step["says"]


def test_the_last_token_of_a_prompt_is_never_found():
    step = owners.last("admit a 1 2 3 4", "compute a", "finish a", "admit b 1 2 3 4")
    assert step["says"] == "b finds 2 of 4 tokens in the cache, and locks them."
    longer = owners.last(
        "admit a 1 2 3 4", "compute a", "finish a", "admit b 1 2 3 4 5"
    )
    assert longer["says"].startswith("b finds 4 of 5")


def test_nobody_locks_what_finished_requests_left():
    step = owners.last(*TWICE, "finish a", "finish b")
    assert step["sizes"] == [
        "free pages 6",
        "pages to be evicted at will 2",
        "protected pages 0",
    ]
    assert "none: evictable" in step["text"]


def test_a_pool_that_is_full_refuses():
    small = Player(OwnersWorld, pages="2")
    step = small.last("admit a 1 2 3 4 5", "compute a")
    assert step["error"] == "PoolError: 3 pages were asked for; 2 of 2 are free"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        *BAD,
        ("admit a 1", "request a is here already"),
        ("admit b", "tokens are missing"),
        ("compute b", "there is no request b; here is: a"),
        ("share b", "there is no request b"),
        ("finish b", "there is no request b"),
    ],
)
def test_a_line_that_makes_no_sense_says_why(line: str, why: str):
    owners.refuses(line, why, "admit a 1 2 3")


def test_a_request_has_a_longest_length():
    big = Player(OwnersWorld, page_size="16", pages="32")
    big.refuses(
        "compute a", "a may not become longer", "admit a 1", *["compute a"] * 64
    )


LINES = st.one_of(
    st.tuples(
        st.sampled_from("abc"), st.lists(st.integers(1, 2), min_size=1, max_size=5)
    ).map(lambda parts: f"admit {parts[0]} {' '.join(map(str, parts[1]))}"),
    st.tuples(
        st.sampled_from(["compute", "share", "finish"]), st.sampled_from("abc")
    ).map(" ".join),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(LINES, max_size=16))
def test_any_operations_keep_every_page_in_one_place(lines: list[str]):
    for step in owners(*lines):
        assert "IntegrityError" not in (step["error"] or "")
    owners.test_of(*lines)
