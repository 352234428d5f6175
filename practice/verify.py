"""Proves the problems: right answers pass, and nothing else does.

For every problem the solution must be accepted with exactly the planned checks. The
starter, an empty file and the like, every wrong answer, and answers that try to get
around the judge must be rejected, wrong ones with the message they deserve.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course.errors import CourseError
from course.manifest import Course
from course.source import Function, is_stub
from course.stack import Stack

from practice.apply import changes
from practice.problems import Problem
from practice.sandbox import grade
from practice.stages import library

_SECONDS = 30.0  # for a test: a busy machine is no fault of a problem
_LOOP_SECONDS = 0.5  # for an answer that is known to hang

# An object that agrees with everything.
_AGREES = """
class _Agrees:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
    def __len__(self): return 1
    def __iter__(self): return iter([self])
    def __contains__(self, item): return True
    def __getitem__(self, key): return self
    def __getattr__(self, name): return self
    def __call__(self, *args, **kwargs): return self
    def __index__(self): return 1
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __add__(self, other): return self
    __radd__ = __sub__ = __rsub__ = __add__
"""
# A result as the judge's own code sends it, written wherever it could be read.
_FORGES = """
import atexit, json, os, sys

_result = {"version": 1, "status": "accepted", "message": "", "output": "",
           "checks": {"planned": 1, "executed": 1}, "tests": []}
_lines = [json.dumps(_result), json.dumps({"event": "end", "result": _result}),
          "accepted", "all tests pass"]

def _forge():
    for line in _lines:
        print(line)
        print(line, file=sys.__stdout__)
        for descriptor in range(1, 3):
            os.write(descriptor, line.encode() + b"\\n")

atexit.register(_forge)
_forge()
"""
_WRITES = """
import os

for _descriptor in range(3, 64):
    try:
        os.write(_descriptor, b'{"word": "", "event": "end"}\\n')
    except OSError:
        pass
