"""The author's flow: edit, save, conflict, resolve, abort; and nothing half done."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from course import swap
from course.author import Author, MergeConflict, recover
from course.errors import CheckFailed, CourseError
from course.verify import verify
from support.patch_course import (
    ONE,
    POOL,
    REQ,
    THREE,
    TWO,
    PatchCourse,
    entry,
    git_patches,
    manifest,
)

STEPS = Path(__file__).resolve().parents[1] / "tools" / "steps.py"


@pytest.fixture
def course(tmp_path: Path) -> PatchCourse:
    return PatchCourse(tmp_path / "a course")


def author(course: PatchCourse) -> Author:
    return Author(course.course)


def edit(course: PatchCourse, number: int, path: str, old: str, new: str) -> Path:
    """Open an edit and change one file in it: that file."""
    file = author(course).begin_edit(number) / path
    change(file, old, new)
    return file


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text, (old, text)
    file.write_text(text.replace(old, new))


def stages(course: PatchCourse) -> list[dict[str, str]]:
    stack = course.stack
    return [
        {path: text.decode() for path, text in stack.files(c.number).items()}
        for c in course.course.chapters
    ]


def refuses(
    course: PatchCourse, action: Callable[[], object], match: str
) -> CourseError:
    """`action` fails with this message, and changes nothing outside build/."""
    before = course.state()
    with pytest.raises(CourseError, match=match) as error:
        action()
    assert course.state() == before
    assert error.value.hint
    return error.value


# a change that carries through


def test_a_change_of_an_early_chapter_reaches_every_later_one(course):
    edit(course, 1, "minisgl/core.py", '"A request."', '"A call."')
    saved = author(course).save()
    expected = {
        path: text.replace("A request", "A call") for path, text in THREE.items()
    }
    first, second, third = stages(course)
    assert third == expected
    assert second["minisgl/core.py"] == first["minisgl/core.py"]
    assert "A call" in first["minisgl/core.py"]
    assert course.read("minisgl/core.py") == expected["minisgl/core.py"]
    assert saved.written == [
        "steps/01_one.patch",
        "steps/03_three.patch",
        "minisgl/core.py",
    ]
    assert saved.removed == []
    assert all(r.is_good for r in verify(course.course))
    assert not author(course).is_open


def test_new_deleted_and_renamed_files_carry_through(course):
    work = author(course).begin_edit(1)
    (work / "minisgl/core.py").rename(work / "minisgl/requests.py")
    (work / "minisgl/kv").mkdir()
    (work / "minisgl/kv/__init__.py").write_text("")
    (work / "minisgl/kv/no newline.py").write_text("a = 1")
    saved = author(course).save()
    assert saved.removed == ["minisgl/core.py"]
    last = stages(course)[-1]
    # chapter 3's change of the old file follows the rename
    assert last["minisgl/requests.py"] == THREE["minisgl/core.py"]
    assert sorted(last) == sorted(p for p in course.state() if p.startswith("minisgl/"))
    assert course.read("minisgl/kv/no newline.py") == "a = 1"


def test_a_rename_in_a_later_chapter_follows_an_edit_of_the_old_file(tmp_path):
    renamed = {"minisgl/__init__.py": "", "minisgl/requests.py": REQ}
    course = PatchCourse(tmp_path, ONE, renamed)
    edit(course, 1, "minisgl/core.py", "return 1", "return 7")
    author(course).save()
    first, second = stages(course)
    assert second["minisgl/requests.py"] == first["minisgl/core.py"]
    assert "return 7" in second["minisgl/requests.py"]
    assert b"rename" not in (course.root / "steps/02_two.patch").read_bytes()


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


def test_a_later_change_stays_in_its_twin_when_lines_move_above(tmp_path):
    """The place that a shifted patch gets wrong."""
    at = TWINS.rindex("y = 2")
    in_b = TWINS[:at] + "y = 20" + TWINS[at + 5 :]
    course = PatchCourse(tmp_path, {"minisgl/t.py": TWINS}, {"minisgl/t.py": in_b})
    more = "# more\n" * 9
    edit(course, 1, "minisgl/t.py", "class A:", more + "class A:")
    author(course).save()
    assert stages(course)[1]["minisgl/t.py"] == more + in_b


def test_saving_without_a_change_writes_nothing(course):
    before = {p: p.stat().st_mtime_ns for p in course.root.rglob("*.p*")}
    author(course).begin_edit(2)
    saved = author(course).save()
    assert (saved.written, saved.removed) == ([], [])
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert not author(course).is_open
    assert not (course.root / "build/edit").exists()


def test_saving_the_same_change_twice_writes_once(course):
    edit(course, 1, "minisgl/core.py", "A request", "A call")
    assert author(course).save().written
    work = author(course).begin_edit(1)
    assert "A call" in (work / "minisgl/core.py").read_text()
    assert not author(course).save().written


def test_an_edit_and_its_undoing_give_the_same_bytes(course):
    before = course.state()
    edit(course, 1, "minisgl/core.py", "A request", "A call")
    author(course).save()
    edit(course, 1, "minisgl/core.py", "A call", "A request")
    author(course).save()
    assert course.state() == before


def test_a_patch_that_git_would_write_otherwise_is_rewritten(course):
    course.write(
        "steps/03_three.patch", "hello\n" + course.read("steps/03_three.patch")
    )
    author(course).begin_edit(3)
    assert author(course).save().written == ["steps/03_three.patch"]
    assert course.read("steps/03_three.patch").startswith("diff --git")


def test_a_later_chapter_that_has_nothing_left_to_say_loses_its_patch(course):
    edit(course, 1, "minisgl/core.py", "return 1", "return 3")
    saved = author(course).save()
    assert saved.removed == ["steps/03_three.patch"]
    assert saved.written == ["steps/01_one.patch"]


# conflicts


def start_conflict(course: PatchCourse) -> Path:
    """Chapters 1 and 3 set the same line: the file with markers, in the work folder."""
    edit(course, 1, "minisgl/core.py", "return 1", "return 2")
    error = refuses(course, author(course).save, "chapter 03 three does not merge")
    assert isinstance(error, MergeConflict)
    assert error.exit_code == 1
    assert "CONFLICT (content): Merge conflict in minisgl/core.py" in error.message
    work = course.root / "build/edit/03_three"
    assert str(work) in error.hint
    return work / "minisgl/core.py"


def test_a_conflict_names_chapter_and_file_and_shows_all_three_sides(course):
    file = start_conflict(course)
    lines = file.read_text().splitlines()
    assert lines[4] == "<<<<<<< edited"
    assert lines[5] == "        return 2"
    assert lines[6].startswith("||||||| ")
    assert lines[7:] == [
        "        return 1",
        "=======",
        "        return 3",
        ">>>>>>> chapter-3",
    ]


def test_a_conflict_is_resolved_in_the_work_folder_and_saved_again(course):
    file = start_conflict(course)
    refuses(course, author(course).save, r"core\.py:5 still has a conflict marker")
    file.write_text(REQ.replace("return 1", "return 23"))
    saved = author(course).save()
    first, second, third = stages(course)
    assert "return 2\n" in first["minisgl/core.py"]
    assert second["minisgl/core.py"] == first["minisgl/core.py"]
    assert third["minisgl/core.py"] == file_text(course) == REQ.replace("1", "23")
    assert "minisgl/core.py" in saved.written
    assert all(r.is_good for r in verify(course.course))


def file_text(course: PatchCourse) -> str:
    return course.read("minisgl/core.py")


def test_two_conflicts_come_one_after_the_other(tmp_path):
    def stage(value: int) -> dict[str, str]:
        return {**ONE, "minisgl/core.py": REQ.replace("return 1", f"return {value}")}

    course = PatchCourse(tmp_path, stage(1), stage(2), stage(3))
    edit(course, 1, "minisgl/core.py", "return 1", "return 10")
    refuses(course, author(course).save, "chapter 02 two does not merge")
    (tmp_path / "build/edit/02_two/minisgl/core.py").write_text(
        stage(20)["minisgl/core.py"]
    )
    refuses(course, author(course).save, "chapter 03 three does not merge")
    assert [p.name for p in (tmp_path / "build/edit").iterdir() if p.is_dir()] == [
        "03_three"
    ]
    (tmp_path / "build/edit/03_three/minisgl/core.py").write_text(
        stage(30)["minisgl/core.py"]
    )
    author(course).save()
    assert stages(course) == [stage(10), stage(20), stage(30)]


def test_a_deleted_file_that_a_later_chapter_changes_is_a_conflict(course):
    work = author(course).begin_edit(1)
    (work / "minisgl/core.py").unlink()
    (work / "minisgl/other.py").write_text("unlike = 1\n")
    error = refuses(course, author(course).save, "chapter 03 three does not merge")
    assert (
        "CONFLICT (modify/delete): minisgl/core.py deleted in edited" in error.message
    )
    (course.root / "build/edit/03_three/minisgl/core.py").unlink()
    saved = author(course).save()
    assert saved.removed == ["minisgl/core.py", "steps/03_three.patch"]
    package = sorted(p.name for p in (course.root / "minisgl").iterdir())
    assert package == ["__init__.py", "other.py", "pool.py"]


def test_a_file_that_both_sides_create_is_a_conflict(course):
    work = author(course).begin_edit(1)
    (work / "minisgl/pool.py").write_text("mine = 1\n")
    error = refuses(course, author(course).save, "chapter 02 two does not merge")
    assert "CONFLICT (add/add): Merge conflict in minisgl/pool.py" in error.message


def test_abort_drops_an_edit_also_in_the_middle_of_a_conflict(course):
    before = course.state()
    start_conflict(course)
    author(course).abort()
    assert course.state() == before
    assert not (course.root / "build/edit").exists()
    assert author(course).begin_edit(1).is_dir()


def test_markers_that_no_conflict_put_there_are_content(course):
    text = '"""\n<<<<<<< edited\n"""\n'
    work = author(course).begin_edit(2)
    (work / "minisgl/pool.py").write_text(text)
    author(course).save()
    assert stages(course)[1]["minisgl/pool.py"] == text


# a new chapter


def test_a_new_chapter_is_an_entry_in_the_manifest_and_an_edit(course):
    new = entry(4, "four", ["cache.Cache"])
    course.write("steps/chapters.toml", manifest(3) + new)
    work = author(course).begin_edit(4)
    (work / "minisgl/cache.py").write_text("class Cache: ...\n")
    saved = author(course).save()
    assert saved.written == ["steps/04_four.patch", "minisgl/cache.py"]
    assert stages(course)[3] == {**THREE, "minisgl/cache.py": "class Cache: ...\n"}


def test_a_course_can_begin_with_no_patch_at_all(tmp_path):
    course = PatchCourse(tmp_path, ONE)
    (tmp_path / "steps/01_one.patch").unlink()
    shutil.rmtree(tmp_path / "minisgl")
    work = author(course).begin_edit(1)
    assert list((work / "minisgl").iterdir()) == []
    (work / "minisgl/core.py").write_text(REQ)
    author(course).save()
    assert stages(course) == [{"minisgl/core.py": REQ}]


def test_the_last_chapter_can_adopt_what_was_written_in_the_package(course):
    course.write("minisgl/pool.py", POOL + "\n\nMORE = 1\n")
    course.write("minisgl/extra.py", "")
    error = refuses(
        course,
        lambda: author(course).begin_edit(1),
        "not what the patches give: minisgl/extra.py, minisgl/pool.py",
    )
    assert "tools/steps.py edit 3 --adopt" in error.hint
    author(course).begin_edit(3, adopt=True)
    assert author(course).save().written == ["steps/03_three.patch"]
    assert stages(course)[2]["minisgl/extra.py"] == ""
    assert all(r.is_good for r in verify(course.course))


def test_only_the_last_chapter_can_adopt(course):
    course.write("minisgl/extra.py", "")
    error = refuses(
        course,
        lambda: author(course).begin_edit(2, adopt=True),
        "chapter 2 cannot adopt minisgl/",
    )
    assert "tools/steps.py edit 3 --adopt" in error.hint


# wrong use


def test_one_edit_at_a_time(course):
    author(course).begin_edit(1)
    refuses(course, lambda: author(course).begin_edit(2), "an edit is open in .*01_one")


def test_save_and_abort_need_an_open_edit(course):
    for action in (author(course).save, author(course).abort):
        assert "edit N" in refuses(course, action, "no edit is open").hint


def test_an_unknown_chapter_opens_nothing(course):
    refuses(course, lambda: author(course).begin_edit(9), "there is no chapter 9")
    assert not author(course).is_open


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("minisgl/a.py", b"a = 1\r\n", r"minisgl/a\.py has a CR line end \(line 1\)"),
        ("minisgl/a.py", b"\xe9", r"minisgl/a\.py is not UTF-8"),
        ("minisgl/a.bin", b"\0", r"minisgl/a\.bin is binary"),
        ("minisgl/CORE.py", b"", "upper and lower case only"),
        ("notes.txt", b"", r"notes\.txt is outside minisgl/"),
        ("tests/test_a.py", b"", r"tests/test_a\.py is outside minisgl/"),
    ],
)
def test_a_file_that_cannot_be_stored_is_named(course, name, content, message):
    work = author(course).begin_edit(1)
    (work / name).parent.mkdir(exist_ok=True)
    (work / name).write_bytes(content)
    assert str(work) in refuses(course, author(course).save, message).hint
    (work / name).unlink()
    author(course).save()


def test_links_and_executables_in_the_work_folder_are_refused(course):
    work = author(course).begin_edit(1)
    (work / "minisgl/link.py").symlink_to("core.py")
    (work / "minisgl/core.py").chmod(0o755)
    message = r"core\.py is executable.*\n.*link\.py is a symbolic link"
    refuses(course, author(course).save, message)


def test_ignored_files_in_the_work_folder_are_not_stored(course):
    work = author(course).begin_edit(1)
    (work / "minisgl/__pycache__").mkdir()
    (work / "minisgl/__pycache__/core.pyc").write_bytes(b"\0")
    assert author(course).save().written == []


@pytest.mark.parametrize(
    "path", ["minisgl/core.py", "minisgl/extra.py", "steps/02_two.patch"]
)
def test_save_refuses_when_something_changed_behind_its_back(course, path):
    edit(course, 1, "minisgl/core.py", "A request", "A call")
    before = (course.root / path).read_bytes() if path != "minisgl/extra.py" else None
    course.write(path, "theirs = 1\n")
    message = f"changed since this edit began: {path}"
    error = refuses(course, author(course).save, message)
    assert str(course.root / "build/edit/01_one") in error.hint
    if before is None:
        (course.root / path).unlink()
    else:
        course.write(path, before)
    assert author(course).save().written


def test_save_refuses_when_a_chapter_was_added_meanwhile(course):
    author(course).begin_edit(1)
    course.write("steps/chapters.toml", manifest(3) + entry(4, "four", ["a.B"]))
    refuses(course, author(course).save, "changed since this edit began: steps/04_four")


def test_names_and_titles_may_change_while_an_edit_is_open(course):
    edit(course, 1, "minisgl/core.py", "A request", "A call")
    course.replace("steps/chapters.toml", "The one", "The first")
    assert author(course).save().written


def test_an_edit_whose_scratch_repository_is_gone_says_where_the_work_is(course):
    author(course).begin_edit(1)
    shutil.rmtree(course.root / "build/steps.git")
    error = refuses(course, author(course).save, r"steps\.git, .*was deleted")
    assert str(course.root / "build/edit") in error.hint


def test_two_saves_at_once_are_one_save(course):
    import fcntl

    author(course).begin_edit(1)
    with open(course.root / "build/edit.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refuses(course, author(course).save, "another edit, save or abort is running")
    author(course).save()


# interrupted


def die_at(
    monkeypatch: pytest.MonkeyPatch, at: int, *places: tuple[object, str]
) -> None:
    """End this process, as a kill does, just before its n-th call of one of these."""
    left = at

    def wrap(real: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **kwargs: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                os._exit(9)
            return real(*args, **kwargs)

        return counted

    for owner, name in places:
        monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))


def killed(
    monkeypatch: pytest.MonkeyPatch,
    action: Callable[[], object],
    at: int,
    *places: tuple[object, str],
) -> bool:
    """Whether `action`, in a fork, was killed; False when it got through before."""
    pid = os.fork()
    if pid == 0:
        with monkeypatch.context() as patch:
            die_at(patch, at, *places)
            try:
                action()
            except BaseException as error:
                os._exit(0 if isinstance(error, MergeConflict) else 1)
            os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, 9), status
    return status == 9


DISK = (
    (swap, "_write"),
    (os, "replace"),
    (os, "unlink"),
    (os, "rename"),
    (os, "removedirs"),
    (shutil, "rmtree"),
)
CHANGES = {
    "steps/01.patch": b"new 1",
    "steps/02.patch": None,
    "steps/03.patch": b"new 3",
    "minisgl/core.py": b"new core",
    "minisgl/kv/deep/new.py": b"new file",
    "minisgl/gone/old.py": None,
}
BEFORE = {path: b"old" for path in CHANGES if "new.py" not in path}
AFTER = {path: content for path, content in CHANGES.items() if content is not None}


def files_below(root: Path) -> dict[str, bytes]:
    found = [p for top in ("steps", "minisgl") for p in (root / top).rglob("*")]
    files = (p for p in found if p.is_file())
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in files}


def test_a_swap_killed_at_any_point_changes_everything_or_nothing(
    tmp_path, monkeypatch
):
    half_done = 0
    for at in range(1, 100):
        root = tmp_path / str(at)
        for path, content in BEFORE.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        journal = root / "build" / "journal"

        def action(root: Path = root, journal: Path = journal) -> None:
            swap.swap_files(root, journal, CHANGES)

        was_killed = killed(monkeypatch, action, at, *DISK)
        now = files_below(root)
        undone = swap.roll_back(root, journal)
        assert files_below(root) in (BEFORE, AFTER)
        if undone:
            half_done += now not in (BEFORE, AFTER)
            assert files_below(root) == BEFORE
            assert not (root / "minisgl/kv").exists()
        assert not swap.roll_back(root, journal)
        if not was_killed:
            break
        swap.swap_files(root, journal, CHANGES)  # what a killed one left is no matter
        assert files_below(root) == AFTER
    assert not was_killed
    assert at > 20
    assert half_done >= 5


def test_rolling_back_can_be_killed_too(tmp_path, monkeypatch):
    for at in range(1, 100):
        root = tmp_path / str(at)
        for path, content in BEFORE.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        journal = root / "build" / "journal"

        def forward(root: Path = root, journal: Path = journal) -> None:
            swap.swap_files(root, journal, CHANGES)

        def back(root: Path = root, journal: Path = journal) -> None:
            swap.roll_back(root, journal)

        assert killed(monkeypatch, forward, 4, (os, "replace"))
        was_killed = killed(monkeypatch, back, at, *DISK)
        swap.roll_back(root, journal)
        assert files_below(root) == BEFORE
        if not was_killed:
            break
    assert not was_killed
    assert at > 5


def test_a_killed_conflict_is_the_conflict_again(course, monkeypatch):
    """While the work folder changes to the chapter in conflict."""
    from course import author as module

    edit(course, 1, "minisgl/core.py", "return 1", "return 2")
    before = course.state()
    places = ((module, "write_files"), (module, "_write_session"), (os, "replace"))
    for at in (1, 2, 3):
        assert killed(monkeypatch, author(course).save, at, *places)
        assert course.state() == before
    assert not killed(monkeypatch, author(course).save, 4, *places)
    file = course.root / "build/edit/03_three/minisgl/core.py"
    assert "<<<<<<< edited" in file.read_text()
    file.write_text(REQ)
    assert author(course).save().written


def test_a_killed_edit_is_no_edit(course, monkeypatch):
    from course import author as module

    places = ((module, "write_files"), (module, "_write_session"), (os, "rename"))
    (course.root / "build").mkdir()
    course.stack.tree(1)  # the scratch repository is there: its making renames too
    for at in (1, 2, 3):
        begin = partial(author(course).begin_edit, 1)
        assert killed(monkeypatch, begin, at, *places)
        assert not author(course).is_open
    assert author(course).begin_edit(2).is_dir()


def half_done(course: PatchCourse, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A save that was killed while it replaced files: the state before it."""
    edit(course, 1, "minisgl/core.py", "A request", "A call")
    before = course.state()
    assert killed(monkeypatch, author(course).save, 2, (os, "replace"))
    assert course.state() != before
    assert (course.root / "build/edit/journal").is_dir()
    return before


