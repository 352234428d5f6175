"""An answer in a process of its own: no way out, no way to accept itself, no hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.practice_course import PracticeCourse

from practice import sandbox
from practice.problems import PROBLEMS, load
from practice.record import SIZE_LIMIT, BadRecord, Record
from practice.sandbox import grade
from practice.stages import LIBRARY, library

REPO = Path(__file__).resolve().parents[1]
LIMIT = 0.4  # seconds for a test; what is stopped must be over soon after
GRACE = 6.0  # on a busy machine


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> PracticeCourse:
    return PracticeCourse(tmp_path_factory.mktemp("practice") / "a course")


@pytest.fixture(scope="module")
def free_list(course):
    return course.problem("free-list")


@pytest.fixture
def judge(course, free_list):
    """Grade an answer to `free-list`."""

    def run(answer: str, seconds: float = 5.0) -> dict[str, Any]:
        return grade(course.root, free_list, answer, seconds=seconds)

    return run


def with_take(solution: str, body: str, head: str = "") -> str:
    """The solution, with another body of `take`."""
    before, after = solution.split(
        "        if not self.free:\n            return None\n"
    )
    rest = after[after.index("    def give") :]
    return f"{head}\n{before}        {body}\n\n{rest}"


def statuses(result: dict[str, Any]) -> list[str]:
    return [test["status"] for test in result["tests"]]


def test_the_solution_is_accepted_and_the_starter_is_not(judge, free_list):
    result = judge(free_list.solution)
    assert result["status"] == "accepted" and statuses(result) == ["passed"] * 3
    assert result["checks"] == {"planned": 26, "executed": 26}
    result = judge(free_list.starter)
    assert result["status"] == "rejected" and statuses(result) == ["error"] * 3


def test_the_result_is_that_of_the_core_itself(judge, free_list):
    from practice import grading

    for answer in (free_list.solution, free_list.wrong_answers["lifo"], "", "x +"):
        direct = grading.run(
            "free-list",
            answer=answer,
            tests=free_list.tests,
            defines=free_list.required,
            checks=free_list.checks,
        )
        through = judge(answer)
        for result in (direct, through):
            for test in result["tests"]:
                test["time_ms"] = 0
        assert through == direct


# leaving early


LEAVING = {
    "import sys; sys.exit(0)": ("rejected", "your answer ends the program"),
    "raise SystemExit": ("rejected", "your answer ends the program"),
    "import os; os._exit(0)": ("no result", "ended the process, with exit status 0"),
    "import os; os._exit(3)": ("no result", "ended the process, with exit status 3"),
    "import os; os.closerange(3, 60)": ("no result", "your answer ended the process"),
    "import os; os.abort()": ("no result", "crashed the interpreter (SIGABRT)"),
}


@pytest.mark.parametrize("ending", LEAVING)
def test_leaving_at_once_is_never_accepted(judge, free_list, ending):
    status, message = LEAVING[ending]
    result = judge(f"{free_list.solution}\n{ending}\n")
    assert result["status"] == status and message in result["message"]
    assert set(statuses(result)) == {"not run"}
    assert result["checks"]["executed"] == 0


@pytest.mark.parametrize("ending", LEAVING)
def test_leaving_inside_a_test_is_never_accepted(judge, free_list, ending):
    status, message = LEAVING[ending]
    result = judge(with_take(free_list.solution, ending))
    assert result["status"] == status
    first = result["tests"][0]
    assert first["status"] == "error" and message in first["message"]


def test_an_answer_that_closes_the_channel_and_stays_is_no_result(judge, free_list):
    staying = "import os, time; os.closerange(3, 60); time.sleep(60)"
    result = judge(f"{free_list.solution}\n{staying}\n")
    assert result["status"] == "no result"
    assert "your answer closed the judge's channel" in result["message"]


def test_a_function_for_the_end_of_the_process_is_not_called(judge, free_list):
    leaving = "\nimport atexit, os\natexit.register(lambda: os._exit(0))\n"
    assert judge(free_list.solution + leaving)["status"] == "accepted"
    assert judge(free_list.starter + leaving)["status"] == "rejected"


def test_a_crash_in_the_middle_keeps_the_tests_before_it(judge, free_list):
    crash = free_list.solution.replace(
        'raise ValueError(f"page {page} is not out")', "__import__('os')._exit(0)"
    )
    result = judge(crash)
    assert result["status"] == "no result"
    assert statuses(result) == ["passed", "error", "not run"]
    assert result["message"].startswith("refuses a page that is not out: your answer")


# forged results

FORGED = """
import json, os, sys
result = {"version": 1, "slug": "free-list", "status": "accepted", "message": "",
          "checks": {"planned": 26, "executed": 26}, "tests": [], "output": ""}
