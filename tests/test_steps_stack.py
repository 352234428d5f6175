"""The patch stack: stages are exact, whatever a patch or the user's git holds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from course.errors import CourseError
from course.git import EMPTY_TREE, GitError, GitRepo, clean_environment
from course.stack import PatchError, Stack
from support.patch_course import (
    ONE,
    REQ,
    THREE,
    TWO,
    PatchCourse,
    git,
    git_patches,
    new_file,
)

REPO = Path(__file__).resolve().parent.parent
FIRST = "steps/01_one.patch"
SECOND = "steps/02_two.patch"


def as_bytes(stage: dict[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in sorted(stage.items())}


@pytest.fixture
def course(tmp_path: Path) -> PatchCourse:
    return PatchCourse(tmp_path / "a course")


def refused(course: PatchCourse, patch: str | bytes, path: str = FIRST) -> str:
    """What the stack says about a course with this patch in it; nothing is built."""
    course.write(path, patch)
    number = int(path[len("steps/") :][:2])
    with pytest.raises(PatchError) as error:
        course.stack.tree(number)
    assert error.value.exit_code == 1
    assert f"chapter {number:02d}" in error.value.message
    assert path in error.value.message
    assert "tools/steps.py edit" in error.value.hint
    return error.value.message


# what a stage is


def test_a_stage_is_the_empty_tree_with_the_patches_so_far(course):
    stack = course.stack
    stages = [stack.files(number) for number in (0, 1, 2, 3)]
    assert stages == [{}, as_bytes(ONE), as_bytes(TWO), as_bytes(THREE)]
    assert stack.tree(0) == EMPTY_TREE


def test_building_twice_gives_the_same_id_also_when_a_patch_repeats_itself(tmp_path):
    rows = "x = 1\n" * 12
    stages = [{"minisgl/rows.py": rows}, {"minisgl/rows.py": rows + "x = 1\n" * 8}]
    course = PatchCourse(tmp_path, *stages)
    stack = course.stack
    first = [stack.tree(2), stack.tree(2), stack.tree(1), course.stack.tree(2)]
    assert first == [first[0], first[0], first[2], first[0]] and first[2] != first[0]
    assert course.stack.files(2) == as_bytes(stages[1])


def test_equal_stages_have_equal_ids_in_different_courses(course, tmp_path):
    other = PatchCourse(tmp_path / "other", ONE, THREE)
    assert other.stack.tree(2) == course.stack.tree(3)


def test_the_diff_of_two_stages_is_the_stored_patch(course):
    stack = course.stack
    for number, path in ((1, FIRST), (2, SECOND), (3, "steps/03_three.patch")):
        assert stack.diff(number - 1, number).decode() == course.read(path)


def test_patches_have_no_index_lines_and_apply_all_the_same(course):
    assert "\nindex " not in course.read(FIRST)
    assert "minisgl/__init__.py" in course.stack.files(1)  # an empty file, too
    assert course.stack.files(1)["minisgl/__init__.py"] == b""


def test_a_blank_line_of_context_is_stored_without_a_blank(tmp_path):
    before = "a = 1\n\nb = 2\n"
    course = PatchCourse(
        tmp_path, {"minisgl/m.py": before}, {"minisgl/m.py": before + "c = 3\n"}
    )
    patch = course.stack.diff(1, 2)
    assert b"\n\n b = 2\n" in patch and b" \n" not in patch
    assert course.read(SECOND) == patch.decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"minisgl/m.py": "a = 1\n"}, {"minisgl/m.py": "a = 1"}),
        ({"minisgl/m.py": "a = 1"}, {"minisgl/m.py": "a = 2\n"}),
        ({"minisgl/m.py": ""}, {"minisgl/m.py": "a = 1\n"}),
        ({"minisgl/m.py": "a = 1\n"}, {"minisgl/m.py": ""}),
        ({"minisgl/m.py": "", "minisgl/n.py": "1\n"}, {"minisgl/n.py": "1\n"}),
        ({"minisgl/m.py": "a\n"}, {"minisgl/m.py": "a\n", "minisgl/s/empty.py": ""}),
        ({"minisgl/m.py": REQ}, {"minisgl/renamed.py": REQ}),
        ({"minisgl/m.py": REQ}, {"minisgl/m/__init__.py": REQ}),
        ({"minisgl/a b.py": "a = 1\n"}, {"minisgl/a b.py": "a = 2\n"}),
        ({"minisgl/ü.py": "a = 1\n"}, {"minisgl/ü.py": "ä = 'ö'\n"}),
        ({"minisgl/m.py": "index 1..2\n"}, {"minisgl/m.py": "index 1..3\n--- a\n"}),
    ],
)
def test_every_kind_of_text_change_survives(tmp_path, before, after):
    course = PatchCourse(tmp_path, before, after)
    stack = course.stack
    assert (stack.files(1), stack.files(2)) == (as_bytes(before), as_bytes(after))
    assert stack.diff(1, 2).decode() == course.read(SECOND)


def test_a_rename_is_stored_in_full_and_shown_as_a_rename(tmp_path):
    course = PatchCourse(tmp_path, {"minisgl/old.py": REQ}, {"minisgl/new.py": REQ})
    stack = course.stack
    assert b"rename from" not in stack.diff(1, 2)
    assert b"rename from minisgl/old.py" in stack.shown_diff(2)


def test_show_takes_a_file_or_a_folder_with_or_without_the_package(course):
    stack = course.stack
    for path in ("pool.py", "minisgl/pool.py", "./minisgl/pool.py", "minisgl"):
        assert b"+class Pool:" in stack.shown_diff(2, path)
    with pytest.raises(
        CourseError, match=r"chapter 2 does not change core\.py"
    ) as error:
        stack.shown_diff(2, "core.py")
    assert error.value.hint == "it changes minisgl/pool.py"


# where a stage is written


def test_export_writes_the_files_with_mode_644_into_a_new_folder(course, tmp_path):
    dest = tmp_path / "deep" / "stage 2"
    course.stack.export(2, dest)
    found = {p.relative_to(dest).as_posix(): p for p in dest.rglob("*") if p.is_file()}
    assert {k: p.read_bytes() for k, p in found.items()} == as_bytes(TWO)
    assert {p.stat().st_mode & 0o111 for p in found.values()} == {0}


def test_export_takes_an_empty_folder_and_refuses_one_with_anything_in_it(
    course, tmp_path
):
    (tmp_path / "empty").mkdir()
    course.stack.export(1, tmp_path / "empty")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    for dest in (tmp_path / "full", tmp_path / "full" / "mine.txt"):
        with pytest.raises(CourseError, match="is not empty"):
            course.stack.export(1, dest)
    assert os.listdir(tmp_path / "full") == ["mine.txt"]


# patches that do not fit exactly

TWINS = """\
class A:
    def go(self):
        x = 1
        y = 2
        z = 3
        return x


