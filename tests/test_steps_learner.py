"""The learner's side of the steps tool, on a small course without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from course import learner
from course.cli import main
from course.errors import CourseError
from course.runner import read_tree
from course.skeleton import skeleton, stub_names, unwritten
from course.source import Source
from support.mini_course import COUNTER, EXAMPLES, STORE, STRICT, TESTS, MiniCourse

PACKAGE = Path(__file__).resolve().parent.parent / "minisgl"


@pytest.fixture
def course(tmp_path: Path) -> MiniCourse:
    made = MiniCourse(tmp_path / "a course")
    made.extra["examples/helper.py"] = "def shown(value):\n    return value\n"
    made.extra["tests/conftest.py"] = '"""Shared."""\n'
    made.write()
    return made


@pytest.fixture
def steps(course, monkeypatch, capsys):
    """Run a command: its exit code and everything it printed."""

    def run(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["steps.py", *map(str, words)])
        code = main(course.root)
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    return run


def work(course: MiniCourse, number: int = 2) -> Path:
    return learner.default_workspace(course.runner().course, number)


def write_chapter_2(workspace: Path) -> None:
    (workspace / "minisgl" / "store.py").write_text(STORE)
    (workspace / "minisgl" / "counter.py").write_text(STRICT)


# the whole walk


def test_a_learner_starts_fails_gets_help_passes_and_goes_on(course, steps):
    code, shown = steps("start", 2)
    workspace = work(course)
    assert code == 0 and f"Chapter 2 is ready in {workspace}" in shown

    code, shown = steps("grade", 2)
    assert code == 1
    assert "ok      01 The counter: 2 tests" in shown
    assert "FAIL    a counter is kept by name" in shown
    first = "tests/test_ch02_store.py::test_a_counter_is_kept_by_name"
    assert f"first failure: {first}" in shown
    assert "NotImplementedError: chapter 2: Store.__init__" in shown
    assert "still to write: store.Store.__init__, store.Store.get" in shown
    assert "help: tools/steps.py hint 2 store.Store.get" in shown

    code, shown = steps("hint", 2, "Store.get")
    assert code == 0 and "hint 1 of 3" in shown and "What is kept?" in shown
    code, shown = steps("solution", 2, "Store.get")
    assert code == 0 and "self.counters.setdefault(name, Counter())" in shown

    write_chapter_2(workspace)
    code, shown = steps("grade", 2, "--diff")
    assert code == 0
    assert "ok      a negative count is refused" in shown
    assert "Your package equals the course's." in shown
    assert f"tools/steps.py start 3 --from '{workspace}'" in shown

    code, shown = steps("start", 3, "--from", workspace)
    assert code == 0, shown
    assert steps("grade", 3)[0] == 1
    (work(course, 3) / "minisgl" / "report.py").write_text(
        course.stages[2]["minisgl/report.py"]
    )
    code, shown = steps("grade", 3)
    assert code == 0 and "That was the last chapter there is." in shown


def test_a_workspace_has_what_a_chapter_needs_and_nothing_that_gives_it_away(
    course, steps
):
    steps("start", 2)
    files = read_tree(work(course))
    assert sorted(files) == [
        "README.md",
        "examples/ch02_store.out",
        "examples/ch02_store.py",
        "examples/helper.py",
        "minisgl/__init__.py",
        "minisgl/counter.py",
        "minisgl/store.py",
        "pytest.ini",
        "tests/conftest.py",
        "tests/test_ch02_store.py",
    ]
    assert files["tests/test_ch02_store.py"].decode() == TESTS[1]
    assert files["examples/ch02_store.py"].decode() == EXAMPLES[1][0]
    assert b"setdefault" not in files["minisgl/store.py"]
    assert b"a comment that tells how" not in files["minisgl/store.py"]
    assert b"negative" not in files["minisgl/counter.py"]


def test_the_readme_says_what_to_write_in_which_order(course, steps):
    steps("start", 2)
    lines = (work(course) / "README.md").read_text().splitlines()
    assert lines[0] == "# Chapter 2: The store"
    assert lines.index("1. `store.Store.get` in `minisgl/store.py`") < lines.index(
        "2. `counter.Counter.add` in `minisgl/counter.py`, there already: the chapter "
        "changes it"
    )
    assert "- `store.Store.__init__` in `minisgl/store.py`" in lines
    assert "    tools/steps.py grade 2" in lines


def test_the_commands_of_the_readme_run_the_learners_own_package(course, steps):
    steps("start", 2)
    workspace = work(course)
    write_chapter_2(workspace)
    (workspace / "minisgl" / "__init__.py").write_text("print('mine')\n")
    text = (workspace / "README.md").read_text()
    example, tests = [line for line in text.splitlines() if sys.executable in line]
    outputs = [
        subprocess.run(
            command, shell=True, cwd=workspace, capture_output=True, text=True
        )
        for command in (example, tests)
    ]
    assert outputs[0].stdout == "mine\n1\n"
    assert "2 passed" in outputs[1].stdout


def test_a_workspace_may_be_anywhere(course, steps, tmp_path):
    place = tmp_path / "my own place"
    assert steps("start", 2, "--to", place)[0] == 0
    assert f"grade 2 '{place}'" in (place / "README.md").read_text()
    code, shown = steps("grade", 2, place)
    assert code == 1 and f"write on, then tools/steps.py grade 2 '{place}'" in shown


@pytest.mark.parametrize("kind", ["a file in it", "a file in its place"])
def test_a_learners_work_is_never_overwritten(course, steps, tmp_path, kind):
    place = tmp_path / "mine"
    if kind == "a file in it":
        place.mkdir()
    kept = place / "notes" if place.is_dir() else place
    kept.write_text("mine")
    code, shown = steps("start", 2, "--to", place)
    assert code == 2
    assert f"{place} is not empty" in shown
    assert f"tools/steps.py grade 2 {place} tests it" in shown
    with pytest.raises(CourseError, match="is not empty"):
        learner.start(course.runner(), 2, place)
    assert kept.read_text() == "mine"
    assert [p for p in tmp_path.iterdir() if p.name.startswith(".start")] == []


def test_an_empty_folder_is_taken(course, steps, tmp_path):
    (tmp_path / "empty").mkdir()
    assert steps("start", 1, "--to", tmp_path / "empty")[0] == 0
    text = (tmp_path / "empty" / "minisgl" / "counter.py").read_text()
    assert 'raise NotImplementedError("chapter 1: Counter.add")' in text


def test_wrong_use_says_what_to_do(course, steps, tmp_path):
    code, shown = steps("grade", 2)
    assert code == 2 and "next: tools/steps.py start 2" in shown
    code, shown = steps("grade", 2, tmp_path)
    assert code == 2 and "has no minisgl folder" in shown
    code, shown = steps("start", 9)
    assert code == 2 and "chapters that exist: 1, 2, 3" in shown


# grading cannot be talked round


FORGED = "def pytest_collection_modifyitems(items):\n    items.clear()\n"
FINE = "def test_fine():\n    pass\n"
LEAVE = "import os\n\nos._exit(0)\n"
# none of these is read when a workspace is graded
EXTRA = {
    "conftest.py": FORGED,
    "tests/conftest.py": FORGED,
    "minisgl/conftest.py": FORGED,
    "pytest.ini": "[pytest]\naddopts = --collect-only\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--collect-only'\n",
    "sitecustomize.py": LEAVE,
    "usercustomize.py": LEAVE,
    "pytest.py": "def main(*given, **named):\n    return 0\n",
    "tests/test_ch02_store.py": FINE,
    "test_ch02_store.py": FINE,
    "minisgl/test_ch02_store.py": FINE,
}


def test_extra_files_in_a_workspace_change_nothing(course, steps):
    runner = course.runner()
    workspace = learner.start(runner, 2, work(course))
    for path, text in EXTRA.items():
        (workspace / path).write_text(text)
    grade = learner.grade(runner, 2, learner.read_workspace(workspace), timeout=60)
    assert [(test.id.partition("::")[2], test.outcome) for test in grade.tests] == [
        ("test_a_counter_starts_at_nothing", "passed"),
        ("test_counts_add_up", "passed"),
        ("test_a_counter_is_kept_by_name", "failed"),
        ("test_a_negative_count_is_refused", "failed"),
    ]
    write_chapter_2(workspace)
    assert steps("grade", 2)[0] == 0


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("__init__.py", LEAVE, "the tests stopped before their end, exit status 0"),
        ("__init__.py", "raise SystemExit(0)\n", "the tests stopped before their end"),
        (
            "store.py",
            "import unittest\n\nraise unittest.SkipTest('later')\n",
            "failed: tests/test_ch02_store.py",
        ),
        (
            "store.py",
            "import pytest\n\n\nclass Store:\n"
            "    def __init__(self):\n        pytest.skip('later')\n",
            "2 failed",
        ),
    ],
    ids=["leaves", "exits", "skips a file", "skips a test"],
)
def test_a_package_cannot_talk_its_way_out_of_the_tests(course, path, text, problem):
    runner = course.runner()
    workspace = learner.start(runner, 2, work(course))
    (workspace / "minisgl" / path).write_text(text)
    mine = learner.read_workspace(workspace)
    result = learner.grade(runner, 2, mine, timeout=60).result
    assert not result.ok
    assert result.problem.startswith(problem)


def test_a_test_file_deleted_from_the_workspace_is_still_run(course, steps):
    steps("start", 2)
    (work(course) / "tests" / "test_ch02_store.py").unlink()
    code, shown = steps("grade", 2)
    assert code == 1 and "FAIL    a negative count is refused" in shown


def test_losing_an_earlier_chapter_fails_a_later_one(course, steps):
    steps("start", 2)
    write_chapter_2(work(course))
    broken = STRICT.replace("self.total += count", "self.total = count")
    (work(course) / "minisgl" / "counter.py").write_text(broken)
    code, shown = steps("grade", 2)
    assert code == 1
    assert "first failure: tests/test_ch01_counter.py::test_counts_add_up" in shown


def test_a_syntax_error_is_shown_as_the_first_failure(course, steps):
    steps("start", 2)
    (work(course) / "minisgl" / "store.py").write_text("class Store\n")
    code, shown = steps("grade", 2)
    assert code == 1
    assert "first failure: tests/test_ch02_store.py" in shown
    assert "SyntaxError: expected ':'" in shown


def test_a_tree_that_does_not_pass_is_not_built_upon(course, steps):
    steps("start", 2)
    code, shown = steps("start", 3, "--from", work(course))
    assert code == 1
    assert "does not pass chapter 2 yet: 2 failed" in shown
    assert "next: tools/steps.py grade 2" in shown
    assert not work(course, 3).exists()


# hints and solutions


def test_hints_come_one_by_one_and_are_remembered(course, steps):
    seen = [steps("hint", 2, "get")[1] for _ in range(4)]
    assert ["What is kept?" in s for s in seen] == [True] * 4
    assert ["What if it is new?" in s for s in seen] == [False, True, True, True]
    assert ["setdefault?" in s for s in seen] == [False, False, True, True]
    assert "more: tools/steps.py hint 2 store.Store.get" in seen[0]
    assert "more: tools/steps.py solution 2 store.Store.get" in seen[2]


def test_a_chapter_without_hints_says_so(course, steps):
    (course.root / "steps" / "hints" / "01_counter.toml").unlink()
    code, shown = steps("hint", 1, "add")
    assert code == 2 and "chapter 1 has no hints yet" in shown


@pytest.mark.parametrize("text", ["not toml", '"store.Store.get" = "one"\n'])
def test_a_broken_file_of_hints_is_named(course, steps, text):
    course.put("steps/hints/02_store.toml", text)
    code, shown = steps("hint", 2, "get")
    assert code == 2 and "steps/hints/02_store.toml" in shown


def test_a_solution_shows_what_the_chapter_changed(course, steps):
    code, shown = steps("solution", 2, "counter.Counter.add")
    assert code == 0
    assert "+    if count < 0:" in shown
    assert "+" not in steps("solution", 2, "Store")[1]  # new: nothing to compare with


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("Store.gte", "store.Store.get"),
        ("Counter.ad", "counter.Counter.add"),
        ("stor", "store.Store"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(course, steps, name, nearest):
    code, shown = steps("solution", 2, name)
    assert code == 2
    assert f"there is no {name} here" in shown
    assert nearest in shown.splitlines()[-1]


def test_a_name_that_fits_several_is_answered_with_all(course):
    known = ["a.A.run", "b.B.run", "b.C.stop"]
    with pytest.raises(CourseError, match="several") as error:
        learner.resolve("run", known, "there are")
    assert error.value.hint == "one of: a.A.run, b.B.run"
    assert learner.resolve("stop", known, "there are") == "b.C.stop"


# skeletons


def made(new: str, old: str | None = None, mine: str | None = None) -> str:
    """The skeleton of chapter 8 of one file."""

    def files(text: str | None) -> dict[str, bytes]:
        return {"minisgl/a.py": text.encode()} if text is not None else {}

    own = None if mine is None else files(mine)
    return skeleton(files(new), files(old), 8, own)["minisgl/a.py"].decode()


def test_a_new_file_keeps_all_but_the_bodies():
    new = '''\
"""A module."""

from dataclasses import dataclass

LIMIT = 3  # kept


@dataclass(frozen=True)
class Point:
    """Two numbers."""

    x: int = 0  # across
    y: int = 0

    @property
    def norm(
        self,  # a point
        scale: dict[str, int] = {"a": 1},
    ) -> int:
        """How far.

        Second line.
        """
        # tells how
        total = self.x + self.y

        return total
        # and this too

    # about `flip`
    def flip(self): return Point(self.y, self.x)

    async def later(self) -> None: ...

    def nothing(self) -> None:
        """Only this."""


def run() -> int:
    return LIMIT
'''
    assert (
        made(new)
        == '''\
"""A module."""

from dataclasses import dataclass

LIMIT = 3  # kept


@dataclass(frozen=True)
class Point:
    """Two numbers."""

    x: int = 0  # across
    y: int = 0

    @property
    def norm(
        self,  # a point
        scale: dict[str, int] = {"a": 1},
    ) -> int:
        """How far.

        Second line.
        """
        raise NotImplementedError("chapter 8: Point.norm")

    # about `flip`
    def flip(self):
        raise NotImplementedError("chapter 8: Point.flip")

    async def later(self) -> None: ...

    def nothing(self) -> None:
        """Only this."""


def run() -> int:
    raise NotImplementedError("chapter 8: run")
'''
    )


def test_abstract_methods_are_kept():
    new = '''\
from abc import ABC, abstractmethod


class Base(ABC):
    @abstractmethod
    def match(self) -> int:
        """What is promised."""

    @abstractmethod
    def insert(self) -> int:
        raise NotImplementedError
'''
    assert made(new) == new


def test_a_changed_function_keeps_its_old_body_below_a_comment():
    old = '''\
class A:
    def f(self, n):
        """Old."""
        return n  # old

    def g(self):
        return 1
'''
    new = '''\
from os import path


class A:
    def f(self, n):
        """New."""
        return path.join(n)

    def g(self):
        return 1

    def h(self):
        return 2
'''
    assert (
        made(new, old)
        == '''\
from os import path


class A:
    # Chapter 8 changes this function.
    def f(self, n):
        """New."""
        return n  # old

    def g(self):
        return 1

    def h(self):
        raise NotImplementedError("chapter 8: A.h")
'''
    )


def test_a_changed_signature_is_shown_in_the_comment():
    old = "def f(n):\n    return n\n"
    new = "def f(n, *, m: int = 0) -> int:\n    return n + m\n"
    assert made(new, old) == (
        "# Chapter 8 changes this function. Its signature there:\n"
        "#     def f(n, *, m: int = 0) -> int:\n"
        "def f(n):\n    return n\n"
    )


def test_old_bodies_keep_what_they_need_of_what_the_chapter_removes():
    old = """\
