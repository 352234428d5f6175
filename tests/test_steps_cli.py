"""The commands that look at stages, and what every command has in common."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from course.cli import main
from support.patch_course import REQ, THREE, TWO, PatchCourse

REPO = Path(__file__).resolve().parents[1]
STEPS = REPO / "tools" / "steps.py"


@pytest.fixture
def course(tmp_path: Path) -> PatchCourse:
    return PatchCourse(tmp_path / "a course")


@pytest.fixture
def steps(course, monkeypatch, capfd):
    """Run a command in this process: (exit code, stdout, stderr)."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["steps.py", *words])
        code = main(course.root)
        sys.stdout.flush()
        said = capfd.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out, said.err

    return run


def test_list_names_every_chapter_and_whether_it_is_written(course, steps):
    (course.root / "steps/03_three.patch").unlink()
    code, out, _ = steps("list")
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert rows[1] == ["01", "one", "The", "one", "A", "part", "steps/01_one.patch"]
    assert rows[3][-2:] == ["(none", "yet)"]


def test_titles_and_parts_are_text_not_markup(course, steps):
    course.replace("steps/chapters.toml", "The one", "[red] one")
    assert "[red] one" in steps("list")[1]


def test_tree_marks_what_is_new_changed_and_gone(tmp_path, course, steps):
    assert steps("tree", "2")[1].splitlines() == [
        "minisgl/ at chapter 02 two",
        "├──   __init__.py",
        "├──   core.py",
        "└── + pool.py",
    ]
    assert "├── ~ core.py" in steps("tree", "3")[1]
    without = {path: text for path, text in THREE.items() if "pool" not in path}
    deep = {**without, "minisgl/kv/deep/a.py": "", "minisgl/[red].py": ""}
    PatchCourse(course.root, TWO, deep)
    assert steps("tree", "2")[1].splitlines() == [
        "minisgl/ at chapter 02 two",
        "├── + [red].py",
        "├──   __init__.py",
        "├── ~ core.py",
        "├── kv/",
        "│   └── deep/",
        "│       └── + a.py",
        "└── - pool.py",
    ]


def test_show_prints_a_diff_that_git_can_apply(course, steps):
    code, out, _ = steps("show", "2")
    assert (code, out) == (0, course.read("steps/02_two.patch"))
    assert steps("show", "3", "core.py")[1] == course.read("steps/03_three.patch")


def test_show_of_a_file_the_chapter_leaves_alone_lists_what_it_changes(steps):
    assert steps("show", "2", "core.py") == (
        2,
        "",
        "error: chapter 2 does not change core.py\nnext: it changes minisgl/pool.py\n",
    )


def test_build_writes_a_stage_and_knows_when_it_is_there(course, steps):
    folder = course.root / "build/stages/03_three"
    assert steps("build", "3")[1] == f"wrote {folder / 'minisgl'}\n"
    assert (folder / "minisgl/core.py").read_text() == THREE["minisgl/core.py"]
    assert steps("build", "3")[1] == f"{folder} is up to date\n"
    (folder / "minisgl/core.py").write_text("mine = 1\n")
    code, _, err = steps("build", "3")
    assert (code, err.splitlines()[0]) == (2, f"error: {folder} is not empty")
    assert (folder / "minisgl/core.py").read_text() == "mine = 1\n"


def test_build_writes_where_it_is_told_to(tmp_path, steps):
    dest = tmp_path / "over there"
    assert steps("build", "1", "--to", str(dest))[0] == 0
    assert (dest / "minisgl/core.py").read_text() == REQ
    assert steps("build", "1", "--to", str(dest / "minisgl/core.py"))[0] == 2


def test_a_folder_that_cannot_be_written_is_a_users_error(tmp_path, steps):
    (tmp_path / "file").write_text("")
    code, _, err = steps("build", "1", "--to", str(tmp_path / "file" / "stage"))
    assert code == 2
    assert "error: " in err
    assert "next: " in err