class B:
    def go(self):
        x = 1
        y = 2
        z = 3
        return x
"""
# git's default context does not show which class this is
IN_B = TWINS[: TWINS.rindex("y = 2")] + "y = 20" + TWINS[TWINS.rindex("y = 2") + 5 :]


def test_a_hunk_that_would_land_in_the_wrong_twin_is_refused(tmp_path):
    """Nine lines more above the twins, and A stands where B stood."""
    course = PatchCourse(tmp_path, {"minisgl/t.py": TWINS}, {"minisgl/t.py": IN_B})
    assert course.stack.files(2)["minisgl/t.py"].decode() == IN_B
    moved = {"minisgl/t.py": "# more\n" * 9 + TWINS}
    said = refused_after(course, moved)
    assert "minisgl/t.py: does not apply exactly" in said
    assert "offset" in said


def refused_after(course: PatchCourse, first: dict[str, str]) -> str:
    """Chapter 1 becomes `first`, chapter 2's patch stays: what is said about it."""
    course.write(FIRST, git_patches(first)[0])
    return refused(course, course.read(SECOND), SECOND)


def test_a_changed_line_of_context_names_chapter_file_and_line(course):
    course.replace(FIRST, "+        return 1", "+        return 2")
    with pytest.raises(PatchError) as error:
        course.stack.tree(3)
    assert "chapter 03 three" in error.value.message
    assert "steps/03_three.patch: minisgl/core.py:2 " in error.value.message


