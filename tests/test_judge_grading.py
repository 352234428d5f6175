"""The grading core, in one interpreter for many runs, as it is in a browser."""

from __future__ import annotations

import ast
import builtins
import heapq
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from practice import grading

HEAD = "from grading import Check, NotApplicable, draw_table, draw_tree, test\n"
CALL = """
@test("does it")
def _(answer, check):
    check.equal(answer.f(1), 2, call="f(1)", look="one more")
"""
RIGHT = "def f(value):\n    return value + 1\n"


def run(answer: str, tests: str = CALL, **settings: Any) -> dict[str, Any]:
    given = {"defines": ["f"], "checks": 1} | settings
    return grading.run("a-slug", answer=answer, tests=HEAD + tests, **given)


def only(result: dict[str, Any]) -> dict[str, Any]:
    """The record of the only test."""
    (test,) = result["tests"]
    return test


def returns(value: str, *lines: str) -> str:
    return "\n".join([*lines, "def f(value):", f"    return {value}", ""])


def compared(value: str, expected: str, *lines: str) -> dict[str, Any]:
    """The record of a test that compares what an answer returns."""
    tests = CALL.replace("2,", f"{expected},")
    return only(run(returns(value, "from array import array", *lines), tests))


# a run as a whole


def test_a_right_answer_is_accepted_with_every_check_counted():
    result = run(RIGHT)
    assert result["version"] == 1 and result["slug"] == "a-slug"
    assert result["status"] == "accepted"
    assert result["checks"] == {"planned": 1, "executed": 1}
    test = only(result)
    assert test.pop("time_ms") >= 0
    assert test == {
        "name": "does it",
        "status": "passed",
        "message": "",
        "output": "",
        "failure": None,
    }


def test_another_number_of_checks_than_planned_is_no_result():
    for planned in (0, 2):
        result = run(RIGHT, checks=planned)
        assert result["status"] == "no result"
        assert f"1 checks were executed, and {planned} are planned" in result["message"]


def test_tests_go_on_after_one_that_failed_and_a_test_ends_at_its_first_failure():
    tests = """
@test("one")
def _(answer, check):
    check.equal(answer.f(1), 5, call="f(1)", look="first")
    check.equal(answer.f(1), 6, call="f(1)", look="second")

@test("two")
def _(answer, check):
    check.equal(answer.f(1), 2, call="f(1)", look="third")
"""
    result = run(RIGHT, tests, checks=3)
    assert [test["status"] for test in result["tests"]] == ["failed", "passed"]
    assert result["tests"][0]["failure"]["look"] == "first"
    assert result["checks"]["executed"] == 2
    assert result["message"] == "1 of 2 tests pass; look first at: one"


def test_events_say_what_is_about_to_happen_before_it_does():
    events: list[dict[str, Any]] = []
    tests = CALL.replace('"does it"', '"does it", example=True')
    result = run("print('hello')\n" + RIGHT, tests, announce=events.append)
    assert [e["event"] for e in events] == ["plan", "start", "output", "start", "test"]
    assert events[0]["tests"] == [{"name": "does it", "example": True}]
    assert [e["index"] for e in events[1:]] == [-1, -1, 0, 0]
    assert events[-1]["record"] == only(result)
    assert result["output"] == "hello\n"


def test_what_a_test_prints_is_kept_up_to_a_limit():
    answer = "def f(value):\n    print('x' * 9000)\n    print('y')\n    return 2\n"
    output = only(run(answer))["output"]
    assert output.startswith("x" * grading.OUTPUT_LIMIT + "\n… output cut here …")
    assert len(output) < grading.OUTPUT_LIMIT + 100 and "y" not in output


def test_control_characters_in_output_and_errors_are_made_visible():
    answer = (
        "def f(value):\n    print('\\x1b[2J\\ud800')\n    raise ValueError('\\x07')"
    )
    test = only(run(answer))
    assert test["output"] == "\\x1b[2J\\ud800\n"
    assert "ValueError: \\x07" in test["message"]


def test_the_core_needs_nothing_but_the_standard_library():
    tree = ast.parse(Path(grading.__file__).read_text(encoding="utf-8"))
    modules = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }
    assert "ast" in modules
    assert modules <= sys.stdlib_module_names