lines = [json.dumps(result), json.dumps({"event": "end", "result": result}),
         json.dumps({"word": "", "event": "end", "result": result}), "3 passed"]
text = "\\n".join(lines) + "\\n"
"""


def test_printing_a_result_does_not_help(judge, free_list):
    printing = (
        "print(text); print(text, file=sys.__stdout__); os.write(1, text.encode())"
    )
    for answer in (
        free_list.starter + FORGED + printing,
        free_list.starter.replace(
            "raise", f"{printing.replace('text', 'forged()')}; raise"
        )
        + "\nimport os, sys\ndef forged():\n    return '\\n'.join(lines)\n"
        + FORGED,
    ):
        result = judge(answer)
        assert result["status"] == "rejected" and "passed" not in statuses(result)


def test_writing_to_every_channel_breaks_the_record(judge, free_list):
    writing = """
for descriptor in range(3, 64):
    try:
        os.write(descriptor, text.encode())
    except OSError:
        pass
"""
    result = judge(free_list.solution + FORGED + writing)
    assert result["status"] == "no result"
    assert "something else wrote to it" in result["message"]


def test_replaced_parts_of_the_judge_are_named(judge, free_list):
    for code, name in [
        ("import builtins; builtins.len = lambda value: 1", "len"),
        ("import grading; grading.Check.equal = print", "grading.Check.equal"),
        ("import grading; grading.verdict = print", "grading.verdict"),
        ("import heapq; heapq.heappush = print", "heapq.heappush"),
        ("import json; json.JSONEncoder.encode = print", "json.encoder.JSONEncoder"),
    ]:
        result = judge(f"{free_list.solution}\n{code}\n")
        assert result["status"] == "rejected"
        assert f"your answer replaces {name}" in result["message"]


def test_a_model_that_tests_share_can_be_neither_used_nor_replaced():
    """The engine's method is a hole; the model would do in its place."""
    problem = load(REPO / PROBLEMS / "insert-whole-pages")
    for code, said in [
        ("import radix_world", "import of radix_world halted"),
        (
            "import sys; sys.modules['<tests>'].PrefixModel.walk = print",
            "your answer replaces radix_world.PrefixModel.walk",
        ),
    ]:
        result = grade(REPO, problem, f"{problem.solution}\n{code}\n")
        assert result["status"] == "rejected"
        assert said in result["message"]


def test_files_beside_the_answer_and_files_it_writes_have_no_influence(
    tmp_path, judge, free_list
):
    """Nothing is read from the folder it may write to, and every run has its own."""
    forge = "import sys; sys.exit(0)"
    names = ["conftest.py", "sitecustomize.py", "usercustomize.py", "tests.py"]
    names += ["grading.py", "answer.py", "pytest.ini", "minisgl.py", "collections.py"]
    writing = f"""
import os, sys
assert os.listdir() == []
for folder in [os.getcwd(), *sys.path]:
    for name in {names}:
        try:
            with open(os.path.join(folder, name), "w") as file:
                file.write({forge!r})
        except OSError:
            pass
for file in [sys.modules["grading"].__file__]:
    os.remove(file)
"""
    before = sorted(path.name for path in Path(sys.prefix).iterdir())
    standard = Path(os.__file__).parent
    assert str(standard) not in sys.path[:1]
    forged = free_list.starter + writing.replace("*sys.path", "sys.path[0]")
    for _ in range(2):
        assert judge(forged)["status"] == "rejected"
        assert judge(free_list.solution)["status"] == "accepted"
    assert sorted(path.name for path in Path(sys.prefix).iterdir()) == before


# endless loops

