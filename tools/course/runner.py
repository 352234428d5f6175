"""Runs every chapter at its own stage: its example, and the tests of all up to it.

Three jobs a chapter, each in a fresh process that can import `minisgl` only from the
stage's folder:

    example   the example exits 0 and prints the recorded output        (stage N)
    tests     the tests of chapters 1…N pass, unless retired             (stage N)
    before    the chapter's own tests fail without the chapter         (stage N-1)

A pass is remembered under a hash of everything it depends on, never under a time.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from course.jobs import Command, Ended, Running, child_environment, run_all
from course.manifest import Chapter, Course
from course.models import find, is_there, models_dir
from course.results import (
    Result,
    TestRecord,
    TestResult,
    example_problem,
    output_diff,
    session_problem,
    tail,
    text_of,
)
from course.stack import Stack

CHILD = Path(__file__).with_name("child.py")
KINDS = ("example", "tests", "before")
GUARANTEES = {
    "example": (8, "the example exits 0 and prints the recorded output"),
    "tests": (9, "the tests of chapters 1…N pass at stage N, unless retired"),
    "before": (10, "a chapter's own tests fail at the stage before it"),
}
# packages whose version can change what a test finds
_PACKAGES = (
    "hypothesis",
    "numpy",
    "pytest",
    "safetensors",
    "tokenizers",
    "torch",
    "transformers",
)
_RULES = (
    "child.py",
    "jobs.py",
    "results.py",
    "runner.py",
)  # our own files that decide a verdict


@dataclass(frozen=True, eq=False)
class Job:
    """One thing that `check` runs. `only` limits tests to these ids."""

    runner: Runner
    chapter: Chapter
    kind: str
    only: tuple[str, ...] = ()

    @property
    def stage(self) -> int:
        number = self.chapter.number
        return self.runner.course.previous(number) if self.kind == "before" else number

    @property
    def title(self) -> str:
        kind = "fails before" if self.kind == "before" else self.kind
        return f"{self.chapter.label}: {kind}"

    @property
    def rerun(self) -> str:
        """The command that runs exactly this again."""
        what = f"--only {self.kind}"
        if self.only:
            what = " ".join(f"--test {shlex.quote(name)}" for name in self.only)
        return f"tools/steps.py check {self.chapter.number} {what}"

    @property
    def story(self) -> Sequence[Chapter]:
        """The chapters up to this one."""
        return self.runner.course.through(self.chapter.number)

    @cached_property
    def retired(self) -> dict[str, str]:
        """Test id to reason: what this and earlier chapters retired."""
        if self.kind != "tests":
            return {}
        return {name: why for c in self.story for name, why in c.retired.items()}

    @cached_property
    def test_files(self) -> list[str]:
        """Paths of the tests to run, in the order of the story."""
        if self.kind == "example":
            return []
        chapters = [self.chapter] if self.kind == "before" else self.story
        return [t for c in chapters for t in c.tests if t not in self.retired]

    def prepare(self, scratch: Path, events: Path) -> Command:
        stage = self.runner.stage_dir(self.stage)
        if self.kind == "example":
            return self.runner.example_command(self.chapter, stage, events)
        return self.test_command(stage, scratch, events)

    def test_command(self, stage: Path, scratch: Path, events: Path) -> Command:
        """Pytest on a copy of the tests in `scratch`, configured by us alone."""
        runner, settings = self.runner, scratch / "pytest.ini"
        for path in [*runner.helpers(), *self.test_files]:
            copy = scratch / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(runner.root / path, copy)
        settings.write_text(runner.pytest_ini())
        options = [
            *("-c", str(settings)),
            *("--rootdir", str(scratch)),
            *("--basetemp", str(scratch / "tmp")),
            *("-p", "no:cacheprovider"),
            *("-q", "--tb=short", "--color=no", "--continue-on-collection-errors"),
            *(["--maxfail=1"] if self.kind == "before" else []),
        ]
        argv = _python(stage, events, "tests", json.dumps(self.retired))
        return Command(
            [*argv, *options, *(self.only or self.test_files)],
            child_environment(PYTHONPATH=str(stage), MINISGL_MODELS=str(runner.models)),
        )

    def result(self) -> Result:
        number = self.chapter.number
        return Result(self.title, number, self.kind, self.stage, self.rerun)


class Runner:
    """Runs and judges the jobs of one course.

    Files it makes are below `build/`: `stages/` (exported once, by tree), `runs/`
    (scratch, removed) and `cache/check/` (passes).
    """

    def __init__(self, course: Course, stack: Stack) -> None:
        self.course, self.stack = course, stack
        self.root = course.root
        self.build = self.root / "build"
        self.runs = self.build / "runs"

    # what there is to do

    def jobs(self, numbers: Sequence[int], kinds: Sequence[str] = KINDS) -> list[Job]:
        """The jobs of these chapters, the long ones first so that no core idles."""
        jobs = [
            Job(self, self.course.chapter(number), kind)
            for number in numbers
            for kind in kinds
        ]
        order = {"tests": 0, "example": 1, "before": 2}
        return sorted(jobs, key=lambda j: (order[j.kind], -j.chapter.number))

    def stage_dir(self, number: int) -> Path:
        """A folder with exactly the files of a stage, `build/stages/NN-tree`."""
        target = self.build / "stages" / f"{number:02}-{self.stack.tree(number)[:12]}"
        files = self.stack.files(number)
        if target.is_dir() and read_tree(target) == files:
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
            fresh = Path(temporary) / "stage"
            fresh.mkdir()
            self.stack.export(number, fresh)
            if target.is_dir() and read_tree(target) != files:
                shutil.rmtree(target)
            with suppress(FileExistsError, NotADirectoryError):
                os.rename(fresh, target)  # another check may have been faster
        return target

    def run(
        self,
        todo: Sequence[Job],
        *,
        jobs: int,
        timeout: float,
        ended: Callable[[Result], None] = lambda result: None,
        tick: Callable[[list[Running]], None] = lambda running: None,
    ) -> list[Result]:
        """Run what is not remembered, `jobs` at a time; results in chapter order.

        `ended` hears of every result as it comes, remembered ones first.
        """
        keys = {job: self.key(job) for job in todo}
        known = {job: self.remembered(job) for job in todo}
        results = in_order(result for result in known.values() if result)
        for result in results:
            ended(result)

        def judge(job: Job, end: Ended) -> None:
            result = self.judge(job, end)
            self.remember(job, result, keys[job])
            results.append(result)
            ended(result)

        waiting = [job for job, result in known.items() if not result]
        run_all(
            waiting,
            jobs=jobs,
            timeout=timeout,
            folder=self.runs,
            ended=judge,
            tick=tick,
        )
        return in_order(results)

    # how it is run

    def example_command(
        self, chapter: Chapter, stage: Path, events: Path, seed: int = 0
    ) -> Command:
        script = self.root / chapter.example
        return Command(
            _python(stage, events, "example", str(script)),
            child_environment(
                PYTHONPATH=os.pathsep.join([str(stage), str(script.parent)]),
                PYTHONHASHSEED=str(seed),
                MINISGL_MODELS=str(self.models),
                MINISGL_RECORD="1",
            ),
        )

    def helpers(self) -> list[str]:
        """What the tests of all chapters share: conftest.py and its like."""
        return [
            f"tests/{path.name}"
            for path in sorted((self.root / "tests").glob("*.py"))
            if not path.name.startswith("test_")
        ]

    @property
    def models(self) -> Path:
        return Path(os.environ.get("MINISGL_MODELS") or self.root / "models").resolve()

    def pytest_ini(self, *more: str) -> str:
        """Our own settings and `more` lines, with the project's markers."""
        project = self.root / "pyproject.toml"
        settings = tomllib.loads(project.read_text()) if project.exists() else {}
        pytest = settings.get("tool", {}).get("pytest", {}).get("ini_options", {})
        lines = [f"    {marker}" for marker in pytest.get("markers", [])]
        head = ["[pytest]", "addopts = --strict-markers", "xfail_strict = true"]
        return "\n".join([*head, *more, "markers =", *lines]) + "\n"

    # what came of it

    def judge(self, job: Job, ended: Ended) -> Result:
        """The verdict on a job that ended."""
        judges = {
            "example": self._judge_example,
            "tests": self._judge_tests,
            "before": self._judge_before,
        }
        result = job.result()
        result.seconds = round(ended.seconds, 2)
        if ended.stopped:
            return result.fail(ended.stopped, tail(ended.stderr))
        return judges[job.kind](job, ended, result)

    def _judge_example(self, job: Job, ended: Ended, result: Result) -> Result:
        path = recorded_here(job.chapter)
        recorded = self.root / path
        if problem := example_problem(ended):
            return result.fail(problem, tail(ended.stderr))
        if not recorded.is_file():
            next_step = f"next: tools/steps.py record {job.chapter.number}"
            return result.fail(f"{path} is missing", next_step)
        if ended.stdout != recorded.read_bytes():
            diff = output_diff(recorded.read_bytes(), ended.stdout)
            return result.fail(f"prints other than {path}", diff)
        result.passed = 1
        return result

    def _judge_tests(self, job: Job, ended: Ended, result: Result) -> Result:
        record = TestRecord.of(ended.events)
        result.passed = len(record.having("passed"))
        result.skipped = record.having("skipped")
        result.retired = record.having("retired")
        result.retired += [
            TestResult(path, "retired", why)
            for path, why in job.retired.items()
            if "::" not in path
        ]
        result.failures = record.bad
        if problem := session_problem(record, ended):
            return result.fail(problem, tail(ended.stderr or text_of(ended.stdout)))
        if record.bad:
            first = record.bad[0]
            return result.fail(_count(record.bad), f"{first.id}\n{first.text}")
        if job.only:
            return result if result.passed else result.fail("no test ran")
        return self._whole(job, record, result)

    def _whole(self, job: Job, record: TestRecord, result: Result) -> Result:
        """Every chapter has a test that ran, and every retired test exists."""
        seen = {test.id.partition("[")[0] for test in record.having("retired")}
        for name in job.retired:
            if "::" in name and name not in seen:
                return result.fail(f"retired, but there is no such test: {name}")
        for chapter in job.story:
            own = [test for test in record.tests if test.file in chapter.tests]
            if any(test.outcome in ("passed", "retired") for test in own):
                continue
            if own:
                reasons = sorted({test.message for test in own})
                problem = f"chapter {chapter.number}: all {len(own)} tests were skipped"
                return result.fail(problem, "\n".join(reasons))
            if not all(path in job.retired for path in chapter.tests):
                return result.fail(f"chapter {chapter.number}: no test ran")
        return result

    def _judge_before(self, job: Job, ended: Ended, result: Result) -> Result:
        record = TestRecord.of(ended.events)
        if record.bad:
            result.passed = 1
            return result
        if record.end is None or record.end["status"] not in (0, 1, 5):
            problem = session_problem(record, ended)
            return result.fail(problem, tail(ended.stderr or text_of(ended.stdout)))
        passed, skipped = record.having("passed"), record.having("skipped")
        if not passed:
            what = (
                f"all {len(skipped)} tests were skipped" if skipped else "no test ran"
            )
            return result.fail(what, "\n".join(sorted({t.message for t in skipped})))
        where = f"at stage {job.stage}, without the chapter"
        ids = "\n".join(test.id for test in passed)
        return result.fail(f"all {len(passed)} tests of the chapter pass {where}", ids)

    # the memory of passes

    def key(self, job: Job) -> str:
        """A hash of everything that the verdict on `job` depends on."""
        paths = [*self.helpers(), *job.test_files]
        if job.kind == "example":
            shared = (self.root / job.chapter.example).parent.glob("*.py")
            names = [p for p in sorted(shared) if not p.name.startswith("ch")]
            paths = [job.chapter.example, recorded_here(job.chapter)]
            paths += [p.relative_to(self.root).as_posix() for p in names]
        return _digest(
            {
                "kind": job.kind,
                "tree": self.stack.tree(job.stage),
                "files": {path: _file_digest(self.root / path) for path in paths},
                "retired": job.retired,
                "environment": self.environment,
            }
        )

    @cached_property
    def environment(self) -> dict[str, Any]:
        """What of this machine and installation can change a verdict."""
        return {
            "rules": [_file_digest(CHILD.with_name(name)) for name in _RULES],
            "python": [sys.version, sys.platform, platform.machine()],
            "packages": {name: _version(name) for name in _PACKAGES},
            "devices": _devices(),
            "models": _listing(self.models),
            "markers": self.pytest_ini(),
        }

    def remembered(self, job: Job) -> Result | None:
        """The pass that `job` had before, if nothing it depends on has changed."""
        if job.only:
            return None
        try:
            data = json.loads(self._memory(job).read_text())
            result = Result.from_json(data)
        except (OSError, ValueError, TypeError, KeyError):
            return None
        result.cached = True
        return result

    def remember(self, job: Job, result: Result, key: str) -> None:
        """Keep a pass. `key` was taken before the run: files may have changed since."""
        if not result.ok or job.only or key != self.key(job):
            return
        path = self._memory(job)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(result.as_json(), indent=1).encode())

    def _memory(self, job: Job) -> Path:
        return self.build / "cache" / "check" / f"{self.key(job)}.json"