def test_broken_tests_are_an_error_and_no_verdict():
    with pytest.raises(ValueError, match="register no test"):
        run(RIGHT, "")
    with pytest.raises(ValueError, match="two tests are called 'does it'"):
        run(RIGHT, CALL + CALL)


# what an answer must define


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("", "your answer is empty: write `f`"),
        ("# def f(value):\n#     return value + 1\n", "your answer is empty"),
        ("def g(value):\n    return 2\n", "f is not in your answer: write `f`"),
        ("from math import floor as f\n", "f is imported, not written in your answer"),
        (RIGHT + "from math import floor as f\n", "f is defined and then bound to"),
        (RIGHT + "del f\n", "f is defined and then bound to something else"),
    ],
)
def test_an_answer_that_lacks_a_name_is_told_which(answer, message):
    result = run(answer)
    assert result["status"] == "rejected" and message in result["message"]
    assert only(result)["status"] == "not run"


def test_a_method_that_is_only_inherited_has_a_message_of_its_own():
    answer = "class Base:\n    def m(self): return 1\nclass C(Base):\n    pass\n"
    result = run(answer, defines=["C", "C.m"])
    assert "C.m is defined by the engine and inherited" in result["message"]
    assert "write `C.m`" in result["message"]


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """A minisgl with a class, a property, and a function that uses it."""
    package = tmp_path / "minisgl"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "pool.py").write_text(
        "made = 0\n"
        "class Pool:\n"
        "    def __init__(self):\n"
        "        global made\n"
        "        made += 1\n"
        "        self.number = made\n"
        "    def take(self): return 7\n"
        "    @property\n"
        "    def size(self): return 8\n"
        "    @staticmethod\n"
        "    def unit(): return 9\n"
        "def double(n): return 2 * n\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize(
    ("hole", "body"),
    [
        ("Pool.take", "pool.Pool().take()"),
        ("Pool.take", "super(Mine, Mine()).take()"),
        ("Pool.size", "pool.Pool().size"),
        ("Pool.unit", "pool.Pool.unit()"),
        ("double", "pool.double(2)"),
    ],
)
def test_the_engines_own_implementation_is_out_of_reach(engine, hole, body):
    answer = returns(
        body, "from minisgl import pool", "class Mine(pool.Pool):", "    pass"
    )
    given = {"defines": ["f"], "tests": HEAD + CALL, "checks": 1, "answer": answer}
    with_hole = grading.run("s", holes=[f"minisgl.pool.{hole}"], **given)
    assert f"the engine's own {hole} is not here" in only(with_hole)["message"]
    without = grading.run("s", **given)  # the hole is of that run alone
    assert "returned" not in only(without)["message"]
    assert only(without)["status"] == "failed"


def test_a_hole_in_a_module_that_is_not_there_is_no_fault(engine):
    assert run(RIGHT, holes=["minisgl.of_no_kind.x.Scheduler.run"])["status"] == (
        "accepted"
    )
    with pytest.raises(
        ValueError, match=r"the engine has no minisgl\.pool\.Pool\.gone"
    ):
        run(RIGHT, holes=["minisgl.pool.Pool.gone"])


# comparing


@pytest.mark.parametrize(
    "value",
    [
        "None",
        "2.5",
        "'a'",
        "b'a'",
        "[1, [2, (3,)]]",
        "{'a': {1, 2}, (1, 2): [None]}",
        "frozenset({1})",
        "array('i', [1, 2])",
        "10 ** 9000",
        "{}",
        "set()",
    ],
)
def test_equal_plain_data_are_equal(value):
    lines = [HEAD, "from array import array"]
    tests = "\n".join(lines) + CALL.replace("2,", f"{value},")
    result = run(returns(value, "from array import array"), tests)
    assert result["status"] == "accepted"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("True", "1"),
        ("1", "True"),
        ("1.0", "1"),
        ("[1]", "(1,)"),
        ("[True]", "[1]"),
        ("{True: 1}", "{1: 1}"),
        ("{1: True}", "{1: 1}"),
        ("{(1, True)}", "{(1, 1)}"),
        ("{1}", "frozenset({1})"),
        ("b'a'", "'a'"),
        ("float('nan')", "float('nan')"),
        ("__import__('math').nan", "__import__('math').nan"),
        ("[__import__('math').nan]", "[__import__('math').nan]"),
        ("[1, 2]", "[1]"),
        ("{1: 2}", "{1: 2, 3: 4}"),
        ("10 ** 9000", "10 ** 9000 + 1"),
    ],
)
def test_other_types_or_values_are_not_equal(value, expected):
    assert compared(value, expected)["status"] == "failed"