ENDLESS = {
    "loop": ("while True: pass", ""),
    "printing": ("while True: print('x' * 99)", ""),
    "sleep": ("__import__('time').sleep(600)", ""),
    "one call": ("return sum(range(10 ** 12))", ""),
    "catches everything": (
        "return stubborn()",
        "def stubborn():\n    while True:\n        try:\n"
        "            while True: pass\n        except BaseException: pass\n",
    ),
    "evicts nothing": (
        "return evict(3)",
        "class Locked:\n    def __init__(self): self.size = 8\n"
        "    def evict(self): return 0\n"
        "def evict(wanted):\n    tree, freed = Locked(), 0\n"
        "    while freed < wanted:\n        freed += tree.evict()\n    return freed\n",
    ),
    "ignores signals": (
        "return deaf()",
        "import signal\ndef deaf():\n"
        "    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):\n"
        "        signal.signal(number, signal.SIG_IGN)\n    while True: pass\n",
    ),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_endless_test_is_stopped_named_and_the_last(judge, free_list, kind):
    body, head = ENDLESS[kind]
    # the first test passes: it takes no page that was given back
    waiting = free_list.solution.replace(
        'raise ValueError(f"page {page} is not out")', body
    )
    begin = time.monotonic()
    result = judge(f"{head}\n{waiting}", LIMIT)
    assert LIMIT < time.monotonic() - begin < LIMIT + GRACE
    assert result["status"] == "rejected"
    assert statuses(result) == ["passed", "timed out", "not run"]
    hung = result["tests"][1]
    assert f"did not end within {LIMIT} s" in hung["message"]
    assert hung["name"] in result["message"]
    assert len(hung["output"]) <= 4_000
    assert bool(hung["output"]) == (kind == "printing")
    assert judge(free_list.solution)["status"] == "accepted"


def test_an_endless_load_is_stopped(judge, free_list):
    result = judge(free_list.solution + "\nprint('here')\nwhile True: pass\n", LIMIT)
    assert result["status"] == "rejected" and set(statuses(result)) == {"not run"}
    assert result["message"] == f"loading your answer: did not end within {LIMIT} s"
    assert result["output"] == "here\n"


def test_a_failure_is_kept_when_its_smaller_lists_hang(judge, free_list):
    """A wrong page comes late; the lists tried to shrink it never end."""
    answer = free_list.wrong_answers["lifo"].replace(
        "    def take(self):\n",
        "    made = 0\n    def take(self):\n        while FreeList.made > 3: pass\n",
    )
    answer = answer.replace(
        "        self.out = set()\n",
        "        self.out = set()\n        FreeList.made += 1\n",
    )
    result = judge(answer, LIMIT)
    assert statuses(result) == ["passed", "passed", "failed"]
    assert result["tests"][2]["failure"]["operations"]


# limits


def test_running_out_of_memory_is_an_error(judge, free_list):
    result = judge(with_take(free_list.solution, "return [0] * (1 << 30)"))
    assert result["status"] == "rejected"
    assert result["tests"][0]["message"].startswith("out of memory")


def test_recursion_that_ends_the_interpreter_is_told_as_such(judge, free_list):
    head = (
        "import sys\nfrom functools import partial\nsys.setrecursionlimit(10 ** 9)\n"
        "def down(): return partial(down)()\n"
    )
    result = judge(with_take(free_list.solution, "return down()", head))
    assert result["status"] in ("no result", "rejected")  # Python 3.12 raises instead
    assert "recursion too deep" in json.dumps(result)
    assert judge(free_list.solution)["status"] == "accepted"


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess; subprocess.Popen(['sleep', '60'])",
        "import os; os.system('true')",
        "import os; os.fork()",
        "import os; os.execv('/bin/true', ['true'])",
        "import os; os.kill(os.getppid(), 9)",
        "import ctypes",
        "import socket; socket.socket()",
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (99999, 99999))",
    ],
)
def test_an_answer_may_start_and_signal_nothing(judge, free_list, code):
    result = judge(f"{free_list.solution}\n{code}\n")
    assert result["status"] == "rejected"
    assert "PermissionError: an answer may not" in result["message"]


def test_a_file_it_writes_has_a_limit(judge, free_list):
    writing = "with open('big', 'wb') as file:\n    file.write(b'x' * (8 << 20))\n"
    result = judge(f"{free_list.solution}\n{writing}")
    assert "OSError: [Errno 27] File too large" in result["message"]


def test_nothing_of_a_run_stays_behind(judge, free_list, tmp_path, monkeypatch):
    """What an answer starts ends with it, even by a way that Python does not see."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    seconds = f"60.{os.getpid()}"
    starting = f"""
