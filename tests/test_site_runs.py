"""Recorded runs: what is recorded, where it runs, and when it no longer counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from course.cli.figures import main
from course.errors import CheckFailed
from course.manifest import Course
from course.pages.record import record
from course.pages.runs import Recorded, Run, RunError
from support.page_course import PageCourse

SCRIPT = """\
from minisgl.counter import Counter
try:
    Counter().add(-1)
    print("took it, total 17")
except ValueError as error:
    print("refused it, total 40")
"""
LISTED = "about = 'a count below 0'\nchapter = {}\n[figures]\ntotal = 'total (\\d+)'\n"


@pytest.fixture
def course(tmp_path: Path) -> PageCourse:
    course = PageCourse(tmp_path).write()
    course.put("docs/runs/below.py", SCRIPT)
    course.put("docs/runs/below.toml", LISTED.format(1))
    return course


def recorded(course: PageCourse) -> Recorded:
    return record(Course.load(course.root), "below")


@pytest.mark.parametrize(("chapter", "total"), [(1, "17"), (2, "40")])
def test_a_run_sees_the_stage_of_its_chapter(
    course: PageCourse, chapter: int, total: str
):
    course.put("docs/runs/below.toml", LISTED.format(chapter))
    assert recorded(course).figure("total") == total


def test_without_a_chapter_a_run_sees_the_finished_package(course: PageCourse):
    course.put("docs/runs/below.toml", LISTED.format(1).replace("chapter = 1\n", ""))
    assert "refused" in recorded(course).output


def test_what_was_recorded_is_read_back(course: PageCourse):
    made = recorded(course)
    assert Recorded.load(course.root, "below") == made
    assert made.output == "took it, total 17\n"
    assert "Python" in made.machine and len(made.date) == len("2026-01-31")


def test_a_command_takes_arguments(course: PageCourse):
    course.put("tools/two.py", "import sys\nprint(sys.argv[1:])\n")
    listed = "about = 'x'\ncommand = ['tools/two.py', '--a', 'b']\n"
    course.put("docs/runs/below.toml", listed)
    assert recorded(course).output == "['--a', 'b']\n"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/runs/below.py", SCRIPT + "\n"),
        ("docs/runs/below.toml", LISTED.format(2)),
    ],
)
def test_a_recording_is_stale_when_what_is_run_changes(
    course: PageCourse, path: str, text: str
):
    recorded(course)
    course.put(path, text)
    with pytest.raises(RunError, match=r"below\.json was recorded before its command"):
        Recorded.load(course.root, "below")


def test_the_words_around_a_figure_may_change_without_a_new_run(course: PageCourse):
    recorded(course)
    course.put("docs/runs/below.toml", LISTED.format(1).replace("a count", "counts"))
    assert Recorded.load(course.root, "below").figure("total") == "17"


@pytest.mark.parametrize(
    "script", ["raise SystemExit(3)\n", "print('nothing')\n", "import nowhere\n"]
)
def test_a_run_that_fails_keeps_the_recording_it_had(course: PageCourse, script: str):
    recorded(course)
    before = (course.root / "docs/runs/below.json").read_bytes()
    course.put("docs/runs/below.py", script)
    with pytest.raises((CheckFailed, RunError)):
        recorded(course)
    assert (course.root / "docs/runs/below.json").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("about = \n", "is not TOML"),
        ("chapter = 1\n", "must say about"),
        ("about = 'x'\nruns = 2\n", "unknown keys: runs"),
        ("about = 'x'\ncommand = 'ls'\n", "must say command"),
        ("about = 'x'\nchapter = '1'\n", "chapter as a number"),
        ("about = 'x'\nfigures = 3\n", r"\[figures\] as a table"),
        ("about = 'x'\n[figures]\na = '('\n", "no regular expression for figure a"),
        ("about = 'x'\n[figures]\na = 'x'\n", "one group in the regex of figure a"),
    ],
)
def test_a_listing_that_is_wrong_is_refused(course: PageCourse, text: str, what: str):
    course.put("docs/runs/below.toml", text)
    with pytest.raises(RunError, match=what):
        Run.load(course.root, "below")


def test_an_unknown_run_or_figure_names_those_that_exist(course: PageCourse):
    with pytest.raises(RunError, match="no docs/runs/above.toml") as caught:
        Run.load(course.root, "above")
    assert "below" in caught.value.hint
    with pytest.raises(RunError, match="no figure sum") as caught:
        recorded(course).figure("sum")
    assert "total" in caught.value.hint


def test_a_recording_that_was_tampered_with_is_refused(course: PageCourse):
    recorded(course)
    file = course.root / "docs/runs/below.json"
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "output": 3}))
    with pytest.raises(RunError, match="is no recording"):
        Recorded.load(course.root, "below")


def test_the_command_lists_records_and_shows(
    course: PageCourse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["figures.py", *words])
        code = main(course.root)
        return code, *capsys.readouterr()

    assert run()[:2] == (0, "below\n")
    code, _, error = run("--show", "below")
    assert code == 2 and "tools/figures.py below" in error and "Trace" not in error
    code, said, _ = run("below")
    assert code == 0 and "{{run:below.total}}  17" in said
    assert run("--show", "below")[:2] == (0, said)