ALIKE = """
class Alike:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
class MyInt(int): pass
class MyList(list):
    def __len__(self): return 2
    def __eq__(self, other): return True
"""


@pytest.mark.parametrize(
    ("value", "expected", "message"),
    [
        ("Alike()", "2", "got an Alike, not an int"),
        ("MyInt(2)", "2", "got a MyInt (a subclass of int), not an int"),
        ("MyList([1])", "[1]", "got a MyList (a subclass of list)"),
        ("[1, {'a': Alike()}]", "[1]", "got an Alike at [1]['a']"),
        ("{Alike()}", "{1}", "got an Alike at {…}"),
        ("value_of", "2", "got a function, not an int"),
        ("iter([1])", "[1]", "got a list_iterator, not a list"),
        ("True", "2", "got True (a bool, not an int)"),
        ("None", "2", "got None (None, not an int)"),
        ("deep()", "[1]", "nested more than 100 levels deep"),
        ("endless()", "[1]", "nested more than 100 levels deep"),
        ("[0] * 2_000_000", "[1]", "value of more than 1,000,000 items"),
    ],
)
def test_what_is_not_plain_data_is_refused_by_name(value, expected, message):
    lines = ALIKE + (
        "def value_of(): pass\n"
        "def deep():\n    x = []\n    for _ in range(200): x = [x]\n    return x\n"
        "def endless():\n    x = []\n    x.append(x)\n    return x\n"
    )
    test = compared(value, expected, lines)
    assert test["status"] == "failed" and message in test["message"]


def test_a_long_value_says_where_it_parts():
    test = compared("list(range(40))", "[*range(20), 99, *range(21, 40)]")
    assert test["failure"]["actual"].endswith(
        "\nfirst difference: [20] is 20, expected 99"
    )
    test = compared("list(range(40))", "list(range(39))")
    assert "first difference: 40 items, expected 39" in test["message"]


def test_a_picture_is_drawn_of_both_values():
    tests = CALL.replace("look=", "draw=lambda n: '*' * n, look=")
    failure = only(run(returns("3"), tests))["failure"]
    assert failure["expected_drawing"] == "**" and failure["actual_drawing"] == "***"


@pytest.mark.parametrize("condition", ["1", "'yes'", "None", "answer.Alike()"])
def test_true_takes_only_true(condition):
    tests = f"""
@test("t")
def _(answer, check):
    check.true(True, call="c", expected="e", actual="a", look="l")
    check.true({condition}, call="c", expected="all of it", actual=[1], look="l")
"""
    result = run(ALIKE + RIGHT, tests, checks=2)
    assert only(result)["message"] == "c: expected all of it; got [1]"
    assert result["checks"]["executed"] == 2


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("1.05", "passed"),
        ("0.95", "passed"),
        ("1.2", "failed"),
        ("1", "failed"),
        ("float('nan')", "failed"),
        ("float('inf')", "failed"),
        ("MyFloat(1.0)", "failed"),
    ],
)
def test_close_takes_a_float_within_the_tolerance(value, status):
    tests = """
@test("t")
def _(answer, check):
    check.close(answer.f(1), 1.0, tolerance=0.1, call="f(1)", look="l")
"""
    result = run(returns(value, "class MyFloat(float):", "    pass"), tests)
    assert only(result)["status"] == status


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('page 5')", ""),
        ("raise Special('page 5')", ""),
        (
            "return 3",
            "expected an error: KeyError with '5' in its text; got no error, ",
        ),
        ("raise KeyError('6')", "got an error: KeyError: '6'"),
        ("raise IndexError('5')", "got an error: IndexError: 5 (line 7: raise Index"),
        ("raise Liar('5')", "got an error: Liar: 5"),
        ("raise SystemExit(5)", "got an error: SystemExit: 5"),
        ("return Special", "got no error, it returned a type"),
    ],
)
def test_raises_wants_the_error_and_what_it_must_mention(body, message):
    tests = """
@test("t")
def _(answer, check):
    check.raises(KeyError, lambda: answer.f(1), call="f(1)", mentions=["5"], look="l")
"""
    answer = (
        "class Special(KeyError): pass\n"
        "class Liar(Exception):\n"
        "    @property\n"
        "    def __class__(self):\n"
        "        return KeyError\n"
        f"def f(value):\n    {body}\n"
    )
    test = only(run(answer, tests))
    assert message in test["message"] and (test["status"] == "passed") == (not message)