@pytest.mark.parametrize("command", ["tree", "show", "build", "edit"])
def test_an_unknown_chapter_is_answered_with_those_that_exist(steps, command):
    expected = "error: there is no chapter 9\nnext: chapters that exist: 1, 2, 3\n"
    assert steps(command, "9") == (2, "", expected)


@pytest.mark.parametrize(
    "words", [["tree"], ["tree", "x"], ["nonsense"], ["list", "1"]]
)
def test_wrong_use_exits_2_and_points_to_help(steps, words):
    code, out, err = steps(*words)
    assert (code, out) == (2, "")
    assert "--help" in err or "-h" in err


def test_a_broken_patch_is_a_failed_check(course, steps):
    course.write("steps/02_two.patch", "nonsense\n")
    code, _, err = steps("show", "2")
    assert code == 1
    assert err.startswith("error: chapter 02 two: steps/02_two.patch: No valid patches")


def test_a_broken_manifest_is_wrong_use(course, steps):
    course.write("steps/chapters.toml", "[[chapter]]\n")
    code, _, err = steps("list")
    assert code == 2
    assert err.startswith("error: steps/chapters.toml chapter entry 1: number is miss")


@pytest.mark.parametrize(
    "command", ["list", "tree", "show", "build", "verify", "edit", "save", "abort"]
)
def test_the_help_of_every_command_has_an_example(steps, command):
    code, out, _ = steps(command, "--help")
    assert code == 0
    assert f"tools/steps.py {command}" in " ".join(out.split())


def outside(
    course: PatchCourse, *words: str, **env: str
) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(STEPS), "--root", str(course.root), *words],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        cwd="/",
        check=False,
    )


def test_piped_output_is_never_wrapped_or_coloured(tmp_path):
    deep = tmp_path / ("a long name " * 10) / ("b" * 100)
    course = PatchCourse(deep)
    done = outside(course, "build", "1", COLUMNS="20", TERM="xterm-256color")
    assert done.stdout == f"wrote {deep}/build/stages/01_one/minisgl\n"
    done = outside(course, "list", COLUMNS="20")
    assert done.stdout.splitlines()[1].split()[-1] == "steps/01_one.patch"
    assert "\x1b" not in done.stdout


def on_a_terminal(course: PatchCourse, *words: str, **env: str) -> str:
    """What a command prints on a terminal of 30 columns."""
    import pty

    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(STEPS), "--root", str(course.root), *words],
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "30", **env},
    )
    os.close(follower)
    said = b""
    while True:
        try:
            more = os.read(leader, 65536)
        except OSError:
            break
        if not more:
            break
        said += more
    os.close(leader)
    assert process.wait() == 0
    return said.decode()


def test_a_narrow_terminal_gets_colours_unless_it_does_not_want_them(
    course, monkeypatch
):
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = on_a_terminal(course, "show", "3")
    plain = on_a_terminal(course, "show", "3", NO_COLOR="1")
    assert "\x1b[3" in coloured
    assert "\x1b[3" not in plain
    assert "-        return 1" in plain and "+        return 3" in plain


def test_it_runs_from_anywhere_and_finds_its_own_course():
    done = subprocess.run(
        [sys.executable, str(STEPS), "list"],
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "steps/01_core.patch" in done.stdout or "01" in done.stdout


@pytest.fixture
def bare(tmp_path: Path) -> list[str]:
    """A command: a copy of tools/, run by a Python without packages."""
    cache = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPO / "tools", tmp_path / "tools", ignore=cache)
    return [sys.executable, "-S", str(tmp_path / "tools" / "steps.py"), "list"]


def test_a_bare_python_without_an_environment_says_what_to_do(bare):
    done = subprocess.run(bare, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: No module named " in done.stderr
    assert "next: run `make check` once" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bare_python_goes_on_in_the_environment_of_the_checkout(tmp_path, bare):
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(bare, capture_output=True, text=True, check=False)
    assert done.stdout == f"{tmp_path / 'tools' / 'steps.py'} list\n"