def test_a_file_created_twice_is_refused(course):
    said = refused(course, new_file("minisgl/core.py", "a = 1"), SECOND)
    assert "minisgl/core.py: already exists in index" in said


def test_a_file_deleted_that_is_not_there_is_refused(course):
    patch = "diff --git a/minisgl/x.py b/minisgl/x.py\ndeleted file mode 100644\n"
    assert "minisgl/x.py: does not exist in index" in refused(course, patch, SECOND)


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("", "No valid patches in input"),
        ("not a patch\n", "No valid patches in input"),
        (new_file("minisgl/a.py", "a")[:-2], "corrupt patch"),
    ],
)
def test_what_is_no_patch_is_refused(course, patch, message):
    assert message in refused(course, patch)


def test_a_missing_patch_says_how_to_write_it(course):
    (course.root / SECOND).unlink()
    with pytest.raises(PatchError, match=r"there is no steps/02_two\.patch") as error:
        course.stack.tree(2)
    assert error.value.hint == "write the chapter: tools/steps.py edit 2"


# hostile patches


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("../evil.py", "leaves the package with '..'"),
        ("minisgl/../../evil.py", "leaves the package with '..'"),
        ("/tmp/evil.py", "invalid path|is an absolute path|is outside"),
        ("evil.py", r"evil\.py is outside minisgl/"),
        ("minisglx/evil.py", r"minisglx/evil\.py is outside minisgl/"),
        (".git/hooks/evil", "has a forbidden part"),
        ("minisgl/.git/evil", "has a forbidden part"),
        ("minisgl/.GIT/evil", "has a forbidden part"),
        ("minisgl/a\\b.py", "holds a character"),
    ],
)
def test_a_path_outside_the_package_is_refused(course, tmp_path, path, message):
    import re

    before = {p for p in tmp_path.rglob("*") if "build" not in p.parts}
    quoted = path.replace("\\", "\\\\")
    patch = new_file(path, "evil = 1")
    if quoted != path:
        patch = patch.replace(f"a/{path}", f'"a/{quoted}"')
        patch = patch.replace(f"b/{path}", f'"b/{quoted}"')
    assert re.search(message, refused(course, patch))
    assert {p for p in tmp_path.rglob("*") if "build" not in p.parts} == before


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (
            new_file("minisgl/link.py", "/etc/passwd", mode="120000"),
            "minisgl/link.py is a symbolic link",
        ),
        (
            new_file("minisgl/run.py", "a = 1", mode="100755"),
            "minisgl/run.py is executable; files of the package have mode 644",
        ),
        (
            new_file("minisgl/sub", "Subproject commit " + "1" * 40, mode="160000"),
            "minisgl/sub is a submodule",
        ),
        (
            new_file("minisgl/a.py", "a = 1") + new_file("minisgl/A.py", "a = 1"),
            "minisgl/a.py differs from minisgl/A.py in upper and lower case only",
        ),
        (
            new_file("minisgl/a/x.py", "a = 1") + new_file("minisgl/A/y.py", "a = 1"),
            "minisgl/a differs from minisgl/A in upper and lower case only",
        ),
    ],
)
def test_only_plain_files_can_be_in_a_stage(course, patch, message):
    assert message in refused(course, patch)


def test_nothing_is_written_through_a_symbolic_link(course, tmp_path):
    (tmp_path / "outside").mkdir()
    link = new_file("minisgl/link", str(tmp_path / "outside"), mode="120000")
    refused(course, link + new_file("minisgl/link/evil.py", "a = 1"))
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_mode_change_is_refused(course):
    patch = "diff --git a/minisgl/core.py b/minisgl/core.py\n"
    said = refused(course, patch + "old mode 100644\nnew mode 100755\n", SECOND)
    assert "minisgl/core.py is executable" in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = 1\r\n", ":6 has a CR line end"),
        (b"a = '\xe9'\n", ":6 is not UTF-8"),
        (b"a = '\0'\n", ":6 is binary"),
    ],
)
def test_content_is_utf8_text_with_lf(course, content, message):
    patch = new_file("minisgl/a.py", "?").encode().replace(b"?\n", content)
    assert FIRST + message in refused(course, patch)


