"""The live drawing of the pool, against the page allocator itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live.pool import PoolWorld
from support.live_laws import BAD, Player

pool = Player(PoolWorld)
SCATTERED = ("admit a 5", "admit b 4", "free a", "admit c 9")


def test_pages_that_came_back_are_handed_out_first():
    assert pool.text(*SCATTERED) == (
        "The pool\n"
        "page    slots   holder  tokens in it\n"
        "page 0  0..3    c       4             ~ changed\n"
        "page 1  4..7    c       4             ~ changed\n"
        "page 2  8..11   b       4\n"
        "page 3  12..15  c       1             ~ changed\n"
        "page 4  16..19  free\n"
        "page 5  20..23  free\n\n"
        "The page table\n"
        "request  tokens  pages    slot of each token\n"
        "b        4       2        8, 9, 10, 11\n"
        "c        9       0, 1, 3  0, 1, 2, 3, 4, 5, 6, 7, 12  + new\n\n"
        "The stack of free pages\n"
        "      next one first\n"
        "free  4, 5            ~ changed"
    )


def test_a_request_grows_into_its_last_page_first():
    says = [step["says"] for step in pool("admit a 5", "grow a 3", "grow a 1")]
    assert says == [
        "5 tokens need 2 pages (0, 1).",
        "a has 8 tokens now; it took no page: its last one has room.",
        "a has 9 tokens now; it took 1 page (2).",
    ]


def test_a_refused_call_changes_nothing():
    before, refused = pool("admit a 9", "admit b 16")
    assert refused["error"] == "PoolError: 4 pages were asked for; 3 of 6 are free"
    assert refused["sizes"] == before["sizes"] == ["free pages 3"]
    step = pool.last("admit a 9", "grow a 99")
    assert step["error"].startswith("PoolError") and "a        9 " in step["text"]
    step = pool.last("admit a 9", "free-page 5")
    assert step["error"] == "PoolError: page 5 cannot be freed: it is free already"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        *BAD,
        ("admit", "NAME is missing: write admit NAME COUNT"),
        ("admit b", "COUNT is missing"),
        ("admit a 1", "request a is here already; give another name"),
        ("admit b 0", "a request has at least one token"),
        ("admit ä 1", "'ä' is no name"),
        ("grow b 1", "there is no request b; here is: a"),
        ("free b", "there is no request b"),
        ("free-page 0", "page 0 is a request's: free the whole request"),
    ],
)
def test_a_line_that_makes_no_sense_says_why(line: str, why: str):
    pool.refuses(line, why, "admit a 3")


def test_the_written_test_uses_the_allocator():
    written = pool.test_of(*SCATTERED, "grow c 4", "admit d 99", "free c")
    assert "pages_c += more\n" in written
    assert "with pytest.raises(PoolError):" in written


LINES = st.one_of(
    st.tuples(
        st.sampled_from(["admit", "grow"]), st.sampled_from("abc"), st.integers(0, 9)
    ).map(lambda parts: " ".join(map(str, parts))),
    st.sampled_from("abc").map(lambda name: f"free {name}"),
    st.integers(0, 7).map(lambda page: f"free-page {page}"),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(LINES, max_size=12))
def test_any_operations_lose_no_page_and_make_a_test_that_passes(lines: list[str]):
    pool.test_of(*lines)
