"""`practice/judge.py verify` finds every kind of bad problem."""

from __future__ import annotations

import pytest
from support.practice_course import PracticeCourse

from practice import verify
from practice.cli import main
from practice.sandbox import grade


@pytest.fixture
def course(tmp_path) -> PracticeCourse:
    return PracticeCourse(tmp_path / "a course")


def faults(course: PracticeCourse, slug: str = "free-list") -> dict[str, str]:
    """The faults of one problem, by the answer they are about."""
    found = verify.run(course.root, [course.problem(slug)], lambda outcome: None)
    return {outcome.case.name: outcome.fault for outcome in found if outcome.fault}


def test_good_problems_have_no_fault(course, capsys):
    assert main(course.root, ["verify"]) == 0
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines()]
    count = len(list(verify.cases(course.problem("free-list"))))
    assert ["free-list", str(count), "none"] in rows
    assert "answers fare as they must" in said


def test_what_was_proved_is_tried_again_only_when_it_changes(course, capsys):
    def tried() -> list[list[str]]:
        assert main(course.root, ["verify"]) == 0
        said = capsys.readouterr().out
        return [line.split()[:2] for line in said.splitlines()[1:3]]

    first = tried()
    assert [row[0] for row in first] == ["counter-add", "free-list"]
    assert "cached" not in (first[0][1], first[1][1])
    assert tried() == [["counter-add", "cached"], ["free-list", "cached"]]
    course.edit("free-list/tests.py", "Random(7)", "Random(9)")
    assert tried() == [["counter-add", "cached"], first[1]]


def test_a_problem_with_a_fault_is_not_remembered(course):
    course.edit("free-list/problem.md", "checks = 26", "checks = 27")
    assert faults(course) and faults(course)


def test_a_fault_is_told_and_fails_the_command(course, capsys):
    course.edit("free-list/problem.md", "checks = 26", "checks = 27")
    assert main(course.root, ["verify", "free-list"]) == 1
    said = capsys.readouterr()
    assert "free-list, solution: 26 checks were executed, and 27" in said.out
    assert "(checks = 26 in problem.md?)" in said.out
    assert (
        "1 of " in said.err and "next: practice/judge.py verify free-list" in said.err
    )
    assert main(course.root, ["verify", "counter-add"]) == 0


def test_a_solution_that_is_wrong_is_a_fault(course):
    course.edit("free-list/solution.py", "popleft()", "pop()")
    found = faults(course)
    assert set(found) == {"solution"} and "rejected" in found["solution"]


def test_a_wrong_answer_that_is_accepted_is_a_fault(course):
    wrong = course.root / "practice/problems/free-list/wrong/lifo.py"
    wrong.write_text(course.problem("free-list").solution, encoding="utf-8")
    assert faults(course) == {"wrong/lifo": "is accepted"}


def test_a_wrong_answer_with_another_message_is_a_fault(course):
    course.edit("free-list/problem.md", "oldest free page first", "newest page")
    (fault,) = faults(course).values()
    assert fault.startswith("does not say 'newest page', but: 2 of 3 tests pass")
    assert "oldest free page first" in fault


def test_a_starter_that_is_accepted_is_a_fault(course):
    starter = course.root / "practice/problems/free-list/starter.py"
    starter.write_text(course.problem("free-list").solution, encoding="utf-8")
    found = faults(course)
    assert found["starter"] == "is accepted"


WEAK = """
from grading import test

@test("a list can be made")
def _(answer, check):
    {}
"""