def recorded_here(chapter: Chapter) -> str:
    """The recording that the example must match on this machine."""
    if chapter.model is not None and is_there(find(chapter.model), models_dir()):
        return chapter.recorded_with_model
    return chapter.recorded


def read_tree(folder: Path) -> dict[str, bytes]:
    """The files below `folder` by path, without what Python leaves behind."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def in_order(results: Iterable[Result]) -> list[Result]:
    """As the chapters come, whatever ended first."""
    return sorted(results, key=lambda r: (r.chapter, KINDS.index(r.kind)))


def select(course: Course, numbers: Iterable[int]) -> list[int]:
    """Chapter numbers to work on: those asked for, in order, or all."""
    wanted = sorted(set(numbers)) or [chapter.number for chapter in course.chapters]
    return [course.chapter(number).number for number in wanted]


def _python(stage: Path, events: Path, *rest: str) -> list[str]:
    """A fresh interpreter: no user site, no caller's folder, no compiled files left."""
    return [
        *(sys.executable, "-s", "-P", "-B", "-X", "utf8"),
        *(str(CHILD), str(stage), str(events), *rest),
    ]


def _count(bad: Sequence[TestResult]) -> str:
    return f"{len(bad)} failed" if len(bad) > 1 else f"failed: {bad[0].id}"


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _devices() -> list[str]:
    """Whether there is CUDA, without the seconds that importing torch takes."""
    driver = Path("/proc/driver/nvidia/version")
    found = [str(p) for p in sorted(Path("/dev").glob("nvidia[0-9]*"))]
    found += [driver.read_text()] if driver.is_file() else []
    return [*found, os.environ.get("CUDA_VISIBLE_DEVICES", "all")]


def _listing(folder: Path) -> dict[str, int]:
    """Which models there are: their files and sizes."""
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in sorted(folder.glob("[!.]*/*"))
        if path.is_file()
    }
