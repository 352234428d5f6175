"""The commands of practice/judge.py: what they say, write, and refuse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from course import learner
from support.practice_course import PracticeCourse

from practice.cli import main
from practice.sandbox import grade

REPO = Path(__file__).resolve().parents[1]


COMMANDS = ["list", "start", "check", "hint", "solution", "apply", "verify", "progress"]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> PracticeCourse:
    return PracticeCourse(tmp_path_factory.mktemp("practice") / "a course")


@pytest.fixture
def course(made):
    """The course, with nothing of a learner in it."""
    subprocess.run(["rm", "-rf", made.root / "learn"], check=True)
    return made


@pytest.fixture
def judge(course, capsys):
    """Run a command: its exit code and everything it printed."""

    def run(*words: object) -> tuple[int, str]:
        code = main(course.root, [*map(str, words)])
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out + said.err

    return run


def mine(course: PracticeCourse, slug: str = "free-list") -> Path:
    return course.root / "learn" / "practice" / f"{slug}.py"


def write(course: PracticeCourse, slug: str, text: str) -> Path:
    path = mine(course, slug)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def progress(course: PracticeCourse) -> Any:
    path = course.root / "learn" / "practice" / "progress.json"
    return json.loads(path.read_text(encoding="utf-8"))


# the walk of a learner


def test_a_learner_starts_fails_gets_hints_passes_and_sees_the_solution(course, judge):
    problem = course.problem("free-list")
    code, said = judge("list")
    assert code == 0
    rows = [line.split() for line in said.splitlines()]
    assert rows[1][:3] == ["counter-add", "02", "*"]  # in the order of the problems
    assert rows[2][:3] == ["free-list", "03", "*"]

    code, said = judge("start", "free-list")
    assert code == 0 and "hands pages out one by one" in said
    assert mine(course).read_text(encoding="utf-8") == problem.starter

    code, said = judge("check", "free-list")
    assert code == 1
    assert "FAIL    hands out pages in order" in said
    assert "called    FreeList(3)" in said
    assert "not written yet: NotImplementedError: free-list: __init__" in said
    assert "next: practice/judge.py hint free-list" in said

    for number in (1, 2, 3, 3):
        code, said = judge("hint", "free-list")
        assert code == 0 and f"hint {number} of 3" in said
        assert problem.hints[number - 1] in said
        assert number == 3 or problem.hints[number] not in said

    code, said = judge("solution", "free-list")
    assert code == 2 and "after 3 tries; this was try 1" in said

    mine(course).write_text(problem.wrong_answers["lifo"], encoding="utf-8")
    code, said = judge("check", "free-list")
    assert code == 1
    shown = [line.strip() for line in said.splitlines()]
    at = shown.index("after")
    assert shown[at : at + 7] == [
        "after",
        "1  take()",
        "2  give(0)",
        "called    take()",
        "expected  1",
        "got       0",
        "look at   oldest free page first",
    ]
    assert "expected      yours" in shown and "2  free" in shown
    assert judge("check", "free-list")[0] == 1
    code, said = judge("solution", "free-list")
    assert code == 0 and "-        self.free = list(range(num_pages))[::-1]" in said
    assert "+        self.free = deque(range(num_pages))" in said

    mine(course).write_text(problem.solution, encoding="utf-8")
    code, said = judge("check", "free-list")
    assert code == 0 and "Accepted: all 3 tests pass, 26 checks" in said
    assert "ok      hands out pages in order" in said
    assert judge("solution", "free-list")[1].startswith("Your answer is the solution")
    assert progress(course)["problems"]["free-list"] == {
        "accepted": True,
        "answer": problem.solution,
        "tries": 4,
        "hints": 3,
    }
    code, said = judge("progress")
    assert code == 0 and "1 of 2 problems accepted" in said
    assert "next: practice/judge.py start counter-add" in said
    assert judge("list")[1].splitlines()[2].split()[-1] == "accepted"


def test_start_never_writes_over_an_answer(course, judge):
    judge("start", "free-list")
    mine(course).write_text("# mine\n", encoding="utf-8")
    code, said = judge("start", "free-list")
    assert code == 2 and "nothing was changed" in said
    assert mine(course).read_text(encoding="utf-8") == "# mine\n"


def test_an_accepted_answer_stays_the_answer_until_a_better_one(course, judge):
    problem = course.problem("free-list")
    write(course, "free-list", problem.solution)
    assert judge("check", "free-list")[0] == 0
    write(course, "free-list", problem.starter)
    assert judge("check", "free-list")[0] == 1
    entry = progress(course)["problems"]["free-list"]
    assert entry["accepted"] and entry["answer"] == problem.solution
    write(course, "free-list", problem.solution + "\n# shorter\n")
    assert judge("check", "free-list")[0] == 0
    assert progress(course)["problems"]["free-list"]["answer"].endswith("# shorter\n")


def test_check_takes_another_file_and_only_that_one(course, judge, tmp_path):
    problem = course.problem("free-list")
    write(course, "free-list", problem.starter)
    file = tmp_path / "my answer.py"
    file.write_text(problem.solution, encoding="utf-8")
    (tmp_path / "conftest.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "grading.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --version\n")
    assert judge("check", "free-list", file)[0] == 0
    file.write_text(problem.starter, encoding="utf-8")
    assert judge("check", "free-list", file)[0] == 1


def test_check_all_takes_what_was_started(course, judge):
    code, said = judge("check", "--all")
    assert code == 2 and "there is no answer in learn/practice" in said
    write(course, "free-list", course.problem("free-list").solution)
    write(course, "counter-add", course.problem("counter-add").starter)
    code, said = judge("check", "--all")
    assert code == 1
    assert "ok   free-list: all 3 tests pass" in said
    assert "FAIL counter-add: 0 of 2 tests pass" in said
    assert "1 of 2 answers are not accepted" in said
    write(course, "counter-add", course.problem("counter-add").solution)
    assert judge("check", "--all")[0] == 0


def test_json_is_the_result_and_nothing_else(course, judge, capsys):
    problem = course.problem("free-list")
    write(course, "free-list", problem.wrong_answers["lifo"])
    code, said = judge("check", "free-list", "--json")
    assert code == 1
    result = json.loads(said)
    again = grade(course.root, problem, problem.wrong_answers["lifo"])
    for one in (result, again):
        for test in one["tests"]:
            del test["time_ms"]
    assert result == again
    write(course, "free-list", problem.solution)
    code, said = judge("check", "free-list", "--json")
    assert code == 0 and json.loads(said)["status"] == "accepted"


def test_a_hang_is_named_and_the_limit_is_the_learners(course, judge):
    endless = course.problem("free-list").solution.replace(
        "page = self.free.popleft()", "while True: print('round')"
    )
    write(course, "free-list", endless)
    code, said = judge("check", "free-list", "--timeout", "0.3")
    assert code == 1
    assert "TIME    hands out pages in order" in said
    assert "not run refuses a page that is not out" in said
    assert "did not end within 0.3 s" in said
    assert "your answer printed:" in said and "round" in said


# hostile input


def test_an_answer_that_is_no_file_of_python_is_refused(course, judge, tmp_path):
    big, binary, latin = (tmp_path / f"{n}.py" for n in ("big", "binary", "latin"))
    big.write_text("#" * (300 << 10))
    binary.write_bytes(b"\x7fELF\0\0")
    latin.write_bytes(b"def f():\n    return '\xe9'\n")
    for path, message in [
        (tmp_path / "absent.py", f"there is no {tmp_path / 'absent.py'}"),
        (tmp_path, f"{tmp_path} is not a file"),
        (big, "has 307,200 bytes; an answer has at most 262,144"),
        (binary, "is binary, not Python"),
        (latin, "line 2, is not UTF-8"),
        (Path("/dev/zero"), "/dev/zero is not a file"),
    ]:
        code, said = judge("check", "free-list", path)
        assert code == 2 and message in said, said
        assert "\nnext: " in said
    assert not (course.root / "learn" / "practice" / "progress.json").exists()


def test_a_syntax_error_is_shown_with_its_line(course, judge):
    write(course, "free-list", "class FreeList:\n    def take(self)\n        pass\n")
    code, said = judge("check", "free-list")
    assert code == 1
    assert "your answer is not Python in line 2: expected ':'" in said
    assert "def take(self)" in said and "^" in said


def test_windows_line_ends_and_a_byte_order_mark_are_fine(course, judge, tmp_path):
    solution = course.problem("free-list").solution
    file = tmp_path / "windows.py"
    file.write_bytes(b"\xef\xbb\xbf" + solution.replace("\n", "\r\n").encode())
    assert judge("check", "free-list", file)[0] == 0


def test_an_unknown_problem_names_the_nearest(judge):
    for command in ("start", "check", "hint", "solution", "apply", "verify"):
        code, said = judge(command, "freelist")
        assert code == 2
        assert "there is no problem 'freelist'; did you mean free-list?" in said
    code, said = judge("start", "../../etc")
    assert code == 2 and "there is no problem '../../etc'" in said
    code, said = judge("start", "zzz")
    assert "did you mean" not in said and "practice/judge.py list" in said


def test_check_wants_one_problem_or_all(judge):
    for words in (["check"], ["check", "free-list", "--all"]):
        code, said = judge(*words)
        assert code == 2 and "check takes one problem, or --all" in said


def test_no_problems_is_an_error_and_no_pass(tmp_path, capsys):
    for command in (["list"], ["verify"], ["check", "--all"], ["progress"]):
        assert main(tmp_path, command) == 2
        assert "there are no problems in" in capsys.readouterr().err


def test_every_command_has_help_with_an_example(judge):
    code, said = judge("--help")
    assert code == 0 and "practice/judge.py start page-allocator" in said
    for command in COMMANDS:
        assert f" {command} " in said
        code, text = judge(command, "--help")
        assert code == 0
        assert command == "list" or f"practice/judge.py {command}" in text
    assert judge("no-such-command")[0] == 2


# broken problems


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("+++\ntitle", "title", "must begin with TOML between +++ lines"),
        ("order = 10", "order = ", "problem.md: Invalid"),
        ("order = 10", "", "order must be given, as int"),
        ("order = 10", "order = true", "order must be given, as int"),
        ("order = 10", "order = 10\nextra = 1", "unknown key extra"),
        ("difficulty = 1", "difficulty = 4", "difficulty must be 1, 2 or 3"),
        ('["FreeList"]', "[]", "defines names nothing"),
        ('["FreeList"]', '["Free List"]', "'Free List' is not a name"),
        ('["FreeList"]', "[1]", "defines must be a list of texts"),
        ("checks = 26", "checks = 0", "checks must be 1 or more"),
        ('    "Which page must come out next?",\n', "", "2 hints; it must be 3"),
        ("[wrong.lifo]", "[wrong.other]", "differ: lifo, other"),
        ('message = "oldest free page first"', "", "[wrong.lifo] needs a message"),
    ],
)
def test_a_broken_front_matter_names_the_problem_and_the_key(
    tmp_path, capsys, old, new, message
):
    course = PracticeCourse(tmp_path / "c")
    course.edit("free-list/problem.md", old, new)
    assert main(course.root, ["list"]) == 2
    said = capsys.readouterr().err
    assert "problem free-list: " in said and message in said
    assert "next: correct practice/problems/free-list" in said


def test_a_missing_file_of_a_problem_is_named(tmp_path, capsys):
    course = PracticeCourse(tmp_path / "c")
    for name in ("wrong/lifo.py", "starter.py", "problem.md"):
        file = course.root / "practice/problems/free-list" / name
        text = file.read_bytes()
        file.unlink()
        assert main(course.root, ["list"]) == 2
        assert Path(name).stem in capsys.readouterr().err
        file.write_bytes(text)
    assert main(course.root, ["list"]) == 0


# progress


def browser_file(path: Path, **problems: dict[str, Any]) -> Path:
    data = {
        "version": 1,
        "problems": {k.replace("_", "-"): v for k, v in problems.items()},
    }
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def entry(accepted: bool, answer: str, tries: int) -> dict[str, Any]:
    return {"accepted": accepted, "answer": answer, "tries": tries}


def test_progress_goes_to_the_browser_and_back(course, judge, tmp_path):
    write(course, "free-list", course.problem("free-list").solution)
    judge("hint", "free-list")
    judge("check", "free-list")
    code, _ = judge("progress", "--export", tmp_path / "out.json")
    assert code == 0
    solution = course.problem("free-list").solution
    assert json.loads((tmp_path / "out.json").read_text()) == {
        "version": 1,
        "problems": {"free-list": entry(True, solution, 1)},
    }
    subprocess.run(["rm", "-rf", course.root / "learn"], check=True)
    code, said = judge("progress", "--import", tmp_path / "out.json")
    assert code == 0 and "1 of 2 problems accepted" in said
    assert progress(course)["problems"]["free-list"]["answer"] == solution


def test_an_import_keeps_what_was_accepted_on_either_side(course, judge, tmp_path):
    here = browser_file(
        tmp_path / "here.json",
        free_list=entry(True, "mine, accepted", 2),
        counter_add=entry(False, "mine, tried", 5),
        both=entry(True, "mine, accepted", 1),
    )
    there = browser_file(
        tmp_path / "there.json",
        free_list=entry(False, "theirs, tried", 7),
        counter_add=entry(True, "theirs, accepted", 1),
        both=entry(True, "theirs, accepted", 1),
        gone=entry(True, "a problem of another version", 1),
    )
    judge("progress", "--import", here)
    code, said = judge("progress", "--import", there)
    assert code == 0 and "2 of 2 problems accepted" in said
    problems = progress(course)["problems"]
    assert problems["free-list"] == entry(True, "mine, accepted", 7) | {"hints": 0}
    assert problems["counter-add"]["answer"] == "theirs, accepted"
    assert problems["counter-add"]["tries"] == 5
    assert problems["both"]["answer"] == "mine, accepted"
    assert "gone" in problems


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "it is not JSON"),
        ("[1]", "it has no version 1"),
        ('{"version": 2, "problems": {}}', "it has no version 1"),
        ('{"version": 1}', "it has no problems"),
        ('{"version": 1, "problems": {"a": 1}}', "a is no table"),
        ('{"version": 1, "problems": {"a": {"tries": -1}}}', "a: tries is -1"),
        ('{"version": 1, "problems": {"a": {"accepted": 1}}}', "a: accepted is 1"),
        ("\xff", "it is not JSON"),
    ],
)
def test_damaged_progress_is_an_error_and_is_left_alone(
    course, judge, tmp_path, text, message
):
    path = course.root / "learn" / "practice" / "progress.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin-1"))
    write(course, "free-list", course.problem("free-list").solution)
    for words in (
        ["list"],
        ["check", "free-list"],
        ["hint", "free-list"],
        ["progress"],
    ):
        code, said = judge(*words)
        assert code == 2 and message in said and "it was not changed" in said
    assert path.read_bytes() == text.encode("latin-1")
    path.unlink()
    (tmp_path / "in.json").write_bytes(text.encode("latin-1"))
    code, said = judge("progress", "--import", tmp_path / "in.json")
    assert code == 2 and message in said and not path.exists()


def test_progress_is_written_whole_or_not_at_all(course, judge, monkeypatch):
    write(course, "free-list", course.problem("free-list").solution)
    assert judge("check", "free-list")[0] == 0
    before = progress(course)

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    code, said = judge("check", "free-list")
    assert code == 2 and "No space left on device" in said
    assert progress(course) == before
    names = sorted(path.name for path in mine(course).parent.iterdir())
    assert names == ["free-list.py", "progress.json"]


def test_a_file_of_progress_that_is_not_there_is_named(judge, tmp_path):
    code, said = judge("progress", "--import", tmp_path / "none.json")
    assert code == 2 and f"there is no {tmp_path / 'none.json'}" in said
    code, said = judge("progress", "--import", tmp_path)
    assert code == 2 and f"{tmp_path} is a folder" in said


# into the learner's own package


@pytest.fixture
def workspace(course) -> Path:
    runner = course.runner()
    return learner.start(runner, 2, learner.default_workspace(runner.course, 2))


def test_an_accepted_method_goes_into_the_workspace(course, judge, workspace):
    answer = """\