# errors of the answer


def test_an_error_shows_the_call_and_the_learners_own_lines_alone():
    answer = (
        "import json\n\n"
        "def f(value):\n    return helper(value)\n\n"
        "def helper(value):\n    return json.loads('{')\n"
    )
    test = only(run(answer))
    assert test["status"] == "error"
    lines = test["message"].splitlines()
    assert lines[0].startswith("JSONDecodeError: Expecting property name")
    assert lines[1:] == [
        "  line 4, in f",
        "    return helper(value)",
        "  line 7, in helper",
        "    return json.loads('{')",
    ]
    failure = test["failure"]
    assert failure["call"] == "f(1)" and failure["expected"] == "no error"
    assert failure["look"] == "line 7: return json.loads('{')"


def test_a_syntax_error_shows_its_line():
    result = run("def f(value):\n    return value +\n")
    assert result["status"] == "rejected"
    first, line, mark = result["message"].splitlines()
    assert first == "your answer is not Python in line 2: invalid syntax"
    assert line.strip() == "return value +" and mark.strip() == "^"


@pytest.mark.parametrize("source", ["x = '\0'\n", "(" * 3000 + ")" * 3000, "\ud800"])
def test_a_source_that_cannot_be_parsed_is_rejected(source):
    result = run(RIGHT + source)
    assert result["status"] == "rejected" and "your answer" in result["message"]


def test_an_error_whose_text_fails_is_still_told():
    answer = (
        "class Odd(Exception):\n    def __str__(self): raise KeyboardInterrupt\n"
        "def f(value):\n    raise Odd\n"
    )
    assert "Odd: (its text cannot be read)" in only(run(answer))["message"]


def test_a_missing_module_says_what_may_be_imported():
    for module in ("torch_of_no_kind", "minisgl_of_no_kind"):
        message = run(f"import {module}\n" + RIGHT)["message"]
        assert f"No module named '{module}'" in message
        assert "An answer may import the standard library" in message


def test_dataclasses_and_enums_work_in_an_answer():
    answer = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass, field\n"
        "from enum import Enum\n"
        "from typing import ClassVar, NamedTuple\n\n"
        "class Kind(Enum):\n    A = 1\n\n"
        "class Pair(NamedTuple):\n    a: int\n    b: int\n\n"
        "@dataclass(slots=True)\nclass Node:\n"
        "    count: ClassVar[int] = 0\n"
        "    pages: list[int] = field(default_factory=list)\n\n"
        "def f(value):\n    return Node([2]).pages[0] * Kind.A.value * Pair(1, 1).b\n"
    )
    assert run(answer)["status"] == "accepted"


def test_an_answer_is_compiled_as_it_is_written():
    """The core's own `from __future__` is not the answer's."""
    result = run("def f(value: no_such_type):\n    return 2\n")
    assert "NameError: name 'no_such_type' is not defined" in result["message"]


# recursion and memory


@pytest.mark.parametrize(
    "answer",
    [
        "def f(value):\n    return f(value)\n",
        "import functools\ndef f(value):\n    return functools.partial(f, value)()\n",
        "def f(value):\n    node = None\n    for _ in range(1500): node = [node]\n"
        "    return depth(node)\n"
        "def depth(node):\n    return 0 if node is None else 1 + depth(node[0])\n",
    ],
    ids=["unbounded", "through partial", "a chain of 1500 nodes"],
)
def test_deep_recursion_is_an_error_of_its_test(answer):
    tests = CALL + CALL.replace("does it", "and once more")
    result = run(answer, tests, checks=2)
    assert result["status"] == "rejected"
    for test in result["tests"]:
        assert test["status"] == "error"
        assert test["message"].startswith("recursion too deep: ")
        assert len(test["message"]) < 2000
    assert run(RIGHT)["status"] == "accepted"


