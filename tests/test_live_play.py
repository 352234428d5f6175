"""What all live drawings share: reading lines, marking changes, writing a test."""

from __future__ import annotations

import pytest
from live.play import (
    MAX_OPERATIONS,
    BadInput,
    Node,
    Picture,
    Row,
    Table,
    _marked,
    as_text,
    listed,
    parse,
    play,
)
from live.radix import RadixWorld
from support.live_laws import BAD, Player, run_test

radix = Player(RadixWorld)


@pytest.mark.parametrize(
    ("line", "name", "arguments"),
    [
        ("insert 1 2 3", "insert", [[1, 2, 3], None]),
        ("  insert   1..4  9 ", "insert", [[1, 2, 3, 4, 9], None]),
        ("insert 7..7 @bob", "insert", [[7], "bob"]),
        ("evict 0", "evict", [0]),
    ],
)
def test_a_line_is_an_operation_and_its_arguments(line, name, arguments):
    operation, found = parse(line, RadixWorld.operations)
    assert (operation.name, found) == (name, arguments)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        *BAD,
        ("insrt 1", "did you mean insert?"),
        ("insert", "tokens are missing: write insert TOKENS [@SPACE], as in 1 2 3"),
        ("insert @bob", "tokens are missing"),
        ("insert -1", "'-1' is no token"),
        ("insert 1,2", "'1,2' is no token"),
        ("insert 1.5", "'1.5' is no token"),
        ("insert ²", "'²' is no token"),
        ("insert 99999999999", "is no token"),
        ("insert 5..1", "5..1 counts down: write 1..5"),
        ("insert 1..65", "1..65 is too much: 64 tokens at most"),
        ("insert 1..64 1", "1 is too much: 64 tokens at most"),
        ("insert 1 @", "'' is no name"),
        ("insert 1 @bob 2", "'2' is too much: write insert TOKENS [@SPACE]"),
        ("evict", "COUNT is missing: write evict COUNT"),
        ("evict x", "'x' is no count: give a whole number"),
        ("evict 1 2", "'2' is too much"),
        ("unlock 0", "there is no receipt 0: 0 are out"),
    ],
)
def test_a_line_that_is_none_says_why_and_changes_nothing(line: str, why: str):
    radix.refuses(line, why, "insert 1 2")


def test_options_and_the_number_of_operations_have_limits():
    Player(RadixWorld, page_size="0").refuses_option("page_size=0: give .* 1 to 16")
    Player(RadixWorld, page_size="x").refuses_option("page_size=x")
    Player(RadixWorld, window="4").refuses_option(
        "no option window: .* takes page_size"
    )
    radix.whole(*["match 1"] * MAX_OPERATIONS)
    with pytest.raises(BadInput, match="101 operations are too many"):
        radix.whole(*["match 1"] * (MAX_OPERATIONS + 1))


def test_a_mistake_in_the_engine_is_an_error_of_its_step(monkeypatch):
    monkeypatch.setattr(
        "minisgl.kvcache.radix_tree.RadixTree._remove_leaf", lambda *_: None
    )
    assert radix.last("insert 1 2", "evict 1")["error"].startswith("IntegrityError: ")


def test_long_runs_of_numbers_are_shortened():
    assert listed([1, 2, 3, 4, 5, 6]) == "1, 2, 3, 4, 5, 6"
    assert listed([1, 2, 3, 4, 5, 6, 7]) == "1..7"
    assert listed([1, 2, 3, 4, 5, 6, 8]) == "1, 2, 3, 4, 5, 6, 8"
    assert listed([]) == ""


def test_every_change_of_a_tree_has_its_mark():
    def tree(*children: Node) -> Picture:
        return Picture(Node(0, "root", children=list(children)))

    before = tree(
        Node(1, "same"), Node(2, "stamped", stamp=1), Node(3, "was"), Node(4, "goes")
    )
    before.tree.children[3].children.append(Node(5, "goes too"))
    after = tree(
        Node(1, "same"), Node(2, "stamped", stamp=2), Node(3, "is"), Node(6, "comes")
    )
    assert as_text(_marked(before, after)) == (
        "root\n"
        "└─ same\n"
        "└─ stamped  used at 2  • used\n"
        "└─ is  ~ changed\n"
        "└─ comes  + new\n"
        "└─ goes  − gone\n"
        "   └─ goes too  − gone"
    )
    assert [node.mark for node in after.tree.children] == [""] * 4  # a copy is marked


def test_every_change_of_a_table_has_its_mark():
    def table(*rows: list[str]) -> Picture:
        return Picture(tables=[Table("T", ["name", "n"], [Row(row) for row in rows])])

    before = table(["a", "1"], ["b", "1"], ["c", "1"])
    after = table(["a", "1"], ["b", "2"], ["d", "1"])
    assert as_text(_marked(before, after)) == (
        "T\nname  n\na     1\nb     2  ~ changed\nd     1  + new\nc     1  − gone"
    )
    assert as_text(table()) == "T\nname  n\n(none)"


def test_the_written_test_repeats_the_steps_and_can_fail():
    written = radix.test_of(
        "insert 1 2 3", "lock 1 2 3", "evict 1", "nonsense", "unlock 1", "evict 3"
    )
    assert "with pytest.raises(EvictionError):\n        tree.evict(1)\n" in written
    assert "nonsense" not in written
    with pytest.raises(AssertionError):
        run_test(written.replace("evictable_size == 3", "evictable_size == 4"))


def test_the_beginning_is_a_step():
    [first] = play(RadixWorld, {"operations": []})["steps"]
    assert (first["line"], first["text"], first["error"]) == ("", "root", None)
