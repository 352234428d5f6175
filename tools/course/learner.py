"""A learner's side of the course: a workspace, its grade, hints and solutions.

A workspace is a folder with a `minisgl/` of the learner's own. Only that folder is
taken from it when it is graded: tests, their helpers and all configuration come from
the course, so nothing else in a workspace can change a verdict.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course.errors import CourseError
from course.folder import write_tree as store_tree
from course.jobs import Command, Ended, Running, run_all
from course.manifest import Chapter, Course
from course.results import Result, TestRecord, TestResult, text_of
from course.runner import Job, Runner, read_tree, write_whole
from course.skeleton import module_of, skeleton, stub_names, unwritten
from course.source import Definition, Source
from course.stack import tree_diff as stack_diff
from course.stack import write_files


def default_workspace(course: Course, number: int) -> Path:
    """`learn/NN_slug` beside the course's own folders; git does not see it."""
    chapter = course.chapter(number)
    return course.root / "learn" / chapter.stem


def start(
    runner: Runner, number: int, target: Path, mine: Mapping[str, bytes] | None = None
) -> Path:
    """Make a workspace for chapter `number` in `target`, all of it or nothing.

    `mine` are a learner's own files for the stage before; without it they start from
    the course's. Raises CourseError if `target` has anything in it.
    """
    refuse_to_overwrite(number, target)
    files = _workspace_files(runner, number, target, mine)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".start-") as temporary:
        fresh = Path(temporary) / "workspace"
        write_files(files, fresh)
        os.replace(fresh, target)  # an empty folder may be there
    return target


def refuse_to_overwrite(number: int, target: Path) -> None:
    """Raises CourseError if there is anything in `target`."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CourseError(
            f"{target} is not empty, and what is in it is yours: nothing was changed",
            f"tools/steps.py grade {number} {shlex.quote(str(target))} tests it; "
            f"tools/steps.py start {number} --to ANOTHER_FOLDER makes a new one",
        )


def read_workspace(workspace: Path) -> dict[str, bytes]:
    """The learner's package: the files below `minisgl/`, by path."""
    package = workspace / "minisgl"
    if not package.is_dir():
        raise CourseError(
            f"{workspace} has no minisgl folder in it",
            "name a folder that tools/steps.py start made, or make one with it",
        )
    return {f"minisgl/{path}": data for path, data in read_tree(package).items()}


# grading


@dataclass(frozen=True)
class Grade:
    """What the tests of chapters 1…N say about a learner's tree.

    `tests` are in the order of the story; `unwritten` names the stubs of chapter N that
    are still there. `result` is the verdict, with a `problem` if it is not a pass.
    """

    chapter: Chapter
    result: Result
    tests: list[TestResult]
    unwritten: list[str]

    @property
    def first_bad(self) -> TestResult | None:
        return next((test for test in self.tests if test.is_bad), None)

    def tests_of(self, chapter: Chapter) -> list[TestResult]:
        return [test for test in self.tests if test.file in chapter.tests]


@dataclass(frozen=True)
class GradeRun:
    """The course's tests of chapters 1…N, on a copy of the learner's package."""

    job: Job
    files: Mapping[str, bytes]

    @property
    def title(self) -> str:
        return f"chapter {self.job.chapter.number}, your tree"

    def prepare(self, scratch: Path, events: Path) -> Command:
        stage = events.with_name("stage")  # outside the folder that pytest runs in
        write_files(self.files, stage)
        return self.job.test_command(stage, scratch, events)


def grade(
    runner: Runner,
    number: int,
    files: Mapping[str, bytes],
    *,
    timeout: float,
    tick: Callable[[list[Running]], None] = lambda running: None,
) -> Grade:
    """Run the tests of chapters 1…`number` on a learner's files."""
    job = Job(runner, runner.course.chapter(number), "tests")
    ends: list[Ended] = []
    run_all(
        [GradeRun(job, files)],
        jobs=1,
        timeout=timeout,
        folder=runner.runs,
        ended=lambda work, end: ends.append(end),
        tick=tick,
    )
    tests = TestRecord.of(ends[0].events).tests
    tests.sort(key=lambda test: _place(test.file, job.test_files))
    left = unwritten(_parsed(files), number)
    return Grade(job.chapter, runner.judge(job, ends[0]), tests, left)