def test_an_answer_that_catches_recursion_goes_on():
    answer = (
        "import sys\nsys.setrecursionlimit(400)\n"
        "def f(value):\n    try:\n        return f(value)\n"
        "    except RecursionError:\n        return 2\n"
    )
    before = sys.getrecursionlimit()
    assert run(answer)["status"] == "accepted"
    assert sys.getrecursionlimit() == before


def test_running_out_of_memory_is_an_error_of_its_test():
    test = only(run("def f(value):\n    return [0] * 10 ** 13\n"))
    assert test["status"] == "error" and test["message"].startswith("out of memory")


def test_leaving_the_program_is_an_error_of_its_test():
    for leaving in ("raise SystemExit(0)", "import sys; sys.exit()", "exit_()"):
        answer = f"from sys import exit as exit_\ndef f(value):\n    {leaving}\n"
        result = run(answer)
        assert result["status"] == "rejected"
        assert "your answer ends the program" in only(result)["message"]


def test_an_interrupted_test_is_timed_out():
    test = only(run("def f(value):\n    raise KeyboardInterrupt\n"))
    assert test["status"] == "timed out"


# lists of operations

WORLDS = """
class Model:
    def __init__(self):
        self.items = []
    def push(self, *items):
        self.items += items
    def pop(self):
        if not self.items:
            raise NotApplicable
        return self.items.pop(0)
    def size(self):
        return len(self.items)

class Theirs:
    def __init__(self, answer):
        self.queue = answer.Queue()
    def __getattr__(self, name):
        return getattr(self.queue, name)

class ModelWithState(Model):
    def state(self):
        return list(self.items)

class TheirsWithState(Theirs):
    def state(self):
        return list(self.queue.items)

def operations(answer, check, steps, state=False):
    check.operations(
        steps,
        expected=ModelWithState if state else Model,
        actual=lambda: (TheirsWithState if state else Theirs)(answer),
        draw=lambda world: "|".join(map(str, world.items)),
        look="first in, first out",
    )
"""
QUEUE = """
class Queue:
    def __init__(self):
        self.items = []
    def push(self, *items):
        self.items += items
    def pop(self):
        return self.items.pop(0)
    def size(self):
        return len(self.items)
"""
LIST = [("push", 1), ("size",), ("push", 2, 3), ("pop",), ("size",), ("pop",), ("pop",)]


def queue(answer: str, steps: list[Any], state: bool = False, checks: int = 0) -> Any:
    tests = f"""{WORLDS}
@test("a queue")
def _(answer, check):
    operations(answer, check, {steps!r}, {state})
"""
    return run(answer, tests, defines=["Queue"], checks=checks or len(steps))


def test_operations_count_one_check_each_skipped_ones_too():
    result = queue(QUEUE, [*LIST, ("pop",)], state=True)
    assert result["status"] == "accepted"
    assert result["checks"]["executed"] == len(LIST) + 1


def test_a_difference_is_shrunk_to_the_smallest_list_that_shows_it():
    steps = [("push", 0), ("pop",), ("size",)] * 30 + LIST
    failure = only(queue(QUEUE.replace("pop(0)", "pop()"), steps))["failure"]
    assert failure["operations"] == ["push(2, 3)", "pop()"]
    assert failure["call"] == "pop()" and failure["look"] == "first in, first out"
    assert (failure["expected"], failure["actual"]) == ("2", "3")
    assert failure["expected_drawing"] == "3" and failure["actual_drawing"] == "2"


def test_shrinking_gives_the_same_list_every_time():
    chance = random.Random(3)
    steps = [
        ("push", chance.randrange(9)) if chance.random() < 0.5 else ("pop",)
        for _ in range(400)
    ]
    wrong = QUEUE.replace("self.items.pop(0)", "self.items.pop(len(self.items) > 6)")
    found = [only(queue(wrong, steps))["failure"] for _ in range(2)]
    assert found[0] == found[1]
    assert len(found[0]["operations"]) == 8


def test_shrinking_is_bounded(monkeypatch):
    replays = []
    real = grading._replay
    monkeypatch.setattr(grading, "REPLAY_LIMIT", 20)
    monkeypatch.setattr(
        grading, "_replay", lambda *given: [replays.append(1), real(*given)][1]
    )
    wrong = QUEUE.replace("len(self.items)", "len(self.items) + (len(self.items) > 99)")
    steps = [("push", n) for n in range(120)] + [("size",)]
    failure = only(queue(wrong, steps))["failure"]
    assert failure["call"] == "size()"
    assert len(replays) <= 22