def test_any_command_undoes_a_killed_save_and_says_so(course, monkeypatch):
    before = half_done(course, monkeypatch)
    done = steps(course, "list")
    assert done.returncode == 0
    assert "an interrupted save was undone; its edit is still open" in done.stderr
    assert course.state() == before
    assert "interrupted" not in steps(course, "list").stderr
    assert author(course).save().written


def test_a_killed_save_is_not_undone_over_somebodys_newer_work(course, monkeypatch):
    half_done(course, monkeypatch)
    course.write("minisgl/core.py", "mine = 1\n")
    error = refuses(course, lambda: recover(course.root), "minisgl/core.py was changed")
    assert "journal/old" in error.hint


@pytest.mark.parametrize("num_failures", [1, 99])
def test_a_full_disk_in_the_middle_of_a_save_changes_nothing(
    course, monkeypatch, num_failures
):
    """Undone at once; or, when the disk refuses even that, by the next command."""
    edit(course, 1, "minisgl/core.py", "A request", "A call")
    before = course.state()
    real = os.replace
    left = num_failures

    def full(source: Path, target: Path) -> None:
        nonlocal left
        if Path(target).suffix == ".py" and left:
            left -= 1
            raise OSError(28, "No space left on device")
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            author(course).save()
    assert recover(course.root) == (num_failures > 1)
    assert course.state() == before
    assert author(course).save().written


