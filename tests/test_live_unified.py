"""The live drawing of the unified tree, with each set of components."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live.unified import UnifiedWorld
from support.live_laws import BAD, Player

full = Player(UnifiedWorld)
window = Player(UnifiedWorld, components="full+swa", window="4")
states = Player(UnifiedWorld, components="full+mamba")
everything = Player(UnifiedWorld, components="all")


def test_full_data_alone_is_a_radix_tree():
    assert full.text("insert 1 2 3", "insert 1 2 9", "lock 1 2 9") == (
        "root\n"
        "└─ [1, 2]  full: 0, 1, lock 1  used at 3  ~ changed\n"
        "   └─ [3]  full: 2  used at 1\n"
        "   └─ [9]  full: 5, lock 1  used at 3  ~ changed"
    )
    assert full.last("insert 1 2 3", "insert 1 2 9")["says"] == (
        "2 of 3 tokens were there already. What came twice is free again."
    )


def test_the_last_window_is_a_node_and_a_lock_marks_its_top():
    step = window.last("insert 1..10", "lock 1..10")
    assert step["text"] == (
        "root\n"
        "└─ [1, 2, 3, 4, 5, 6]  full: 0, 1, 2, 3, 4, 5, lock 1  window: live  "
        "used at 2  ~ changed\n"
        "   └─ [7, 8, 9, 10]  full: 6, 7, 8, 9, lock 1  window: live, lock 1, mark 1  "
        "used at 2  ~ changed"
    )
    assert step["sizes"] == [
        "tokens evictable 0",
        "tokens protected 10",
        "window tokens evictable 6",
        "window tokens protected 4",
    ]


def test_a_match_needs_a_full_window_behind_a_tombstone():
    said = [
        step["says"]
        for step in window("insert-late 1..10", "match 1..8", "match 1..10 11")
    ]
    assert said == [
        "0 of 10 tokens were there already.",
        "0 of 8 tokens can be used; Full data is there for 8.",
        "10 of 11 tokens can be used.",
    ]


def test_a_window_can_be_released_before_the_rest():
    steps = window(
        "insert 1..10", "lock 1..10", "unlock-swa 1", "evict-swa 10", "unlock 1"
    )
    assert steps[3]["says"] == "Evicted: 0 tokens, 10 window tokens."
    assert steps[3]["text"].count("window: tombstone") == 2
    assert steps[4]["sizes"][:2] == ["tokens evictable 10", "tokens protected 0"]


def test_an_insert_heals_a_tombstone():
    steps = window("insert 1..10", "evict-swa 6", "insert 1..6 20")
    assert "window: tombstone" in steps[1]["text"]
    assert "window: tombstone" not in steps[2]["text"]


def test_a_state_stays_at_the_end_of_its_prefix():
    steps = states("insert 1..6", "insert 1..3 7 8", "match 1..3 9", "match 1..6 9")
    assert "[1, 2, 3]  full: 0, 1, 2  state: none" in steps[1]["text"]
    assert "[4, 5, 6]  full: 3, 4, 5  state: 0" in steps[1]["text"]
    assert steps[2]["says"] == (
        "0 of 4 tokens can be used; Full data is there for 3, "
        "and a state after 3 would help."
    )
    assert steps[3]["says"] == "6 of 7 tokens can be used."


def test_a_state_in_the_middle_goes_alone_and_one_at_a_leaf_with_all():
    inserts = ("insert 1 2 3", "insert 1 2 3 4 5")
    step = states.last(*inserts, "evict-mamba 1")
    assert step["says"] == "Evicted: 0 tokens, 1 states."
    assert "[1, 2, 3]  full: 0, 1, 2  state: none" in step["text"]
    step = states.last(*inserts, "evict-mamba 2")
    assert step["says"] == "Evicted: 2 tokens, 2 states."
    assert "− gone" in step["text"]


def test_a_state_that_is_there_already_is_not_stored_again():
    step = states.last("insert 1 2 3", "insert 1 2 3")
    assert step["says"].endswith("No new state was stored.")
    assert step["sizes"][2] == "states evictable 1"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        *BAD,
        ("evict-swa 1", "there is no operation 'evict-swa'"),
        ("evict-mamba 1", "there is no operation 'evict-mamba'"),
        ("insert-late 1", "there is no operation 'insert-late'"),
        ("unlock 1", "there is no receipt 1: 0 are out"),
        ("lock", "tokens are missing"),
    ],
)
def test_a_line_that_makes_no_sense_says_why(line: str, why: str):
    full.refuses(line, why, "insert 1 2 3")


@pytest.mark.parametrize("components", ["", "swa", "swa+full", "full+full", "every"])
def test_components_that_do_not_exist_say_which_do(components: str):
    Player(UnifiedWorld, components=components).refuses_option(
        r"give all, or one of full, full\+swa, full\+mamba, full\+swa\+mamba"
    )
    Player(UnifiedWorld, components="full+swa", window="0").refuses_option("window=0")


def test_operations_of_the_engine_that_refuse_are_told():
    step = full.last("insert 1", "lock 1", "unlock 1", "unlock 1")
    assert step["error"].startswith("LockError: the lock on node 1 was released")
    many = [f"insert {first}..{first + 39}" for first in (100, 200)]
    assert full.last(*many)["error"].startswith("PoolError: 40 pages were asked for")


TOKENS = st.lists(st.integers(1, 2), min_size=1, max_size=8).map(
    lambda tokens: " ".join(map(str, tokens))
)
LINES = st.one_of(
    st.tuples(st.sampled_from(["insert", "insert-late", "match", "lock"]), TOKENS).map(
        " ".join
    ),
    st.tuples(
        st.sampled_from(["unlock", "unlock-swa", "evict", "evict-swa", "evict-mamba"]),
        st.integers(0, 5).map(str),
    ).map(" ".join),
)


@pytest.mark.parametrize("player", [full, window, states, everything])
@settings(max_examples=25, deadline=None)
@given(lines=st.lists(LINES, max_size=14))
def test_any_operations_keep_tree_and_pools_in_order(player: Player, lines: list[str]):
    for step in player(*lines):
        assert "IntegrityError" not in (step["error"] or "")
    player.test_of(*lines)


def test_any_operations_with_larger_pages_keep_order():
    paged = Player(UnifiedWorld, components="all", page_size="2", window="3")
    for step in paged("insert 1..7", "insert 1..4 8 9", "lock 1..6", "evict-swa 4"):
        assert step["error"] is None