def test_a_slow_shrink_ends_after_its_time(monkeypatch):
    monkeypatch.setattr(grading, "SHRINK_SECONDS", 0.0)
    failure = only(queue(QUEUE.replace("pop(0)", "pop()"), LIST))["failure"]
    assert len(failure["operations"]) == 4  # as it was found


def test_shrinking_goes_on_until_no_step_can_go():
    """Here `a` can only be left out once `b` is, which comes after it."""
    tests = """
class World:
    def __init__(self, wrong): self.wrong, self.seen = wrong, set()
    def a(self): self.seen.add("a")
    def b(self): self.seen.add("b")
    def probe(self): return self.wrong and self.seen != {"b"}
@test("t")
def _(answer, check):
    check.operations(
        [("a",), ("b",), ("probe",)],
        expected=lambda: World(False), actual=lambda: World(True), look="l",
    )
"""
    failure = only(run(RIGHT, tests, checks=3))["failure"]
    assert failure["operations"] == ["probe()"]


def test_the_state_is_compared_after_every_operation():
    wrong = QUEUE.replace("self.items += items", "self.items[:0] = items")
    failure = only(queue(wrong, LIST, state=True))["failure"]
    assert failure["operations"] == ["push(1)", "push(2, 3)"]
    assert failure["expected"] == "afterwards the state [1, 2, 3]"
    assert failure["actual"] == "afterwards the state [2, 3, 1]"


def test_an_error_counts_as_a_result_and_shows_its_line():
    wrong = QUEUE.replace("return len(self.items)", "raise LookupError('no')")
    failure = only(queue(wrong, LIST))["failure"]
    assert failure["operations"] == ["size()"]
    assert failure["expected"] == "0"
    line = "(line 10: raise LookupError('no'))"
    assert failure["actual"] == f"an error: LookupError: no {line}"


def test_results_of_operations_must_be_plain_data_too():
    wrong = ALIKE + QUEUE.replace("return len(self.items)", "return Alike()")
    failure = only(queue(wrong, LIST))["failure"]
    assert failure["actual"] == "an Alike, which is not plain data"


def test_an_answer_cannot_change_the_arguments_of_the_next_replay():
    tests = """
class Model:
    def add(self, items): return len(items)
class Theirs:
    def __init__(self, answer): self.answer = answer
    def add(self, items): return self.answer.f(items)
@test("t")
def _(answer, check):
    check.operations(
        [("add", [1]), ("add", [1, 2])],
        expected=Model, actual=lambda: Theirs(answer), look="l",
    )
"""
    answer = "def f(items):\n    n = len(items)\n    items.clear()\n    return n % 2\n"
    assert only(run(answer, tests, checks=2))["failure"]["operations"] == [
        "add([1, 2])"
    ]


def test_a_failure_is_told_before_it_is_shrunk():
    events: list[dict[str, Any]] = []
    tests = (
        f"{WORLDS}\n@test('t')\ndef _(a, check):\n    operations(a, check, {LIST})\n"
    )
    run(
        QUEUE.replace("pop(0)", "pop()"),
        tests,
        defines=["Queue"],
        announce=events.append,
    )
    found = next(event for event in events if event["event"] == "found")
    assert len(found["failure"]["operations"]) == 4


def test_a_state_that_cannot_be_drawn_leaves_the_picture_out():
    wrong = QUEUE.replace("return len(self.items)", "self.items = None")
    drawing = only(queue(wrong, LIST))["failure"]["actual_drawing"]
    assert drawing.startswith("(cannot be drawn: TypeError")


# pictures


def test_a_tree_is_drawn_with_one_line_a_node():
    tree = {"root": ["a", "b"], "a": ["c"], "b": [], "c": []}
    assert grading.draw_tree("root", tree.get, str.upper).split("\n") == [
        "ROOT",
        "├─ A",
        "│  └─ C",
        "└─ B",
    ]


def test_a_chain_of_any_depth_can_be_drawn():
    below = lambda n: [n + 1] if n < 5000 else []  # noqa: E731 - a tree in a line
    assert len(grading.draw_tree(0, below, str).split("\n")) == 5001