import operator
from math import floor, ceil as up

from minisgl import counter

LEAST = 0


def refused(count: int) -> ValueError:
    return ValueError(f"negative count: {floor(count)}")


class Counter(counter.Counter):
    def add(self, count: int) -> int:
        \"\"\"Count `count` more; returns the total.\"\"\"
        # nothing is counted before this
        if operator.lt(count, LEAST):
            raise refused(up(count))
        return self._count(count)

    def _count(self, count: int) -> int:
        self.total += count
        return self.total

    def unused(self) -> None:
        pass
"""
    write(course, "counter-add", answer)
    code, said = judge("apply", "counter-add")
    target = workspace / "minisgl" / "counter.py"
    assert code == 0 and f"changed {target}" in said
    assert (
        target.read_text(encoding="utf-8")
        == '''\
"""Counts things."""

import operator
from math import ceil as up
from math import floor


LEAST = 0


def refused(count: int) -> ValueError:
    return ValueError(f"negative count: {floor(count)}")


class Counter:
    """A number that grows."""

    def __init__(self) -> None:
        self.total = 0

    # Chapter 2 changes this function.
    def add(self, count: int) -> int:
        """Count `count` more; returns the total."""
        # nothing is counted before this
        if operator.lt(count, LEAST):
            raise refused(up(count))
        return self._count(count)

    def _count(self, count: int) -> int:
        self.total += count
        return self.total
'''
    )
    code, said = judge("apply", "counter-add")
    assert code == 0 and "Your package has it already" in said
    code = (
        "from minisgl.counter import Counter\nc = Counter()\nc.add(2)\n"
        "assert c.add(3) == 5\n"
    )
    env = {**os.environ, "PYTHONPATH": str(workspace)}
    subprocess.run([sys.executable, "-c", code], env=env, cwd=workspace, check=True)


def test_an_answer_that_is_not_accepted_changes_nothing(course, judge, workspace):
    before = learner.read_workspace(workspace)
    write(course, "counter-add", course.problem("counter-add").wrong_answers["late"])
    code, said = judge("apply", "counter-add")
    assert code == 1 and "only an accepted answer goes into your package" in said
    assert learner.read_workspace(workspace) == before


def test_apply_refuses_what_has_no_place(course, judge, tmp_path):
    write(course, "free-list", course.problem("free-list").solution)
    write(course, "counter-add", course.problem("counter-add").solution)
    code, said = judge("apply", "counter-add")
    assert code == 2 and "tools/steps.py start 2 makes it" in said
    (tmp_path / "empty").mkdir()
    code, said = judge("apply", "counter-add", "--to", tmp_path / "empty")
    assert code == 2 and "has no minisgl folder in it" in said
    code, said = judge("apply", "free-list", "--to", tmp_path / "empty")
    assert code == 2 and "free-list stands alone" in said
    package = tmp_path / "odd" / "minisgl"
    package.mkdir(parents=True)
    code, said = judge("apply", "counter-add", "--to", tmp_path / "odd")
    assert code == 2 and "no module that counter.Counter.add could be in" in said
    (package / "counter.py").write_text("class Other: pass\n")
    code, said = judge("apply", "counter-add", "--to", tmp_path / "odd")
    assert code == 2 and "minisgl/counter.py has no Counter.add" in said
    (package / "counter.py").write_text("class Counter(\n")
    code, said = judge("apply", "counter-add", "--to", tmp_path / "odd")
    assert code == 2 and "minisgl/counter.py is not Python" in said
    assert (package / "counter.py").read_text() == "class Counter(\n"


def test_a_write_that_fails_takes_the_others_back(course, tmp_path, monkeypatch):
    from dataclasses import replace

    from practice import apply

    package = tmp_path / "minisgl"
    package.mkdir()
    stages = course.stages[1]
    for name in ("counter", "store"):
        (package / f"{name}.py").write_text(stages[f"minisgl/{name}.py"])
    before = learner.read_workspace(tmp_path)
    problem = replace(
        course.problem("counter-add"),
        applies_to=("counter.Counter.add", "store.Store.get"),
    )
    answer = (
        "class Counter:\n    def add(self, count):\n        return 1\n"
        "class Store:\n    def get(self, name):\n        return 2\n"
    )
    real, calls = apply.write_whole, []

    def second_fails(path: Path, data: bytes) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise OSError("disk full")
        real(path, data)

    monkeypatch.setattr(apply, "write_whole", second_fails)
    with pytest.raises(OSError, match="disk full"):
        apply.apply(problem, answer, tmp_path)
    assert len(calls) == 3 and learner.read_workspace(tmp_path) == before


# terminals


def on_a_terminal(course: PracticeCourse, *words: str, **env: str) -> str:
    """What a command shows on a terminal of so many columns."""
    import pty
    import select

    main_end, child_end = pty.openpty()
    command = [
        sys.executable,
        REPO / "practice/judge.py",
        "--root",
        course.root,
        *words,
    ]
    environment = {**os.environ, "TERM": "xterm", **env}
    process = subprocess.Popen(
        command, stdout=child_end, stderr=child_end, stdin=child_end, env=environment
    )
    os.close(child_end)
    shown = b""
    while select.select([main_end], [], [], 30)[0]:
        try:
            data = os.read(main_end, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data
    process.wait(timeout=30)
    os.close(main_end)
    return shown.decode().replace("\r\n", "\n")


def test_a_narrow_terminal_loses_no_word(course, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    write(course, "free-list", course.problem("free-list").wrong_answers["lifo"])
    shown = on_a_terminal(course, "check", "free-list", COLUMNS="30", NO_COLOR="1")
    assert "\x1b[3" not in shown
    words = " ".join(re.sub(r"\x1b\[[0-9;?]*\w", "", shown).split())
    assert "FAIL a page that came back" in words
    assert "look at oldest free page first" in words
    assert "practice/judge.py hint" in words


def test_colour_comes_with_words(course, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    write(course, "free-list", course.problem("free-list").solution)
    shown = on_a_terminal(course, "check", "free-list", COLUMNS="80")
    assert "\x1b[32m" in shown and "ok " in shown and "Accepted" in shown


def test_the_script_runs_from_any_folder(course, tmp_path):
    write(course, "free-list", course.problem("free-list").solution)
    command = [sys.executable, REPO / "practice/judge.py", "--root", course.root]
    (tmp_path / "practice.py").write_text("raise SystemExit(9)\n")
    done = subprocess.run(
        [*command, "check", "free-list"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("Accepted: all 3 tests pass, 26 checks")


def test_three_checks_in_a_row_do_not_see_each_other(course, judge):
    solution = course.problem("free-list").solution
    leaking = (
        "\nimport builtins, heapq\nheapq.heappop = min\n"
        "builtins.len = lambda value: 3\n"
        "def helper(pages):\n    return pages.popleft()\n"
    )
    write(course, "free-list", solution + leaking)
    assert judge("check", "free-list")[0] == 1
    write(course, "free-list", solution)
    assert judge("check", "free-list")[0] == 0
    using = solution.replace("self.free.popleft()", "helper(self.free)")
    write(course, "free-list", using)
    code, said = judge("check", "free-list")
    assert code == 1 and "NameError: name 'helper' is not defined" in said