def next_help(course: Course, grade: Grade) -> str | None:
    """The command that helps with the stub the first failure met, or another one."""
    first = grade.first_bad
    text = f"{first.message}\n{first.text}" if first else ""
    labels = re.findall(rf"chapter {grade.chapter.number}: ([\w.]+)", text)
    met = [name for name in grade.unwritten if name.endswith(tuple(labels))]
    names = [*met, *grade.unwritten, *grade.chapter.names]
    number = grade.chapter.number
    hinted = [name for name in names if name in _hints_or_none(course, number)]
    for command, name in [("hint", hinted), ("solution", names)]:
        if name:
            return f"tools/steps.py {command} {number} {name[0]}"
    return None


def tree_diff(runner: Runner, number: int, files: Mapping[str, bytes]) -> str:
    """How a learner's files differ from the course's: a diff from theirs to ours."""
    repo = runner.stack.repo
    with tempfile.TemporaryDirectory() as folder:
        write_files(files, Path(folder))
        mine = store_tree(repo, Path(folder), list(files))
    return text_of(stack_diff(repo, mine, runner.stack.tree(number)))


def _place(file: str, order: Sequence[str]) -> int:
    return order.index(file) if file in order else len(order)


def _parsed(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files that are Python; one with a syntax error has no stubs to count."""
    return {path: data for path, data in files.items() if _problem(data) is None}


def _problem(data: bytes) -> str | None:
    try:
        Source(data.decode())
    except (SyntaxError, UnicodeDecodeError, ValueError) as error:
        return str(error)
    return None


# hints and solutions


class Hints:
    """Which hints a learner has seen, kept in `build/learn/hints.json`."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.path = course.root / "build" / "learn" / "hints.json"

    def next(self, number: int, name: str) -> tuple[str, list[str], int]:
        """The full name, its hints seen so far and one more, and how many it has.

        Once all were seen, all are given.
        """
        hints = read_hints(self.course, number)
        full = resolve(name, hints, f"chapter {number} has hints for")
        key, seen = f"{number} {full}", self._load()
        seen[key] = min(seen.get(key, 0) + 1, len(hints[full]))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, json.dumps(seen, indent=1).encode())
        return full, hints[full][: seen[key]], len(hints[full])

    def _load(self) -> dict[str, int]:
        try:
            seen = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return seen if isinstance(seen, dict) else {}


def read_hints(course: Course, number: int) -> dict[str, list[str]]:
    """Name to hints, from gentle to nearly the answer; from `steps/hints/`."""
    path = course.chapter(number).hints
    try:
        hints = tomllib.loads((course.root / path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        next_step = f"tools/steps.py solution {number} NAME shows a name as we have it"
        raise CourseError(f"chapter {number} has no hints yet", next_step) from None
    except ValueError as error:
        raise CourseError(f"{path} is not TOML: {error}", f"correct {path}") from None
    for name, texts in hints.items():
        if not (texts and isinstance(texts, list) and all(map(_is_text, texts))):
            raise CourseError(f"{path}: {name} must list texts", f"correct {path}")
    return hints


def _hints_or_none(course: Course, number: int) -> dict[str, list[str]]:
    has_hints = (course.root / course.chapter(number).hints).is_file()
    return read_hints(course, number) if has_hints else {}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


@dataclass(frozen=True)
class Solution:
    """One definition at a stage, and what the chapter changed in it ("" if nothing)."""

    name: str
    path: str
    text: str
    diff: str


def solution(runner: Runner, number: int, name: str) -> Solution:
    """The source of `name` at stage `number`, and its diff from the stage before."""
    after = named_definitions(runner.stack.files(number))
    previous = runner.course.previous(number)
    before = named_definitions(runner.stack.files(previous))
    full = resolve(name, after, f"chapter {number} has")
    path, found = after[full]
    text = _joined(found)
    old = _joined(before[full][1]) if full in before else ""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True),
        text.splitlines(keepends=True),
        f"chapter {previous}",
        f"chapter {number}",
    )
    return Solution(full, path, text, "".join(lines) if old else "")


def named_definitions(
    files: Mapping[str, bytes],
) -> dict[str, tuple[str, list[Definition]]]:
    """Every function, class and method: path and definitions (a property may have two).

    A name is the module below `minisgl` and the qualified name, as in the manifest.
    """
    found: dict[str, tuple[str, list[Definition]]] = {}
    for path, data in files.items():
        if not path.endswith(".py"):
            continue
        for definition in Source(data.decode(), path).definitions:
            name = f"{module_of(path)}.{definition.name}".lstrip(".")
            found.setdefault(name, (path, []))[1].append(definition)
    return found


def resolve(name: str, known: Iterable[str], what: str) -> str:
    """The one of `known` that is `name` or ends in it.

    Raises CourseError that gives the nearest names.
    """
    names = list(known)
    if name in names:
        return name
    ends = [full for full in names if full.endswith(f".{name}")]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise CourseError(f"{name} is several names", f"one of: {', '.join(ends)}")
    near = _nearest(name, names)
    raise CourseError(f"there is no {name} here", f"{what} {', '.join(near)}")