def test_a_table_aligns_its_columns():
    assert grading.draw_table(["page", "is"], [[5, "free"], [10, "in use"]]) == (
        "page  is\n────  ──────\n   5  free\n  10  in use"
    )


# what a run may not change

REPLACING = {
    "len": "import builtins\nbuiltins.len = lambda value: 2",
    "BaseException": "import builtins\nbuiltins.BaseException = ValueError",
    "isinstance": "import builtins\ndel builtins.isinstance",
    "heapq.heappop": "import heapq\nheapq.heappop = min",
    "the module heapq": (
        "import sys, types\nsys.modules['heapq'] = types.ModuleType('heapq')"
    ),
    "grading.Check.equal": "import grading\ngrading.Check.equal = lambda *a, **k: None",
    "grading.canonical": "import grading\ngrading.canonical = lambda value: 0",
    "grading.Check.true": (
        "import grading\ngrading.Check.true.__code__ = (lambda *a, **k: None).__code__"
    ),
    "grading.len": "import grading\ngrading.len = lambda value: 0",
    "grading.Check.__getattribute__": (
        "import grading\ngrading.Check.__getattribute__ = lambda self, name: print"
    ),
    "grading.copied": "import grading\ngrading.copied.__defaults__ = (1,)",
    "random.Random.random": "import random\nrandom.Random.random = lambda self: 0.5",
    "collections.Counter.update": (
        "import collections\ncollections.Counter.update = lambda *a: None"
    ),
    "json.dumps": "import json\njson.dumps = lambda value: ''",
    "_": "import sys\nsys.modules['<tests>']._ = lambda answer, check: None",
}


@pytest.mark.parametrize("name", REPLACING)
def test_what_an_answer_replaces_is_named_and_put_back(name):
    result = run(f"{RIGHT}\n{REPLACING[name]}\n")
    assert result["status"] == "rejected"
    assert f"your answer replaces {name}, which is not its own" in result["message"]
    assert run(RIGHT)["status"] == "accepted"


@pytest.mark.parametrize("name", [n for n in REPLACING if "heapq" not in n])
def test_it_does_not_help_to_replace_it_during_a_test(name):
    body = REPLACING[name].replace("\n", "\n    ")
    result = run(f"def f(value):\n    {body}\n    return 5\n")
    assert result["status"] in ("rejected", "no result")
    assert f"your answer replaces {name}, which" in only(result)["message"]
    assert run(RIGHT)["status"] == "accepted"


# What tests share is found through the tests, if somebody looks for it.
MODEL = "import sys\nmodel = sys.modules['<tests>'].PrefixModel\n"
REPLACING_WORLD = {
    "radix_world.PrefixModel.walk": f"{MODEL}model.walk = lambda *a: []",
    "radix_world.PrefixModel.evict": (
        f"{MODEL}model.evict.__code__ = (lambda self, size: []).__code__"
    ),
    "radix_world.draw_rows": f"{MODEL}model.walk.__globals__['draw_rows'] = print",
    "radix_world.sum": f"{MODEL}model.walk.__globals__['sum'] = len",
    "the module radix_world": (
        "import sys\ndel sys.modules['radix_world']\nimport radix_world"
    ),
}
USES_WORLD = "from radix_world import PrefixModel\n" + CALL


@pytest.mark.parametrize("name", REPLACING_WORLD)
@pytest.mark.parametrize("when", ["loading", "a test"])
def test_an_answer_cannot_replace_what_tests_share(name, when):
    body = REPLACING_WORLD[name].replace("\n", "\n    ")
    answer = f"{RIGHT}\n{REPLACING_WORLD[name]}\n"
    if when == "a test":
        answer = f"def f(value):\n    {body}\n    return 2\n"
    result = run(answer, USES_WORLD)
    assert result["status"] == "rejected"
    said = (result if when == "loading" else only(result))["message"]
    assert f"your answer replaces {name}, which is not its own" in said
    assert run(RIGHT, USES_WORLD)["status"] == "accepted"