import json
from os import path

LIMIT = 1


def helper():
    return json.dumps(LIMIT)


def unused():
    return 0


def f():
    return helper()
"""
    text = made("import sys\n\n\ndef f():\n    return 2\n", old)
    assert "import json" in text and "path" not in text
    assert "# Chapter 8 removes this; older code here uses it.\nLIMIT = 1\n" in text
    assert "unused" not in text
    space: dict[str, object] = {}
    exec(text, space)
    assert space["f"]() == "1"  # type: ignore[operator]


def test_a_file_that_the_chapter_deletes_is_gone():
    old = {"minisgl/a.py": b"x = 1\n", "minisgl/b.py": b"y = 1\n"}
    new = {"minisgl/b.py": b"y = 1\n", "minisgl/data.txt": b"text"}
    assert skeleton(new, old, 8) == {
        "minisgl/b.py": b"y = 1\n",
        "minisgl/data.txt": b"text",
    }


def test_what_runs_on_import_keeps_its_body():
    """A module must import before anything is written in it."""
    new = """\
KINDS = {}


def register(name):
    def add(kind):
        KINDS[_tidy(name)] = kind
        return kind

    return add


def _tidy(name):
    return name.lower()


class Registry:
    def __init__(self):
        self.found = self._make()

    def _make(self):
        return {}

    def get(self):
        return self.found


