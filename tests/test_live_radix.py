"""The live drawing of the radix tree, against the tree itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from live.radix import RadixWorld
from support.live_laws import Player

radix = Player(RadixWorld)


def test_each_operation_says_what_it_did():
    steps = radix(
        "insert 1 2 3",
        "insert 1 2 9",
        "lock 1 2 3",
        "evict 4",
        "evict 1",
        "unlock 1",
        "match 1 2 3 4",
    )
    assert [step["says"] for step in steps] == [
        "0 of 3 tokens were there already.",
        "2 of 3 tokens were there already.",
        "Receipt 1 protects 3 tokens.",
        "",
        "Slots [5] are free again.",
        "Receipt 1 is given back.",
        "3 of 4 tokens found, in slots [0, 1, 2].",
    ]
    assert steps[3]["error"] == (
        "EvictionError: cannot evict 4 tokens: 1 are evictable"
    )
    assert not steps[3]["is_bad"]
    assert steps[2]["sizes"] == ["evictable 1", "protected 3"]
    branch = steps[2]["tree"]["children"][0]
    assert (branch["title"], branch["locked"]) == ("[1, 2]", True)
    assert [child["typed"] for child in branch["children"]] == ["1 2 3", "1 2 9"]


def test_a_split_is_seen_as_a_new_and_a_changed_node():
    assert radix.text("insert 1 2 3", "insert 1 2 9") == (
        "root\n"
        "└─ [1, 2]  slots 0, 1  used at 2  + new\n"
        "   └─ [3]  slots 2  used at 1  ~ changed\n"
        "   └─ [9]  slots 5  used at 2  + new"
    )


def test_namespaces_are_apart_and_can_be_typed():
    step = radix.last("insert 1 2", "insert 1 2 3 @bob", "insert 1 2 4 @bob")
    [ours, bobs] = step["tree"]["children"]
    assert (ours["title"], bobs["title"]) == ("[1, 2]", "@bob [1, 2]")
    assert [c["title"] for c in bobs["children"]] == ["[3]", "[4]"]
    assert [c["typed"] for c in bobs["children"]] == ["1 2 3 @bob", "1 2 4 @bob"]


def test_pages_are_whole():
    paged = Player(RadixWorld, page_size="2")
    assert "[1, 2]  slots 0, 1" in paged.text("insert 1 2 3")
    assert paged.last("insert 1 2 3", "match 1 2 3")["says"].startswith("2 of 3")
    assert "tree = RadixTree(page_size=2)" in paged.test_of("insert 1 2 3")


TOKENS = st.lists(st.integers(1, 3), min_size=1, max_size=6).map(
    lambda tokens: " ".join(map(str, tokens))
)
LINES = st.one_of(
    st.tuples(
        st.sampled_from(["insert", "match", "lock"]),
        TOKENS,
        st.sampled_from(["", " @b"]),
    ).map(lambda parts: f"{parts[0]} {parts[1]}{parts[2]}"),
    st.integers(0, 4).map(lambda number: f"unlock {number}"),
    st.integers(0, 9).map(lambda number: f"evict {number}"),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(LINES, max_size=12), st.sampled_from(["1", "2"]))
def test_any_operations_keep_the_tree_in_order_and_make_a_test_that_passes(
    lines: list[str], page_size: str
):
    paged = Player(RadixWorld, page_size=page_size)
    for step in paged(*lines):
        assert "IntegrityError" not in (step["error"] or "")
    paged.test_of(*lines)