def test_replacing_what_tests_share_is_found_before_the_next_check():
    """The first call replaces, the second restores; a check comes in between."""
    answer = f"""
{MODEL}
real = model.walk
def f(value):
    model.walk = real if value > 1 else (lambda *a: [])
    return 2
"""
    tests = """
from radix_world import PrefixModel
@test("t")
def _(answer, check):
    check.equal(answer.f(1), 2, call="f(1)", look="l")
    check.equal(answer.f(2), 2, call="f(2)", look="l")
"""
    test = only(run(answer, tests, checks=2))
    assert "your answer replaces radix_world.PrefixModel.walk" in test["message"]


@pytest.mark.parametrize("name", grading.WORLDS)
@pytest.mark.parametrize("tests", [CALL, USES_WORLD])
def test_an_answer_cannot_import_what_tests_share(name, tests):
    for answer in (
        f"import {name}\n{RIGHT}",
        f"def f(value):\n    import {name}\n    return 2\n",
    ):
        result = run(answer, tests)
        assert result["status"] == "rejected"
        assert f"import of {name} halted" in result["message"] + only(result)["message"]


def test_putting_it_back_in_time_does_not_help():
    """The first call replaces, the second restores; a check comes in between."""
    answer = """
import builtins
real = builtins.type
def f(value):
    builtins.type = real if value > 1 else (lambda value: int)
    return 2
"""
    tests = """
@test("t")
def _(answer, check):
    check.equal(answer.f(1), 2, call="f(1)", look="l")
    check.equal(answer.f(2), 2, call="f(2)", look="l")
"""
    test = only(run(answer, tests, checks=2))
    assert "your answer replaces type" in test["message"]


def test_the_engines_classes_are_guarded_and_its_counters_may_count(engine):
    answer = (
        "from minisgl.pool import Pool\ndef f(value):\n    return Pool().number + 1\n"
    )
    tests = "import minisgl.pool\n" + CALL
    for _ in range(2):  # the counter starts anew in every run
        assert run(answer, tests)["status"] == "accepted"
    patching = "\nimport minisgl.pool\nminisgl.pool.Pool.take = lambda self: 1\n"
    result = run(answer + patching, tests)
    assert "replaces minisgl.pool.Pool.take" in result["message"]
    assert run(answer, tests)["status"] == "accepted"


def test_three_runs_in_one_interpreter_do_not_see_each_other():
    first = f"""
import builtins, heapq, sys, os, random, string
builtins.helper = lambda value: value + 1
builtins.len = lambda value: 3
heapq.heappop = min
string.digits = "none"
sys.modules["left_behind"] = heapq
sys.path.append("/left/behind")
sys.setrecursionlimit(123)
os.environ["LEFT"] = "behind"
os.chdir("/")
random.seed(5)
sys.stdout = None
def helper(value): return value + 1
{RIGHT}
"""
    uses = (
        "import heapq, string\n"
        "def f(value):\n"
        "    heap = [3, 1, 2]\n"
        "    heapq.heapify(heap)\n"
        "    assert heapq.heappop(heap) == 1 and len(heap) == 2\n"
        "    assert string.digits == '0123456789'\n"
        "    return value + 1\n"
    )
    state = random.getstate()
    before = (dict(os.environ), os.getcwd(), sys.getrecursionlimit(), sys.stdout)
    paths = list(sys.path)
    assert run(first)["status"] == "rejected"
    after = (dict(os.environ), os.getcwd(), sys.getrecursionlimit(), sys.stdout)
    assert after == before and sys.path == paths and random.getstate() == state
    assert "left_behind" not in sys.modules and not hasattr(builtins, "helper")
    assert heapq.heappop([1, 2]) == 1 and builtins.len([]) == 0

    assert run(uses)["status"] == "accepted"
    third = only(run("def f(value):\n    return helper(value)\n"))
    assert third["status"] == "error"
    assert "NameError: name 'helper' is not defined" in third["message"]


def test_a_run_leaves_no_module_and_no_source_behind():
    import linecache

    before = dict(sys.modules)
    run("import this_is_no_module_of_python" + RIGHT)
    run("import colorsys\n" + RIGHT)
    assert {n for n in sys.modules if sys.modules[n] is not before.get(n)} == set()
    assert grading.ANSWER_FILE not in linecache.cache


def test_an_answer_that_draws_lots_does_so_alike_every_time():
    answer = "import random\ndef f(value):\n    return random.random()\n"
    first, second = (only(run(answer))["message"] for _ in range(2))
    assert first == second