"""


@dataclass(frozen=True)
class Case:
    """One answer to one problem, and how it must fare.

    `message` is a part of what the learner must be told, "" if anything will do.
    """

    problem: Problem
    name: str
    answer: str
    accepted: bool = False
    message: str = ""
    seconds: float = _SECONDS


@dataclass(frozen=True)
class Outcome:
    case: Case
    fault: str  # what is not as it must be, "" if nothing


def cases(problem: Problem) -> Iterator[Case]:
    """Every answer that is tried on a problem."""
    name = problem.defines[0]
    yield Case(problem, "solution", problem.solution, accepted=True)
    yield Case(problem, "starter", problem.starter)
    yield Case(problem, "empty file", "", message=name)
    yield Case(problem, "all in comments", _commented(problem.starter), message=name)
    for what in ("None", "0", "its argument"):
        yield Case(problem, f"returns {what}", returning(problem.starter, what))
    for wrong, answer in problem.wrong_answers.items():
        message = problem.wrong[wrong]
        yield Case(problem, f"wrong/{wrong}", answer, message=message)
    yield from _canaries(problem)


def _canaries(problem: Problem) -> Iterator[Case]:
    """Answers that try to be accepted without being right, or to break the judge."""
    starter, solution = problem.starter, problem.solution
    agreeing = returning(starter, "_Agrees()") + _AGREES
    yield Case(problem, "agrees with everything", agreeing)
    yield Case(problem, "prints a result", starter + _FORGES)
    yield Case(problem, "writes to every channel", solution + _WRITES)
    for call in ("sys.exit(0)", "os._exit(0)"):
        leaving = f"\nimport os, sys\n{call}\n"
        yield Case(problem, f"{call} at once", solution + leaving)
    for body in ("raise SystemExit(0)", "__import__('os')._exit(0)"):
        yield Case(problem, f"{body} inside", doing(starter, body))
    replacing = {
        "builtins": "import builtins\nbuiltins.len = lambda value: 0",
        "heapq": "import heapq\nheapq.heappop = min",
        "grading": "import grading\ngrading.Check.equal = lambda *a, **k: None",
    }
    for module, code in replacing.items():
        answer = f"{solution}\n{code}\n"
        message = "which is not its own"
        yield Case(problem, f"replaces {module}", answer, message=message)
    endless = f"{solution}\nwhile True:\n    pass\n"
    message = "did not end within"
    yield Case(problem, "endless loop", endless, message=message, seconds=_LOOP_SECONDS)


def run(
    root: Path, problems: Sequence[Problem], ended: Callable[[Outcome], None]
) -> list[Outcome]:
    """Try every case, several at a time; `ended` is told of each as it ends.

    A problem without a fault is remembered, and not tried again before it, or the
    judge, or its chapter's stage changes.
    """
    memories = {problem.slug: _memory(root, problem) for problem in problems}
    outcomes = []
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        work = [
            pool.submit(_try, root, case)
            for problem in problems
            for case in cases(problem)
            if not memories[problem.slug].exists()
        ]
        try:
            for done in as_completed(work):
                outcomes.append(done.result())
                ended(outcomes[-1])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    bad = {outcome.case.problem.slug for outcome in outcomes if outcome.fault}
    for slug, memory in memories.items():
        if slug not in bad:
            memory.parent.mkdir(parents=True, exist_ok=True)
            memory.touch()
    return outcomes


def _memory(root: Path, problem: Problem) -> Path:
    """The file that says that a problem is good, as everything is now."""
    digest = hashlib.sha256(f"{sys.version} {problem}".encode())
    digest.update(library(root, problem.chapter).name.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    name = f"{problem.slug}-{digest.hexdigest()[:16]}"
    return root / "build" / "practice" / "verified" / name


def _try(root: Path, case: Case) -> Outcome:
    result = grade(root, case.problem, case.answer, seconds=case.seconds)
    return Outcome(case, fault_of(case, result) or _no_place(root, case))


def _no_place(root: Path, case: Case) -> str:
    """Why a solution does not go into the package of its chapter; "" if it does."""
    if not (case.accepted and case.problem.applies_to):
        return ""
    files = Stack(Course.load(root)).files(case.problem.chapter)
    sources = {path: data.decode() for path, data in files.items()}
    try:
        changes(case.problem, case.answer, sources)
    except CourseError as error:
        return f"cannot be applied: {error.message}"
    return ""


def fault_of(case: Case, result: dict[str, Any]) -> str:
    """What is not as it must be; "" if nothing is."""
    status, checks = result["status"], result["checks"]
    if case.accepted:
        if status == "accepted":
            return ""
        if all(test["status"] == "passed" for test in result["tests"]):
            return f"{result['message']} (checks = {checks['executed']} in problem.md?)"
        return f"{status}: {said(result)}"
    if status == "accepted":
        return "is accepted"
    if _folded(case.message) not in _folded(said(result)):
        return f"does not say {case.message!r}, but: {said(result)}"
    return ""


def said(result: dict[str, Any]) -> str:
    """Everything a learner is told about a result, tests that passed left out."""
    texts = [result["message"]]
    for test in result["tests"]:
        if test["status"] in ("passed", "not run"):
            continue
        failure = test["failure"] or {}
        texts += [test["name"], test["message"], failure.get("look", "")]
        texts += failure.get("operations") or []
    return "\n".join(filter(None, texts))


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def returning(source: str, what: str) -> str:
    """The source with every empty body replaced: it returns an expression.

    "its argument" is the first one after `self`.
    """

    def body(function: Function) -> str:
        if function.name == "__init__":
            return "pass"
        if what != "its argument":
            return f"return {what}"
        names = [argument.arg for argument in function.args.args]
        own = [name for name in names if name not in ("self", "cls")]
        return f"return {(own or names or ['None'])[0]}"

    return _with_bodies(source, body)


def doing(source: str, body: str) -> str:
    """The source with every empty body replaced by a statement."""
    return _with_bodies(source, lambda function: body)


def _with_bodies(source: str, body: Callable[[Function], str]) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, Function) and is_stub(node.body):
            node.body = ast.parse(body(node)).body
    return ast.unparse(tree) + "\n"


def _commented(source: str) -> str:
    return textwrap.indent(source, "# ", lambda line: True)