@pytest.mark.parametrize(
    ("body", "accepted"),
    [
        ("answer.FreeList(2)\n    check.equal(1, 1, call='c', look='l')", "starter"),
        (
            "got = answer.FreeList(2).take()\n"
            "    check.true(got == 0, call='c', expected=0, actual='?', look='l')",
            "agrees with everything",
        ),
        (
            "got = answer.FreeList(2).give(0)\n"
            "    check.equal(got, None, call='c', look='l')",
            "returns None",
        ),
        (
            "got = answer.FreeList(2).give(7)\n"
            "    check.equal(got, 7, call='c', look='l')",
            "returns its argument",
        ),
        (
            "got = answer.FreeList(2).take()\n"
            "    check.equal(got, 0, call='c', look='l')",
            "returns 0",
        ),
        (
            "try:\n        answer.FreeList(2).take()\n"
            "    except BaseException: pass\n"
            "    check.equal(1, 1, call='c', look='l')",
            "raise SystemExit(0) inside",
        ),
    ],
)
def test_tests_that_are_too_weak_are_found_out(course, body, accepted):
    tests = course.root / "practice/problems/free-list/tests.py"
    tests.write_text(WEAK.format(body), encoding="utf-8")
    course.edit("free-list/problem.md", "checks = 26", "checks = 1")
    if accepted == "starter":  # the starter of this problem raises; one that does not
        course.edit("free-list/starter.py", "raise NotImpl", "return  # NotImpl")
    assert faults(course)[accepted] == "is accepted"


def test_a_solution_without_a_place_in_the_package_is_a_fault(course):
    """A module that needs torch is not in an answer's reach, but it must be there."""
    course.edit("counter-add/problem.md", "counter.Counter.add", "absent.Counter.add")
    assert faults(course, "counter-add") == {
        "solution": "cannot be applied: your workspace has no module that "
        "absent.Counter.add could be in"
    }
    course.edit("counter-add/problem.md", "absent.Counter.add", "counter.Counter.gone")
    assert "solution" in faults(course, "counter-add")


def test_every_canary_is_rejected_for_what_it_does(course):
    """A canary that is rejected for a slip of its own would prove nothing."""
    problem = course.problem("free-list")
    messages = {
        "starter": "not written yet",
        "empty file": "your answer is empty",
        "all in comments": "your answer is empty",
        "returns None": "expected [0, 1, 2, None]; got [None, None, None, None]",
        "returns 0": "expected [0, 1, 2, None]; got [0, 0, 0, 0]",
        "agrees with everything": "got a _Agrees at [0]",
        "prints a result": "not written yet",
        "writes to every channel": "something else wrote to it",
        "sys.exit(0) at once": "your answer ends the program",
        "os._exit(0) at once": "ended the process, with exit status 0",
        "raise SystemExit(0) inside": "your answer ends the program",
        "__import__('os')._exit(0) inside": "ended the process, with exit status 0",
        "replaces builtins": "replaces len",
        "replaces heapq": "replaces heapq.heappop",
        "replaces grading": "replaces grading.Check.equal",
        "endless loop": "did not end within 0.5 s",
    }
    seen = {}
    for case in verify.cases(problem):
        if case.name in messages:
            result = grade(course.root, problem, case.answer, seconds=case.seconds)
            seen[case.name] = verify.said(result)
    assert seen.keys() == messages.keys()
    for name, message in messages.items():
        assert message in seen[name], f"{name}: {seen[name]}"


def test_the_forged_result_is_printed_at_all(course):
    problem = course.problem("free-list")
    (case,) = (c for c in verify.cases(problem) if c.name == "prints a result")
    result = grade(course.root, problem, case.answer)
    assert '"status": "accepted"' in result["output"]


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("None", "return None"),
        ("0", "return 0"),
        ("its argument", "return page"),
    ],
)
def test_empty_bodies_return_something_and_full_ones_stay(what, body):
    source = (
        "class A:\n    def __init__(self, n):\n        raise NotImplementedError('n')\n"
        "    def f(self, page):\n        'Doc.'\n        raise NotImplementedError\n"
        "    def given(self):\n        return 5\n"
    )
    text = verify.returning(source, what)
    assert body in text and "return 5" in text and "NotImpl" not in text
    compile(text, "t", "exec")
