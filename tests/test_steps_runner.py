"""The running half of the steps tool, on small courses without torch."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from course import runner as runner_module
from course.cli import main
from course.cli.report import Board, table
from course.jobs import Command, Ended, child_environment, run_all
from course.recording import record
from course.results import Result
from course.runner import CHILD, KINDS, Job, Runner
from rich.console import Console
from support.mini_course import COUNTER, STORE, STRICT, MiniCourse

STEPS = Path(__file__).resolve().parent.parent / "tools" / "steps.py"


@pytest.fixture
def course(tmp_path: Path) -> MiniCourse:
    return MiniCourse(tmp_path / "a course")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(runner: Runner, *numbers: int, kinds: tuple[str, ...] = KINDS) -> list[Result]:
    chapters = numbers or [c.number for c in runner.course.chapters]
    return runner.run(runner.jobs(chapters, kinds), jobs=2, timeout=60)


def one(runner: Runner, number: int, kind: str) -> Result:
    return run(runner, number, kinds=(kind,))[0]


def steps(root: Path, *words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["steps.py", *words])
    return main(root)


def bad(results: list[Result]) -> dict[str, str]:
    return {f"{r.chapter} {r.kind}": r.problem for r in results if not r.ok}


# what passes, and what it says


def test_a_good_course_passes_and_a_second_run_says_that_it_is_cached(
    course, monkeypatch, capsys
):
    course.write()
    assert steps(course.root, "check", "--json", "r.json", monkeypatch=monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("ok      0") for line in lines) == 9
    assert "ok   guarantee 9" in "\n".join(lines)
    assert not list((course.root / "build" / "runs").iterdir())

    assert steps(course.root, "check", monkeypatch=monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("cached  0") for line in lines) == 9
    assert "9 of 9 cached: unchanged since they passed" in lines


def test_on_a_terminal_running_jobs_are_live_lines(course):
    runner, shown = course.write(), io.StringIO()
    jobs = runner.jobs([1], ["tests"])
    console = Console(file=shown, force_terminal=True, width=80)
    with Board(console, 1) as board:
        results = runner.run(
            jobs, jobs=1, timeout=60, ended=board.ended, tick=board.tick
        )
    assert "01 counter: tests" in shown.getvalue()
    assert "0 of 1 done" in shown.getvalue()
    assert "ok      01 counter: tests" not in shown.getvalue()
    shown.truncate(0)
    console.print(table(runner.course.chapters, results))
    assert "ok" in shown.getvalue() and "(2 passed)" in shown.getvalue()


def test_the_report_lists_guarantees_and_every_job(course, monkeypatch, tmp_path):
    course.examples[0] = (course.examples[0][0], "4\n")
    course.write()
    report = tmp_path / "report.json"
    words = ["check", "1", "--json", str(report)]
    assert steps(course.root, *words, monkeypatch=monkeypatch) == 1
    data = json.loads(report.read_text())
    assert data["ok"] is False
    held = {g["number"]: (g["held"], g["checked"]) for g in data["guarantees"]}
    assert held == {8: (0, 1), 9: (1, 1), 10: (1, 1)}
    assert [(r["kind"], r["ok"]) for r in data["results"]] == [
        ("example", False),
        ("tests", True),
        ("before", True),
    ]


def test_a_different_output_is_shown_as_a_diff_with_the_command_to_run_it_again(
    course, monkeypatch, capsys
):
    course.examples[1] = (course.examples[1][0], "2\n")
    course.write()
    assert steps(course.root, "check", "2", monkeypatch=monkeypatch) == 1
    shown = capsys.readouterr()
    assert "-2\n    +1\n" in shown.out
    assert "again: tools/steps.py check 2 --only example" in shown.out
    assert "next: tools/steps.py check 2 --only example" in shown.err
    words = ["check", "2", "--only", "example"]
    assert steps(course.root, *words, monkeypatch=monkeypatch) == 1
    shown = capsys.readouterr().out
    assert "02 store: tests" not in shown


def test_a_missing_newline_at_the_end_of_the_output_is_a_difference(course):
    course.examples[0] = (course.examples[0][0], "3")
    result = one(course.write(), 1, "example")
    assert result.problem == "prints other than examples/ch01_counter.out"
    assert "no newline at end" in result.detail


def test_a_hunk_moved_to_the_next_chapter_fails_its_own(course):
    course.stages[1]["minisgl/counter.py"] = COUNTER
    results = run(course.write(), kinds=("tests",))
    name = "tests/test_ch02_store.py::test_a_negative_count_is_refused"
    assert bad(results) == {"2 tests": f"failed: {name}"}
    assert [(r.passed, len(r.failures)) for r in results] == [(2, 0), (3, 1), (5, 0)]


def test_a_module_moved_to_the_next_chapter_fails_its_own(course):
    del course.stages[1]["minisgl/store.py"]
    results = run(course.write(), 2)
    assert set(bad(results)) == {"2 example", "2 tests"}
    failure = next(r for r in results if r.kind == "tests" and not r.ok).failures[0]
    assert failure.message == "ModuleNotFoundError: No module named 'minisgl.store'"


def test_a_handler_lost_in_one_chapter_and_restored_in_the_next_is_reported(course):
    course.stages[0]["minisgl/counter.py"] = STRICT
    course.stages[1]["minisgl/counter.py"] = COUNTER
    course.tests[0] += (
        "\n\ndef test_less_than_nothing_is_refused():\n"
        "    try:\n        Counter().add(-1)\n    except ValueError:\n        return\n"
        "    raise AssertionError('accepted')\n"
    )
    course.tests[1] = course.tests[1].partition("\n\ndef test_a_negative")[0] + "\n"
    results = run(course.write(), kinds=("tests",))
    lost = "tests/test_ch01_counter.py::test_less_than_nothing_is_refused"
    assert bad(results) == {"2 tests": f"failed: {lost}"}
    assert results[1].stage == 2


def test_tests_that_pass_without_their_chapter_are_reported(course):
    course.tests[2] = (
        "from minisgl.store import Store\n\n\ndef test_nothing_new():\n"
        "    assert Store().get('a').total == 0\n"
    )
    results = run(course.write(), 3, kinds=("tests", "before"))
    problem = "all 1 tests of the chapter pass at stage 2, without the chapter"
    assert bad(results) == {"3 before": problem}
    assert results[-1].stage == 2


def test_one_test_that_fails_before_the_chapter_is_enough(course):
    course.tests[2] = (
        "from minisgl.store import Store\n\n\ndef test_old():\n    Store()\n\n\n"
        "def test_new():\n    import minisgl.report\n"
    )
    assert bad(run(course.write(), 3)) == {}


# tests that do not run


def test_a_chapter_whose_tests_are_all_skipped_fails(course):
    course.tests[1] = (
        "import pytest\n\npytest.importorskip('no_such_package')\n\n\n"
        "def test_something():\n    pass\n"
    )
    results = run(course.write(), 2, kinds=("tests", "before"))
    assert bad(results) == {
        "2 tests": "chapter 2: all 1 tests were skipped",
        "2 before": "all 1 tests were skipped",
    }
    assert "no_such_package" in results[0].detail


def test_a_skip_is_counted_and_listed_with_its_reason(course, monkeypatch, capsys):
    course.tests[1] += (
        "\n\n@pytest.mark.skip(reason='no such device')\n"
        "def test_on_a_device():\n    pass\n"
    )
    course.write()
    words = ["check", "2", "3", "--only", "tests"]
    assert steps(course.root, *words, monkeypatch=monkeypatch) == 0
    shown = capsys.readouterr().out
    assert "4 passed, 1 skipped" in shown
    assert "skipped  1: no such device\n         tests/test_ch02_store.py (1)" in shown


def test_a_file_without_tests_fails(course):
    course.tests[1] = "import minisgl.store\n"
    results = run(course.write(), 2, kinds=("tests", "before"))
    assert bad(results) == {"2 tests": "chapter 2: no test ran"}  # before: fails there


def test_a_retired_test_is_not_run_and_listed_with_its_reason(course):
    name = "tests/test_ch01_counter.py::test_counts_add_up"
    course.stages[2]["minisgl/counter.py"] = STRICT.replace("+= count", "+= 2 * count")
    course.tests[1] = "import minisgl.store\n\n\ndef test_nothing():\n    pass\n"
    course.tests[2] = "import minisgl.report\n\n\ndef test_nothing():\n    pass\n"
    assert bad(run(course.write(), 3, kinds=("tests",))) == {
        "3 tests": f"failed: {name}"
    }
    course.retired[2] = {name: "counts double now"}
    result = one(course.write(), 3, "tests")
    assert result.ok
    assert [(t.id, t.message) for t in result.retired] == [(name, "counts double now")]


def test_a_retired_test_that_does_not_exist_is_an_error(course):
    name = "tests/test_ch01_counter.py::test_gone"
    course.retired[2] = {name: "long gone"}
    result = one(course.write(), 3, "tests")
    assert result.problem == f"retired, but there is no such test: {name}"


def test_one_test_can_be_run_again_alone_and_is_not_remembered(
    course, monkeypatch, capsys
):
    course.stages[1]["minisgl/counter.py"] = COUNTER
    course.write()
    name = "tests/test_ch02_store.py::test_a_negative_count_is_refused"
    words = ["check", "2", "--test", name]
    assert steps(course.root, *words, monkeypatch=monkeypatch) == 1
    shown = capsys.readouterr().out
    assert f"again: tools/steps.py check 2 --test {name}" in shown
    assert "DID NOT RAISE" in shown
    assert not (course.root / "build" / "cache" / "check").exists()


# the memory of passes


def change_stage(course: MiniCourse) -> None:
    course.stages[1]["minisgl/store.py"] = STORE + "# more\n"
    course.stages[2]["minisgl/store.py"] = STORE + "# more\n"
    course.write()


def put(path: str, text: str) -> Callable[[MiniCourse], None]:
    return lambda course: course.put(path, text)


def retire(course: MiniCourse) -> None:
    name = "tests/test_ch01_counter.py::test_counts_add_up"
    course.retired[1] = {name: "for now"}
    course.write()


ALL = {f"{n} {kind}" for n in (1, 2, 3) for kind in KINDS}
TESTS = {f"{n} {kind}" for n in (1, 2, 3) for kind in ("tests", "before")}
EXAMPLES = {"1 example", "2 example", "3 example"}
PASS = "def test_more():\n    pass\n"


@pytest.mark.parametrize(
    ("change", "again"),
    [
        pytest.param(lambda course: None, set(), id="nothing"),
        pytest.param(
            change_stage,
            {"2 example", "2 tests", "3 example", "3 tests", "3 before"},
            id="a stage",
        ),
        pytest.param(put("examples/ch02_store.py", "#"), {"2 example"}, id="example"),
        pytest.param(put("examples/ch02_store.out", ""), {"2 example"}, id="output"),
        pytest.param(put("examples/helper.py", ""), EXAMPLES, id="example helper"),
        pytest.param(
            put("tests/test_ch02_store.py", PASS),
            {"2 tests", "2 before", "3 tests"},
            id="a test",
        ),
        pytest.param(put("tests/conftest.py", ""), TESTS, id="conftest"),
        pytest.param(put("tests/tiny_models.py", ""), TESTS, id="test helper"),
        pytest.param(put("tests/test_of_a_tool.py", PASS), set(), id="another test"),
        pytest.param(put("models/Smol/config.json", "{}"), ALL, id="a model"),
        pytest.param(put("README.md", "text"), set(), id="a text"),
        pytest.param(retire, {"2 tests", "3 tests"}, id="a retired test"),
    ],
)
def test_a_pass_is_forgotten_exactly_when_something_it_depends_on_changes(
    course, change, again
):
    def keys(runner: Runner) -> dict[str, str]:
        jobs = runner.jobs([1, 2, 3])
        return {f"{j.chapter.number} {j.kind}": runner.key(j) for j in jobs}

    before = keys(course.write())
    change(course)
    after = keys(course.runner())
    assert {name for name, key in after.items() if key != before[name]} == again


@pytest.mark.parametrize("what", ["_version", "_devices", "_listing"])
def test_a_pass_is_forgotten_when_versions_or_devices_or_models_change(
    course, monkeypatch, what
):
    runner = course.write()
    job = Job(runner, runner.course.chapter(1), "tests")
    before = runner.key(job)
    monkeypatch.setattr(runner_module, what, lambda *given: "other")
    assert course.runner().key(job) != before


def test_hiding_the_cuda_devices_is_another_environment(course, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    before = course.write().environment
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert course.runner().environment != before


def test_only_passes_are_remembered(course):
    course.examples[0] = (course.examples[0][0], "4\n")
    runner = course.write()
    assert not one(runner, 1, "example").ok
    assert not one(runner, 1, "example").cached
    course.put("examples/ch01_counter.out", "3\n")
    assert not one(course.runner(), 1, "example").cached
    assert one(course.runner(), 1, "example").cached


def test_a_pass_is_not_remembered_if_its_files_changed_meanwhile(course):
    runner = course.write()
    job = Job(runner, runner.course.chapter(1), "example")
    key = runner.key(job)
    result = one(runner, 1, "example")
    course.put("examples/ch01_counter.out", "4\n")
    runner.remember(job, result, key)
    assert runner.remembered(job) is None


def test_a_damaged_memory_is_no_pass(course):
    runner = course.write()
    one(runner, 1, "example")
    for file in (course.root / "build" / "cache" / "check").iterdir():
        file.write_text('{"ok": true')
    assert not one(runner, 1, "example").cached


def test_a_stage_folder_that_was_changed_by_hand_is_written_again(course):
    runner = course.write()
    folder = runner.stage_dir(1)
    (folder / "minisgl" / "counter.py").write_text("broken(")
    (folder / "minisgl" / "more.py").write_text("")
    assert runner.stage_dir(1) == folder
    assert sorted(p.name for p in folder.rglob("*.py")) == ["__init__.py", "counter.py"]
    assert (folder / "minisgl" / "counter.py").read_text() == COUNTER


# what a run must withstand


def test_a_hang_is_stopped_and_names_the_job_and_the_test(course):
    course.tests[0] += "\n\ndef test_for_ever():\n    while True:\n        pass\n"
    runner = course.write()
    jobs = runner.jobs([1], ["tests"])
    (result,) = runner.run(jobs, jobs=1, timeout=3)
    assert result.title == "01 counter: tests"
    name = "tests/test_ch01_counter.py::test_for_ever"
    assert result.problem == f"nothing happened for 3 s in {name}"
    assert result.rerun == "tools/steps.py check 1 --only tests"


class Script:
    """A child that runs some Python and may write events."""

    title = "a script"

    def __init__(self, source: str) -> None:
        self.source = source

    def prepare(self, scratch: Path, events: Path) -> Command:
        argv = [sys.executable, "-c", SAY + self.source, str(events)]
        return Command(argv, child_environment())


SAY = """\
import json, sys, time
def say(**fields):
    with open(sys.argv[1], "a") as file:
        file.write(json.dumps(fields) + "\\n")
