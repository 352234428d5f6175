"""Records what examples print, so that `check` can compare with it exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from course.jobs import Command, Ended, run_all
from course.manifest import Chapter
from course.results import example_problem, output_diff, tail
from course.runner import Runner, recorded_here, write_whole

# Two runs with different hash seeds: an order that comes from a set shows up.
_SEEDS = (0, 1)


@dataclass(frozen=True)
class ExampleRun:
    """One run of a chapter's example at its own stage."""

    runner: Runner
    chapter: Chapter
    seed: int

    @property
    def title(self) -> str:
        return f"{self.chapter.label}: run {self.seed + 1}"

    def prepare(self, scratch: Path, events: Path) -> Command:
        stage = self.runner.stage_dir(self.chapter.number)
        return self.runner.example_command(self.chapter, stage, events, self.seed)


@dataclass
class Recording:
    """What came of recording one chapter. With a `problem`, nothing was written."""

    chapter: Chapter
    path: str
    before: bytes | None
    runs: dict[int, bytes] = field(default_factory=dict)
    problem: str = ""
    detail: str = ""

    @property
    def after(self) -> bytes:
        return self.runs[_SEEDS[0]]

    @property
    def is_changed(self) -> bool:
        return not self.problem and self.after != self.before

    @property
    def diff(self) -> str:
        return output_diff(self.before or b"", self.after)

    def take(self, run: ExampleRun, ended: Ended) -> None:
        """Note one of the runs."""
        if problem := example_problem(ended):
            self.problem, self.detail = problem, tail(ended.stderr)
        self.runs[run.seed] = ended.stdout
        first, second = (self.runs.get(seed) for seed in _SEEDS)
        if self.problem or first is None or second is None or first == second:
            return
        self.problem = "two runs print different things; mask what differs"
        self.detail = output_diff(first, second)


def record(
    runner: Runner, numbers: Sequence[int], *, jobs: int, timeout: float
) -> list[Recording]:
    """Run the examples of these chapters twice and write what they print.

    A chapter whose example fails, or prints two different things, keeps its recording.
    """
    recordings = {
        number: Recording(chapter, path, _read(runner.root / path))
        for number in numbers
        for chapter in [runner.course.chapter(number)]
        for path in [recorded_here(chapter)]
    }
    chapters = [recording.chapter for recording in recordings.values()]
    runs = [ExampleRun(runner, chapter, s) for chapter in chapters for s in _SEEDS]

    def ended(run: ExampleRun, end: Ended) -> None:
        recordings[run.chapter.number].take(run, end)

    run_all(runs, jobs=jobs, timeout=timeout, folder=runner.runs, ended=ended)
    for recording in recordings.values():
        if recording.is_changed:
            write_whole(runner.root / recording.path, recording.after)
    return list(recordings.values())


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