def _nearest(name: str, names: Sequence[str]) -> list[str]:
    """The three closest names, by their whole and by their last parts."""
    parts = name.count(".") + 1
    ending: dict[str, list[str]] = {}
    for full in names:
        ending.setdefault(".".join(full.split(".")[-parts:]), []).append(full)
        ending.setdefault(full, []).append(full)
    close = difflib.get_close_matches(name, ending, n=3, cutoff=0.4) or names[:3]
    return list(dict.fromkeys(f for e in close for f in ending.get(e, [e])))[:3]


def _joined(definitions: Sequence[Definition]) -> str:
    return "\n".join(textwrap.dedent(d.text) for d in definitions)


# what is in a workspace


def both_stages(runner: Runner, number: int) -> tuple[dict[str, bytes], ...]:
    """The files of a chapter's stage and of the one before it."""
    stack, previous = runner.stack, runner.course.previous(number)
    return stack.files(number), stack.files(previous)


def _workspace_files(
    runner: Runner, number: int, target: Path, mine: Mapping[str, bytes] | None
) -> dict[str, bytes]:
    chapter, root = runner.course.chapter(number), runner.root
    new, old = both_stages(runner, number)
    for path, data in (mine or {}).items():
        if path.endswith(".py") and (problem := _problem(data)):
            raise CourseError(f"{path} is not Python: {problem}", "correct it first")
    files = skeleton(new, old, number, mine)
    examples = sorted((root / chapter.example).parent.glob("*.py"))
    shared = [p.relative_to(root).as_posix() for p in examples if p.name[:2] != "ch"]
    given = [chapter.example, chapter.recorded, *shared]
    if chapter.model is not None:
        given.append(chapter.recorded_with_model)
    for path in [*given, *chapter.tests, *runner.helpers()]:
        if (root / path).is_file():
            files[path] = (root / path).read_bytes()
    files["pytest.ini"] = runner.pytest_ini("pythonpath = .").encode()
    files["README.md"] = _readme(runner, chapter, target).encode()
    return files


def _readme(runner: Runner, chapter: Chapter, target: Path) -> str:
    """What to write, in which order, and the commands."""
    number = chapter.number
    new, old = both_stages(runner, number)
    added, changed = stub_names(new, old, number)
    paths = {name: path for name, (path, _) in named_definitions(new).items()}
    first = [name for name in chapter.names if name in paths]
    rest = [name for name in added if name not in first]
    lines = [f"# Chapter {number}: {chapter.title}", ""]
    lines += [
        f"Here is the package as it is before chapter {number}, with the signatures",
        "and docstrings of what the chapter adds. Bodies that say",
        f'`raise NotImplementedError("chapter {number}: …")` are yours to write.',
        "",
        "## What to write, in this order",
        "",
    ]
    for index, name in enumerate(first or rest, 1):
        there = ", there already: the chapter changes it" if name in changed else ""
        lines.append(f"{index}. `{name}` in `{paths[name]}`{there}")
    if first and rest:
        lines += ["", "Along the way, the smaller pieces:", ""]
        lines += [f"- `{name}` in `{paths[name]}`" for name in rest]
    if others := [name for name in changed if name not in first]:
        lines += ["", "There already, with their old bodies, and changed here:", ""]
        lines += [f"- `{name}` in `{paths[name]}`" for name in others]
    return "\n".join([*lines, "", *_commands(runner, chapter, target)]) + "\n"


def _commands(runner: Runner, chapter: Chapter, target: Path) -> list[str]:
    number, steps = chapter.number, "tools/steps.py"
    default = default_workspace(runner.course, number)
    place = "" if target == default else f" {shlex.quote(str(target.absolute()))}"
    name = (chapter.names or ["NAME"])[0]
    return [
        "## Commands",
        "",
        f"In the course's folder, {runner.root}:",
        "",
        f"    {steps} grade {number}{place}",
        f"    {steps} grade {number}{place} --diff",
        f"    {steps} hint {number} {name}",
        f"    {steps} solution {number} {name}",
        "",
        "Here, with the course's Python. `PYTHONPATH=.` makes it your package that",
        "runs, not the finished one:",
        "",
        f"    PYTHONPATH=. {shlex.quote(sys.executable)} {chapter.example}",
        f"    {shlex.quote(sys.executable)} -m pytest {' '.join(chapter.tests)}",
        "",
        "`grade` reads only the folder `minisgl` here. It runs its own copy of the",
        "tests of this and all earlier chapters.",
    ]