import _posixsubprocess, os
reading, writing = os.pipe()
_posixsubprocess.fork_exec(
    [b"sleep", b"{seconds}"], [b"/bin/sleep"], True, (writing,), None, None,
    -1, -1, -1, -1, -1, -1, reading, writing, False, False, -1, None, None, None,
    -1, None, False,
)
print("started")
"""
    result = judge(f"{free_list.solution}\n{starting}\n")
    if result["output"] != "started\n":
        pytest.skip(f"this Python starts processes otherwise: {result['message']}")
    deadline = time.monotonic() + GRACE
    while running(f"sleep {seconds}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(f"sleep {seconds}")
    assert list(tmp_path.iterdir()) == []


def running(marker: str) -> list[str]:
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True)
    return [line for line in shown.stdout.splitlines() if marker in line]


def test_a_judge_that_is_stopped_takes_its_child_along(course, free_list):
    def stop(doing: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grade(course.root, free_list, "while True: pass", tick=stop)


# what an answer can import


def test_an_answer_sees_the_torch_free_modules_of_its_chapter(course):
    problem = course.problem("counter-add")
    assert grade(course.root, problem, problem.solution)["status"] == "accepted"
    names = {
        path.relative_to(library(course.root, chapter) / LIBRARY).as_posix(): chapter
        for chapter in (3, 2, 1)
        for path in (library(course.root, chapter) / LIBRARY).rglob("*.pyc")
    }
    assert names == {  # and the first chapter that has it
        "grading.pyc": 1,
        "radix_world.pyc": 1,
        "minisgl/__init__.pyc": 1,
        "minisgl/counter.pyc": 1,
        "minisgl/store.pyc": 2,
    }
    late = "from minisgl.report import lines\n" + problem.solution
    message = grade(course.root, problem, late)["message"]
    assert "No module named 'minisgl.report'" in message
    for absent in ("torch", "numpy", "typer", "pytest", "course", "practice"):
        message = grade(course.root, problem, f"import {absent}\n" + problem.solution)
        assert f"No module named '{absent}'" in message["message"]


def test_what_is_to_be_written_cannot_be_borrowed(course):
    problem = course.problem("counter-add")
    borrowing = problem.starter.replace(
        'raise NotImplementedError("counter-add: add")', "return super().add(count)"
    )
    result = grade(course.root, problem, borrowing)
    assert result["status"] == "rejected"
    assert "the engine's own Counter.add is not here" in result["tests"][0]["message"]
    inheriting = "from minisgl.counter import Counter as C\nclass Counter(C): pass\n"
    message = grade(course.root, problem, inheriting)["message"]
    assert "Counter.add is defined by the engine and inherited" in message
    importing = "from minisgl.counter import Counter\n"
    message = grade(course.root, problem, importing)["message"]
    assert "Counter is imported, not written in your answer" in message


def test_a_library_is_made_once_and_anew_when_its_chapter_changes(tmp_path):
    course = PracticeCourse(tmp_path / "c")
    first = library(course.root, 2)
    inode = first.stat().st_ino
    assert library(course.root, 2) == first and first.stat().st_ino == inode
    course.stages[1]["minisgl/counter.py"] += "\nNEW = 1\n"
    course.stages[2]["minisgl/counter.py"] += "\nNEW = 1\n"
    course.write()
    assert library(course.root, 2) != first


def test_every_library_of_the_course_imports_alone():
    from course.manifest import Course

    first_used = {"radix_world": 8}  # what tests share needs the package of its chapter
    for chapter in Course.load(REPO).chapters:
        place = library(REPO, chapter.number) / LIBRARY
        names = [
            ".".join(path.relative_to(place).with_suffix("").parts)
            for path in place.rglob("*.pyc")
        ]
        names = [n for n in names if chapter.number >= first_used.get(n, 0)]
        code = (
            f"import sys, importlib\nsys.path.insert(0, {str(place)!r})\n"
            f"for name in {names!r}: importlib.import_module(name)\n"
            "assert 'torch' not in sys.modules\n"
        )
        command = [sys.executable, "-I", "-S", "-B", "-c", code]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"chapter {chapter.number}: {done.stderr}"
        assert any("minisgl" in name for name in names)


# the record


def test_tests_that_do_not_load_are_no_verdict(tmp_path):
    course = PracticeCourse(tmp_path / "c")
    course.edit("free-list/tests.py", "import random", "import no_such_module")
    problem = course.problem("free-list")
    result = grade(course.root, problem, problem.solution)
    assert result["status"] == "no result"
    assert "the tests of this problem broke" in result["message"]
    assert "no_such_module" in result["message"]


def lines(*events: dict[str, Any], word: str = "w") -> bytes:
    return b"".join(json.dumps({"word": word, **e}).encode() + b"\n" for e in events)


PLAN = {"event": "plan", "tests": [{"name": "a"}, {"name": "b"}]}
LOAD = {"event": "start", "index": -1, "name": "loading"}


def start(index: int) -> dict[str, Any]:
    return {"event": "start", "index": index, "name": "ab"[index]}


def passed(index: int, **other: Any) -> dict[str, Any]:
    record = {"name": "ab"[index], "status": "passed", "time_ms": 1, "message": ""}
    record |= {"output": "", "failure": None} | other
    return {"event": "test", "index": index, "record": record}


def end(executed: Any = 2, **other: Any) -> dict[str, Any]:
    result = {"message": "all is well", "output": "", "checks": {"executed": executed}}
    return {"event": "end", "result": {"status": "accepted"} | result | other}


WHOLE = [PLAN, LOAD, start(0), passed(0), start(1), passed(1), end()]


def recorded(*events: dict[str, Any]) -> Record:
    record = Record("s", 2, "w")
    record.take(lines(*events))
    return record


def test_a_whole_record_is_accepted_however_it_is_cut():
    assert recorded(*WHOLE).verdict()["status"] == "accepted"
    record = Record("s", 2, "w")
    for byte in lines(*WHOLE):
        record.take(bytes([byte]))
    assert record.verdict()["status"] == "accepted"


@pytest.mark.parametrize("missing", range(1, len(WHOLE) - 1))
def test_a_record_with_a_piece_missing_is_not_accepted(missing):
    events = [*WHOLE[:missing], *WHOLE[missing + 1 :]]
    try:
        record = recorded(*events)
    except BadRecord:
        return
    assert record.verdict()["status"] == "rejected"


def test_an_end_at_once_is_not_accepted():
    with pytest.raises(BadRecord, match="end comes out of turn"):
        recorded(PLAN, end())
    assert recorded(PLAN, LOAD, end()).verdict()["status"] == "rejected"
    some = recorded(PLAN, LOAD, start(0), passed(0), end())
    assert some.verdict()["status"] == "rejected"


@pytest.mark.parametrize(
    "events",
    [
        [*WHOLE, end()],
        [PLAN, PLAN],
        [LOAD],
        [PLAN, LOAD, start(1)],
        [PLAN, LOAD, start(0), start(1)],
        [PLAN, LOAD, passed(0)],
        [PLAN, LOAD, start(0), passed(0), passed(0)],
        [PLAN, LOAD, start(0), passed(1)],
        [PLAN, LOAD, start(0), passed(0, name="b")],
        [PLAN, LOAD, start(0), passed(0, status="accepted")],
        [PLAN, LOAD, start(0), passed(0, failure={"call": 1})],
        [PLAN, LOAD, start(0), passed(0, message=None)],
        [*WHOLE[:-1], end(executed=True)],
        [*WHOLE[:-1], end(executed="2")],
        [{"event": "party"}],
        [{"event": "plan", "tests": 5}],
    ],
)
def test_events_out_of_turn_or_shape_break_the_record(events):
    with pytest.raises(BadRecord):
        recorded(*events)


@pytest.mark.parametrize(
    "data",
    [
        lines(PLAN, word="other"),
        b"no JSON\n",
        b"\xff\n",
        b"[]\n",
        b"{}\n",
        b"[" * 100_000 + b"\n",
        b"x" * (SIZE_LIMIT + 1),
    ],
)
def test_what_is_not_an_event_with_the_word_breaks_the_record(data):
    record = Record("s", 2, "w")
    with pytest.raises(BadRecord):
        record.take(data)


def test_executed_checks_must_be_the_planned_ones():
    for executed in (0, 1, 3):
        result = recorded(*WHOLE[:-1], end(executed)).verdict()
        assert result["status"] == "no result"


def test_a_bad_record_is_no_result(monkeypatch, judge, free_list):
    def refuse(self: Record, data: bytes) -> bool:
        raise BadRecord("it is too long")

    monkeypatch.setattr(sandbox.Record, "take", refuse)
    result = judge(free_list.solution)
    assert result["status"] == "no result" and "it is too long" in result["message"]