def test_a_patch_turned_to_crlf_by_a_checkout_is_refused(course):
    text = course.read(FIRST).replace("\n", "\r\n")
    assert f"{FIRST}:1 has a CR line end" in refused(course, text)


def test_a_binary_patch_is_refused(course):
    patch = (
        "diff --git a/minisgl/b.bin b/minisgl/b.bin\nnew file mode 100644\n"
        f"index {'0' * 40}..{'1' * 40}\nGIT binary patch\nliteral 1\nIcmZP0\n\n"
    )
    assert f"{FIRST}:4 is binary" in refused(course, patch)


# the user's machine

HOSTILE_CONFIG = """\
[diff]
    noprefix = true
    external = false
    mnemonicPrefix = true
    suppressBlankEmpty = false
    renames = copies
    algorithm = patience
    context = 9
    orderFile = /dev/null/order
[color]
    ui = always
[core]
    abbrev = 7
    quotePath = false
    autocrlf = true
    attributesFile = {home}/attributes
    hooksPath = {home}/hooks
[apply]
    whitespace = fix
    ignoreWhitespace = change
[merge]
    conflictStyle = merge
    renames = false
[init]
    defaultObjectFormat = sha256
[user]
    useConfigOnly = true
"""


@pytest.fixture
def hostile_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user whose git does everything differently."""
    home = tmp_path / "home"
    (home / ".config" / "git").mkdir(parents=True)
    config = HOSTILE_CONFIG.format(home=home)
    (home / ".gitconfig").write_text(config)
    (home / ".config/git/config").write_text(config)
    for name in ("attributes", ".config/git/attributes"):
        (home / name).write_text("*.py binary\n")
    (home / ".config/git/ignore").write_text("*.py\n")
    settings = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "GIT_CONFIG_SYSTEM": str(home / ".gitconfig"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "diff.noprefix",
        "GIT_CONFIG_VALUE_0": "true",
        "GIT_CONFIG_PARAMETERS": "'diff.noprefix'='true'",
        "GIT_EXTERNAL_DIFF": "false",
        "GIT_DIFF_OPTS": "--unified=0",
        "GIT_DIR": str(home / "nowhere"),
        "GIT_WORK_TREE": str(home),
        "GIT_INDEX_FILE": str(home / "index"),
        "GIT_OBJECT_DIRECTORY": str(home / "objects"),
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_TRACE": "1",
        "LANGUAGE": "de",
        "LC_ALL": "de_DE.UTF-8",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return home


def test_the_users_git_configuration_changes_nothing(tmp_path, hostile_home):
    blanks = "a = 1\n\nb = 2   \n\tc\n"  # what whitespace=fix would correct
    stages = [{"minisgl/ü m.py": blanks}, {"minisgl/ü m.py": blanks + "d = 4 \n"}]
    course = PatchCourse(tmp_path / "a course", *stages)
    stack = course.stack
    assert stack.files(2) == as_bytes(stages[1])
    assert stack.diff(1, 2).decode() == course.read(SECOND)
    assert stack.tree(2) == "e6313e20fa2550ef11280616dfde0dbc96db6482"
    assert not (hostile_home / "index").exists()
    assert not (hostile_home / "objects").exists()


def test_a_read_only_home_and_no_home_are_fine(course, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    monkeypatch.setenv("HOME", str(home))
    assert course.stack.files(1) == as_bytes(ONE)
    monkeypatch.delenv("HOME")
    shutil.rmtree(course.root / "build")
    assert course.stack.files(1) == as_bytes(ONE)


def test_a_course_inside_another_repository_leaves_that_one_alone(tmp_path):
    git(tmp_path, "init", "-q")
    before = sorted(p for p in (tmp_path / ".git").rglob("*"))
    course = PatchCourse(tmp_path / "sub" / "course")
    assert course.stack.files(3) == as_bytes(THREE)
    assert sorted(p for p in (tmp_path / ".git").rglob("*")) == before


def test_the_scratch_repository_may_be_deleted_at_any_time(course):
    stack = course.stack
    first = stack.tree(3)
    shutil.rmtree(course.root / "build")
    assert stack.files(3) == as_bytes(THREE)
    assert (stack.tree(3), course.stack.tree(3)) == (first, first)


def test_something_else_in_its_place_is_named(course):
    course.write("build/steps.git/mine.txt", "mine")
    with pytest.raises(GitError, match=r"steps\.git is in the way"):
        course.stack.tree(1)
    assert course.read("build/steps.git/mine.txt") == "mine"
    assert os.listdir(course.root / "build") == ["steps.git"]


BUILD = """
import sys
from pathlib import Path
from course.manifest import Course
from course.stack import Stack
course = Course.load(Path(sys.argv[1]))
for _ in range(3):
    print(Stack(course).tree(3))