def test_an_interrupt_waits_until_the_files_are_replaced(course, monkeypatch):
    edit(course, 1, "minisgl/core.py", "A request", "A call")
    real = os.replace
    sent = []

    def interrupted(source: Path, target: Path) -> None:
        if not sent:
            sent.append(target)
            os.kill(os.getpid(), signal.SIGINT)
        real(source, target)

    idle = threading.Event()
    other = threading.Thread(target=idle.wait)  # a thread that could take the signal
    other.start()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            author(course).save()
    idle.set()
    other.join()
    assert sent
    assert not (course.root / "build/edit/journal").exists()
    assert "A call" in course.read("minisgl/core.py")
    assert all(r.is_good for r in verify(course.course))


# the commands


def steps(course: PatchCourse, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(STEPS), "--root", str(course.root), *words],
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )


def test_the_whole_flow_on_the_command_line(course):
    opened = steps(course, "edit", "1")
    work = course.root / "build/edit/01_one/minisgl"
    assert opened.returncode == 0
    assert opened.stdout.startswith(f"chapter 1 is open in {work}\n")
    change(work / "core.py", "return 1", "return 2")
    conflict = steps(course, "save")
    assert conflict.returncode == 1
    assert "error: chapter 03 three does not merge by itself" in conflict.stderr
    assert "next: resolve it in " in conflict.stderr
    file = course.root / "build/edit/03_three/minisgl/core.py"
    file.write_text(REQ.replace("return 1", "return 4"))
    saved = steps(course, "save")
    assert (saved.returncode, saved.stderr) == (0, "")
    assert saved.stdout.splitlines()[0] == "wrote steps/01_one.patch"
    assert steps(course, "verify").returncode == 0
    for words in (["save"], ["abort"], ["edit", "9"], ["edit", "x"]):
        wrong = steps(course, *words)
        assert wrong.returncode == 2
        assert "Traceback" not in wrong.stderr


def test_errors_are_typed():
    assert issubclass(MergeConflict, CheckFailed)
    assert issubclass(CheckFailed, CourseError)
    assert (CourseError.exit_code, CheckFailed.exit_code) == (2, 1)


def test_stages_that_do_not_change_keep_their_patches_byte_for_byte(course):
    before = course.read("steps/02_two.patch")
    edit(course, 1, "minisgl/core.py", "A request", "A call")
    author(course).save()
    assert course.read("steps/02_two.patch") == before
    changed = git_patches(*stages(course))
    for number, slug in enumerate(("one", "two", "three")):
        path = f"steps/0{number + 1}_{slug}.patch"
        assert (course.root / path).read_bytes() == changed[number]
    assert TWO["minisgl/pool.py"] == stages(course)[1]["minisgl/pool.py"]