REGISTRY = Registry()


@register("A")
class A:
    def run(self, start=_tidy("X")):
        return start
"""
    text = made(new)
    stubs = unwritten({"minisgl/a.py": text.encode()}, 8)
    assert stubs == ["a.Registry.get", "a.A.run"]
    space: dict[str, object] = {}
    exec(text, space)
    assert list(space["KINDS"]) == ["a"]  # type: ignore[call-overload]


def test_a_learners_own_code_is_carried_into_the_next_chapter():
    old = (
        "class A:\n    def f(self):\n        return 1\n\n"
        "    def g(self):\n        return 2\n"
    )
    new = old.replace("return 2", "return 3") + "\n    def h(self):\n        return 4\n"
    mine = """\
from math import tau


class A:
    spare = tau

    def f(self):
        return 1 * self._one()

    def g(self):
        return 1 + helper()

    def _one(self):
        return 1


def helper():
    return 1
"""
    text = made(new, old, mine)
    assert 'raise NotImplementedError("chapter 8: A.h")' in text
    assert "    # Chapter 8 changes this function.\n    def g(self):\n" in text
    space: dict[str, object] = {}
    exec(text, space)
    a = space["A"]()  # type: ignore[operator]
    assert (a.f(), a.g(), round(a.spare)) == (1, 2, 6)
    assert "removes" not in text


def test_a_file_that_only_the_learner_has_is_kept():
    old, new = {"minisgl/a.py": b"x = 1\n"}, {"minisgl/a.py": b"x = 2\n"}
    mine = {**old, "minisgl/own.py": b"z = 1\n"}
    assert skeleton(new, old, 8, mine) == {**new, "minisgl/own.py": b"z = 1\n"}


def test_names_of_what_is_added_and_changed_are_as_in_the_manifest():
    old = {"minisgl/counter.py": COUNTER.encode()}
    new = {
        "minisgl/counter.py": STRICT.encode(),
        "minisgl/deep/__init__.py": b"def f():\n    return 1\n",
    }
    assert stub_names(new, old, 8) == (["deep.f"], ["counter.Counter.add"])


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_every_skeleton_of_the_package_is_python_with_the_same_definitions(path):
    text = path.read_text()
    stubs = Source(made(text))
    names = [d.name for d in Source(text).definitions]
    assert [d.name for d in stubs.definitions] == names
    signatures = [d.signature for d in Source(text).definitions]
    assert [d.signature for d in stubs.definitions] == signatures