"""


def test_processes_that_start_together_do_not_disturb_one_another(course):
    """The scratch repository does not exist yet: all of them make it."""
    env = {**os.environ, "PYTHONPATH": str(REPO / "tools")}
    command = [sys.executable, "-c", BUILD, str(course.root)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        for _ in range(6)
    ]
    said = {process.communicate()[0] for process in running}
    assert said == {f"{course.stack.tree(3)}\n" * 3}
    assert os.listdir(course.root / "build") == ["steps.git"]
    left = {p.name for p in (course.root / "build/steps.git").iterdir()}
    assert left == {"HEAD", "config", "objects", "refs"}


def test_an_old_git_is_refused_before_anything_is_made(course, tmp_path, monkeypatch):
    old = tmp_path / "bin" / "git"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho git version 2.37.1\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(old.parent), prepend=os.pathsep)
    with pytest.raises(GitError, match=r"2\.37\.1 is too old") as error:
        course.stack.tree(1)
    assert error.value.hint == "install git 2.38 or newer"
    assert not (course.root / "build").exists()


def test_no_git_is_named(course, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitError, match="git is not installed"):
        course.stack.tree(1)


def test_a_failing_git_is_an_error_that_says_what_git_said(tmp_path):
    repo = GitRepo(tmp_path / "x.git")
    with pytest.raises(GitError, match="git ls-tree failed .*not a tree object"):
        repo.run("ls-tree", "1" * 40)


def test_a_checkout_leaves_line_ends_alone(tmp_path):
    """Of patches, sources and recorded output, whatever core.autocrlf says."""
    env = clean_environment() | {"GIT_CONFIG_GLOBAL": str(tmp_path / "crlf")}
    excludes = "excludesFile = /dev/null"
    (tmp_path / "crlf").write_text(f"[core]\n autocrlf = true\n {excludes}\n")
    top = tmp_path / "clone"
    for path in ("steps/01_core.patch", "minisgl/core.py", "examples/ch01_core.out"):
        (top / path).parent.mkdir(parents=True)
        (top / path).write_bytes(b"a\n\n b\n")
    shutil.copy(REPO / ".gitattributes", top)

    def run(*args: str) -> None:
        subprocess.run(["git", *args], cwd=top, env=env, check=True)

    run("init", "-q")
    run("add", ".")
    run("commit", "-qm", "all")
    for path in ("steps", "minisgl", "examples"):
        shutil.rmtree(top / path)
    run("checkout", "-q", ".")
    for path in ("steps/01_core.patch", "minisgl/core.py", "examples/ch01_core.out"):
        assert (top / path).read_bytes() == b"a\n\n b\n"


def test_stages_are_a_function_of_the_patches_alone(course):
    """Neither minisgl/ nor the names of the scratch files matter."""
    shutil.rmtree(course.root / "minisgl")
    assert Stack(course.course).files(3) == as_bytes(THREE)