"""


def run_script(source: str, folder: Path, timeout: float) -> Ended:
    ends: list[Ended] = []
    run_all(
        [Script(source)],
        jobs=1,
        timeout=timeout,
        folder=folder,
        ended=lambda work, end: ends.append(end),
    )
    return ends[0]


def test_a_long_run_with_signs_of_life_is_not_stopped(tmp_path):
    source = "for i in range(8):\n    time.sleep(0.2)\n    say(event='test', id=i)\n"
    end = run_script(source, tmp_path / "runs", timeout=1)
    assert (end.stopped, end.status, len(end.events)) == ("", 0, 8)
    assert end.seconds > 1


def test_half_a_line_of_a_record_is_not_read(tmp_path):
    source = "say(event='end')\nopen(sys.argv[1], 'a').write('{\"event\": \"test\"')\n"
    assert run_script(source, tmp_path / "runs", 10).events == [{"event": "end"}]


def test_what_an_example_starts_ends_with_it(course, tmp_path):
    pid = tmp_path / "pid"
    course.examples[0] = (
        "import subprocess\n\nchild = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(pid)!r}, 'w').write(str(child.pid))\n",
        "",
    )
    assert one(course.write(), 1, "example").ok
    assert is_gone(int(pid.read_text()))


def test_an_endless_output_is_stopped(course, monkeypatch):
    monkeypatch.setattr("course.jobs._OUTPUT_LIMIT", 1 << 20)
    course.examples[0] = ("while True:\n    print('x' * 1000)\n", "")
    result = one(course.write(), 1, "example")
    assert result.problem == "it wrote more than 1 MiB to stdout"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import os\n\nos._exit(0)\n", "left before its end, exit status 0"),
        ("raise SystemExit(3)\n", "failed, exit status 3"),
        ("raise SystemExit('no')\n", "failed, exit status 1"),
        ("import minisgl.later\n", "failed, exit status 1"),
    ],
)
def test_an_example_that_does_not_end_well_fails(course, source, problem):
    course.examples[0] = (source, "")
    assert one(course.write(), 1, "example").problem == problem


def test_a_traceback_of_an_example_begins_in_the_example(course):
    course.examples[0] = ("def f():\n    raise KeyError('x')\n\n\nf()\n", "")
    detail = one(course.write(), 1, "example").detail
    assert detail.splitlines()[0] == "Traceback (most recent call last):"
    assert detail.splitlines()[1].endswith('ch01_counter.py", line 5, in <module>')


def test_leaving_a_test_run_early_is_not_a_pass(course):
    course.tests[0] += "\n\ndef test_leave():\n    import os\n\n    os._exit(0)\n"
    result = one(course.write(), 1, "tests")
    name = "tests/test_ch01_counter.py::test_leave"
    assert result.problem == (
        f"the tests stopped before their end in {name}, exit status 0"
    )


def test_settings_of_the_caller_do_not_change_a_verdict(course, monkeypatch, tmp_path):
    course.stages[1]["minisgl/counter.py"] = COUNTER  # chapter 2 must fail
    evil = tmp_path / "evil"
    for path, text in {
        "sitecustomize.py": "print('hello')\n",
        "usercustomize.py": "print('hello')\n",
        "evil_plugin.py": "def pytest_collection_modifyitems(items): items.clear()\n",
        "minisgl/__init__.py": "raise SystemExit('the wrong package')\n",
    }.items():
        (evil / path).parent.mkdir(parents=True, exist_ok=True)
        (evil / path).write_text(text)
    course.put("pytest.ini", "[pytest]\naddopts = --collect-only\n")
    course.put("conftest.py", "raise SystemExit('the wrong conftest')\n")
    runner = course.write()
    for name, value in {
        "PYTEST_ADDOPTS": "--collect-only -p no_such_plugin",
        "PYTEST_PLUGINS": "evil_plugin",
        "PYTHONPATH": str(evil),
        "PYTHONSTARTUP": str(evil / "sitecustomize.py"),
        "PYTHONOPTIMIZE": "2",
        "PYTHONWARNINGS": "error",
        "PYTHONHASHSEED": "17",
        "HOME": str(evil),
        "COLUMNS": "20",
        "MINISGL_RECORD": "0",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(evil)
    results = run(runner, 2)
    assert set(bad(results)) == {"2 tests"}
    assert [(r.passed, len(r.failures)) for r in results] == [(1, 0), (3, 1), (1, 0)]


def test_an_installed_package_cannot_answer_for_the_stage(tmp_path):
    """Stage 0 is empty: the import must fail, although another minisgl is there."""
    other, stage = tmp_path / "other", tmp_path / "stage"
    (other / "minisgl").mkdir(parents=True)
    (other / "minisgl" / "__init__.py").write_text("")
    stage.mkdir()
    script = tmp_path / "example.py"
    script.write_text("import minisgl\n\nprint(minisgl.__file__)\n")
    argv = [sys.executable, "-P", CHILD, stage, tmp_path / "events", "example", script]
    env = {**os.environ, "PYTHONPATH": str(other)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert "No module named 'minisgl' at this stage" in done.stderr
    (stage / "minisgl").mkdir()
    (stage / "minisgl" / "__init__.py").write_text("")
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.stdout == f"{stage / 'minisgl' / '__init__.py'}\n"


def test_a_package_without_init_is_not_taken_from_elsewhere(course):
    del course.stages[0]["minisgl/__init__.py"]
    assert "without __init__.py" in one(course.write(), 1, "tests").problem


def test_tests_cannot_change_the_course(course):
    course.tests[0] += (
        "\n\ndef test_writes():\n    from pathlib import Path\n\n"
        "    Path(__file__).write_text('')\n    Path('new').write_text('')\n"
    )
    runner = course.write()
    before = sorted(p for p in course.root.rglob("*") if "build" not in p.parts)
    assert one(runner, 1, "tests").ok
    text = (course.root / "tests" / "test_ch01_counter.py").read_text()
    assert text == course.tests[0]
    assert sorted(p for p in course.root.rglob("*") if "build" not in p.parts) == before


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_an_interrupted_check_leaves_no_child_and_remembers_nothing(
    course, tmp_path, name
):
    if name == "SIGKILL" and sys.platform != "linux":
        pytest.skip("a killed parent takes its children along on Linux only")
    pid = tmp_path / "pid"
    course.examples[0] = (
        f"import os, time\n\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(60)\n",
        "",
    )
    course.write()
    argv = [sys.executable, STEPS, "--root", course.root, "check", "1", "--jobs", "1"]
    child = subprocess.Popen(
        [*argv, "--only", "example"], stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: pid.exists() and pid.read_text())
    child.send_signal(getattr(signal, name))
    _, shown = child.communicate(timeout=20)
    assert child.returncode == (-signal.SIGKILL if name == "SIGKILL" else 130)
    assert "Traceback" not in shown
    assert is_gone(int(pid.read_text()))
    if name != "SIGKILL":
        assert not list((course.root / "build" / "runs").iterdir())
    assert not (course.root / "build" / "cache" / "check").exists()


# recording


def test_recording_writes_what_changed_and_shows_it(course, monkeypatch, capsys):
    course.examples[0] = ("print('new')\nimport minisgl\n", "old\n")
    course.write()
    assert steps(course.root, "record", "1", "2", monkeypatch=monkeypatch) == 0
    shown = capsys.readouterr().out
    assert "recorded   examples/ch01_counter.out" in shown
    assert "-old\n+new\n" in shown
    assert "unchanged  examples/ch02_store.out" in shown
    assert (course.root / "examples" / "ch01_counter.out").read_bytes() == b"new\n"


def test_with_its_optional_model_an_example_has_another_recording(
    course, monkeypatch, tmp_path
):
    """The recording of the machine without the model stays as it is."""
    (tmp_path / "models").mkdir()
    monkeypatch.setenv("MINISGL_MODELS", str(tmp_path / "models"))
    source = (
        "import os\nfrom pathlib import Path\n\nimport minisgl\n\n"
        "print(os.listdir(os.environ['MINISGL_MODELS']))\n"
    )
    course.examples[0] = (source, "[]\n")
    course.write()
    manifest = course.root / "steps/chapters.toml"
    text = manifest.read_text()
    manifest.write_text(text.replace("number = 1\n", 'number = 1\nmodel = "gemma3"\n'))
    runner = course.runner()
    (job,) = runner.jobs([1], ["example"])
    before = runner.key(job)
    (recording,) = record(runner, [1], jobs=1, timeout=60)
    assert (recording.path, recording.is_changed) == (
        "examples/ch01_counter.out",
        False,
    )

    model = tmp_path / "models" / "gemma-3-270m"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "gemma3_text"}')
    (model / "model.safetensors").touch()
    assert runner.key(job) != before
    (recording,) = record(runner, [1], jobs=1, timeout=60)
    assert recording.path == "examples/ch01_counter.gemma3.out"
    assert recording.after == b"['gemma-3-270m']\n"
    assert (course.root / "examples/ch01_counter.out").read_text() == "[]\n"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("print(1)\nraise KeyError\n", "failed, exit status 1"),
        ("print({'a', 'b', 'c', 'd'})\n", "two runs print different things"),
        ("import os\n\nprint(os.getpid())\n", "two runs print different things"),
    ],
)
def test_recording_refuses_an_example_that_fails_or_differs(course, source, problem):
    course.examples[0] = (source, "old\n")
    (recording,) = record(course.write(), [1], jobs=2, timeout=60)
    assert recording.problem.startswith(problem)
    assert (course.root / "examples" / "ch01_counter.out").read_text() == "old\n"


def test_an_unknown_chapter_is_wrong_use(course, monkeypatch, capsys):
    course.write()
    assert steps(course.root, "check", "7", monkeypatch=monkeypatch) == 2
    assert "next: chapters that exist: 1, 2, 3" in capsys.readouterr().err


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "nothing happened for 20 s"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether the process ended; it may take a moment to be reaped."""

    def ended() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        status = Path(f"/proc/{pid}/stat")
        return status.exists() and status.read_text().split(") ")[1][0] == "Z"

    wait_for(ended)
    return True
