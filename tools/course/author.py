"""Change a chapter, and carry the change through all later ones.

`begin_edit` writes the files of one stage into a work folder. `save` takes what is
there as the new stage and replays every later chapter on it as a three-way merge of
whole trees. A conflict puts the chapter it is in into the work folder, with markers,
and the next `save` goes on from there. Only when all chapters apply are the patches
and `minisgl/` replaced, all together.

    build/edit/session.json     what was edited, what is merged so far
    build/edit/03_pool/minisgl  the work folder
    build/edit/journal/         only while files are being replaced: see `swap`
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from course.errors import CheckFailed, CourseError
from course.folder import (
    changed_paths,
    file_faults,
    list_files,
    list_package,
    write_tree,
)
from course.git import GitRepo
from course.manifest import Chapter, Course
from course.stack import (
    PACKAGE,
    Stack,
    apply_patch,
    tree_diff,
    tree_faults,
    tree_files,
    write_files,
)
from course.swap import roll_back, swap_files

EDIT_FOLDER = "build/edit"

_MARKERS = (b"<<<<<<< ", b"||||||| ", b">>>>>>> ")


class MergeConflict(CheckFailed):
    """A later chapter does not merge by itself; the work folder holds it now."""


@dataclass(frozen=True)
class Session:
    """An edit that is open. Trees are git tree ids, by chapter number."""

    chapter: int  # whose stage is in the work folder
    old: dict[int, str]  # every stage as it was, and 0
    new: dict[int, str]  # the stages made so far, from the edited one on
    patches: dict[str, str | None]  # path -> sha256 of the patch as it was
    package: str  # the tree of minisgl/ as it was
    conflicts: list[str] = field(default_factory=list)  # paths that had markers


@dataclass(frozen=True)
class Saved:
    """What a `save` wrote: paths, and the chapters that became empty."""

    written: list[str]
    removed: list[str]


class Author:
    """The author's side of a course: at most one edit is open at a time."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.folder = course.root / EDIT_FOLDER
        self._stack = Stack(course, absent_is_empty=True)
        self._repo = self._stack.repo

    @property
    def is_open(self) -> bool:
        return (self.folder / "session.json").exists()

    def work_folder(self, number: int) -> Path:
        """Where the stage of this chapter is edited."""
        return self.folder / self.course.chapter(number).stem

    def begin_edit(self, number: int, *, adopt: bool = False) -> Path:
        """Open an edit of chapter `number`: the work folder.

        Args:
            adopt: start from `minisgl/` as it stands, with changes that no patch has
                yet. Only for the last chapter: its stage is what `minisgl/` is.

        Raises:
            CourseError: an edit is open, or `minisgl/` is not what the patches give.
        """
        with _locked(self.folder):
            if self.is_open:
                raise self._already_open()
            chapter = self.course.chapter(number)
            package = self._package()
            old = {0: self._stack.tree(0)}
            old |= {c.number: self._stack.tree(c.number) for c in self.course.chapters}
            start = self._start(chapter, old, package, adopt)
            session = Session(number, old, {}, self._patches(), package)
            return self._open(session, start)

    def save(self) -> Saved:
        """Take the work folder as the new stage and replay all later chapters.

        Raises:
            MergeConflict: a later chapter has to be merged by hand, in the work folder.
            CourseError: no edit is open, a file cannot be stored, markers are left, or
                `steps/` or `minisgl/` changed since. Nothing was written.
        """
        with _locked(self.folder):
            session = self._load()
            self._check_unchanged(session)
            new = session.new | {session.chapter: self._edited(session)}
            self._replay(session, new)
            changes = self._changes(session, new)
            swap_files(self.course.root, self.folder / "journal", changes)
            shutil.rmtree(self.folder)
        written = [path for path, content in changes.items() if content is not None]
        return Saved(written, sorted(set(changes) - set(written)))

    def abort(self) -> None:
        """Drop the open edit and its work folder."""
        with _locked(self.folder):
            self._load()
            shutil.rmtree(self.folder)

    # Beginning

    def _start(
        self, chapter: Chapter, old: dict[int, str], package: str, adopt: bool
    ) -> str:
        """The tree that the work folder begins with."""
        last = self.course.last
        if adopt and chapter != last:
            raise CourseError(
                f"chapter {chapter.number} cannot adopt {PACKAGE}/",
                f"{PACKAGE}/ is the stage of the last chapter: "
                f"tools/steps.py edit {last.number} --adopt",
            )
        if adopt:
            return package
        if package != old[last.number]:
            paths = changed_paths(self._repo, old[last.number], package)
            raise CourseError(
                f"{PACKAGE}/ is not what the patches give: {', '.join(paths)}",
                f"take these changes into chapter {last.number} with tools/steps.py "
                f"edit {last.number} --adopt, or take them out of {PACKAGE}/",
            )
        return old[chapter.number]

    def _open(self, session: Session, tree: str) -> Path:
        """Lay out `build/edit` beside its place, then rename it there."""
        draft = self.folder.with_name("edit.new")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)  # without a session: litter
        work = self.work_folder(session.chapter)
        write_files(tree_files(self._repo, tree), draft / work.name)
        (draft / work.name / PACKAGE).mkdir(parents=True, exist_ok=True)
        _write_session(draft, session)
        draft.rename(self.folder)
        return work

    def _already_open(self) -> CourseError:
        work = self.work_folder(self._load().chapter)
        return CourseError(
            f"an edit is open in {work}",
            "finish it with tools/steps.py save, or drop it with tools/steps.py abort",
        )

    # Saving

    def _edited(self, session: Session) -> str:
        """The tree of the work folder, once it can be stored."""
        work = self.work_folder(session.chapter)
        if not work.is_dir():
            raise CourseError(
                f"{work} is gone", "tools/steps.py abort, then edit again"
            )
        paths = list_files(self._repo, work, self.course.root)
        tree = self._store(work, paths, f"correct it in {work}")
        for path in session.conflicts:
            file = work / path
            lines = file.read_bytes().split(b"\n") if file.exists() else []
            for number, line in enumerate(lines, 1):
                if line.startswith(_MARKERS):
                    raise CheckFailed(
                        f"{file}:{number} still has a conflict marker",
                        "resolve it, then tools/steps.py save; or tools/steps.py abort",
                    )
        return tree

    def _replay(self, session: Session, new: dict[int, str]) -> None:
        """Merge every chapter after the one in the work folder into `new`."""
        for chapter in self.course.after(session.chapter):
            before = self.course.previous(chapter.number)
            merged = merge_trees(
                self._repo,
                base=session.old[before],
                ours=new[before],
                theirs=session.old[chapter.number],
                name=f"chapter-{chapter.number}",
            )
            if merged.conflicts:
                self._stop(session, new, chapter, merged)
            new[chapter.number] = merged.tree

    def _stop(
        self, session: Session, new: dict[int, str], chapter: Chapter, merged: Merged
    ) -> None:
        """Put a conflict into the work folder and say so."""
        work = self.work_folder(chapter.number)
        shutil.rmtree(work, ignore_errors=True)
        write_files(tree_files(self._repo, merged.tree), work)
        stopped = Session(
            chapter.number,
            session.old,
            dict(new),
            session.patches,
            session.package,
            merged.conflicts,
        )
        _write_session(self.folder, stopped)
        for other in self.folder.iterdir():
            if other.is_dir() and other != work:
                shutil.rmtree(other)
        raise MergeConflict(
            f"chapter {chapter.label} does not merge by itself:\n"
            + "\n".join(f"  {message}" for message in merged.messages),
            f"resolve it in {work}, then tools/steps.py save; nothing is written "
            "until all chapters apply. tools/steps.py abort drops the edit",
        )

    def _changes(
        self, session: Session, new: dict[int, str]
    ) -> dict[str, bytes | None]:
        """Path -> new content of everything that `new` changes on disk."""
        wanted: dict[str, bytes | None] = {}
        stages = session.old | new
        for chapter in self.course.chapters:
            if chapter.number in new:
                before = stages[self.course.previous(chapter.number)]
                wanted[chapter.patch] = self._patch(chapter, before, new) or None
        old = tree_files(self._repo, session.package)
        wanted |= dict.fromkeys(old)
        wanted |= tree_files(self._repo, new[self.course.last.number])
        root = self.course.root
        return {p: c for p, c in wanted.items() if c != _read(root / p)}

    def _patch(self, chapter: Chapter, before: str, new: dict[int, str]) -> bytes:
        """The text to store, proven to give the stage when it is applied."""
        text = tree_diff(self._repo, before, new[chapter.number])
        if text:
            with self._repo.index() as index:
                self._repo.run("read-tree", before, env=index)
                apply_patch(self._repo, text, chapter, index)
                again = self._repo.line("write-tree", env=index)
            assert again == new[chapter.number], (chapter.number, again, new)
        return text

    # The state of the checkout

    def _package(self) -> str:
        """The tree of `minisgl/`."""
        root = self.course.root
        paths = list_package(self._repo, root)
        return self._store(root, paths, f"correct it in {PACKAGE}/")

    def _store(self, top: Path, paths: list[str], hint: str) -> str:
        """The tree of these files, which must be fit for the package."""
        if faults := file_faults(top, paths):
            raise CourseError("\n".join(faults), f"{hint} and run this again")
        tree = write_tree(self._repo, top, paths)
        if faults := tree_faults(self._repo, tree):
            raise CourseError("\n".join(faults), f"{hint} and run this again")
        return tree

    def _patches(self) -> dict[str, str | None]:
        """Path -> sha256 of every patch; None for one that is not there."""
        hashes: dict[str, str | None] = {}
        for chapter in self.course.chapters:
            patch = _read(self.course.root / chapter.patch)
            digest = None if patch is None else hashlib.sha256(patch).hexdigest()
            hashes[chapter.patch] = digest
        return hashes

    def _check_unchanged(self, session: Session) -> None:
        """Refuse when somebody changed what this edit would replace."""
        now = self._patches()
        differ = {p for p in now.keys() | session.patches.keys()
                  if now.get(p, "") != session.patches.get(p, "")}  # fmt: skip
        package = self._package()
        if package != session.package:
            differ |= set(changed_paths(self._repo, session.package, package))
        if differ:
            raise CourseError(
                f"changed since this edit began: {', '.join(sorted(differ))}",
                "put them back as they were and save again; or copy your work out of "
                f"{self.work_folder(session.chapter)}, tools/steps.py abort, and edit "
                "again",
            )

    def _load(self) -> Session:
        try:
            data = json.loads((self.folder / "session.json").read_text())
        except FileNotFoundError:
            raise CourseError(
                "no edit is open", "begin one: tools/steps.py edit N"
            ) from None
        for key in ("old", "new"):
            data[key] = {int(number): tree for number, tree in data[key].items()}
        session = Session(**data)
        self._check_objects(session)
        return session

    def _check_objects(self, session: Session) -> None:
        """The scratch repository may be deleted at any time; an edit needs it."""
        trees = {*session.old.values(), *session.new.values(), session.package}
        asked = "".join(f"{tree}\n" for tree in sorted(trees)).encode()
        answer = self._repo.run("cat-file", "--batch-check", stdin=asked).out
        if b"missing" in answer:
            raise CourseError(
                "build/steps.git, which this edit needs, was deleted",
                f"copy your work out of {self.folder}, remove {self.folder}, and edit "
                "again",
            )


def recover(root: Path) -> bool:
    """Undo a `save` that was killed while it replaced files; True when one was."""
    folder = root / EDIT_FOLDER
    if not (folder / "journal").exists():
        return False
    with _locked(folder):
        return roll_back(root, folder / "journal")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One edit, save or abort at a time, over all processes."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name("edit.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CourseError(
                "another edit, save or abort is running",
                "wait until it has finished and run this again",
            ) from None
        yield


@dataclass(frozen=True)
class Merged:
    """A merge: its tree (with markers where it conflicts) and what git said."""

    tree: str
    conflicts: list[str]
    messages: list[str]


def merge_trees(repo: GitRepo, base: str, ours: str, theirs: str, name: str) -> Merged:
    """Merge two trees that come from `base`; `name` labels their side in markers.

    Renames are followed. The trees are dressed as commits, which every git that has
    `merge-tree --write-tree` accepts.
    """
    root = repo.line("commit-tree", "-m", "base", base)
    edited = repo.line("commit-tree", "-m", "edited", "-p", root, ours)
    chapter = repo.line("commit-tree", "-m", name, "-p", root, theirs)
    repo.run("update-ref", "refs/heads/edited", edited)
    repo.run("update-ref", f"refs/heads/{name}", chapter)
    result = repo.run(
        "merge-tree", "--write-tree", "-z", "--name-only", "edited", name, ok=(0, 1)
    )
    tree, *rest = result.out.decode().split("\0")
    if result.code == 0:
        return Merged(tree, [], [])
    end = rest.index("")
    return Merged(tree, rest[:end], _messages(rest[end + 1 :]))


def _messages(fields: list[str]) -> list[str]:
    """The conflicts among `count, path…, kind, text` records."""
    said = []
    while len(fields) > 2:
        count = int(fields[0])
        kind, text = fields[count + 1 : count + 3]
        fields = fields[count + 3 :]
        if kind.startswith("CONFLICT"):
            said.append(text.strip())
    return said


def _write_session(folder: Path, session: Session) -> None:
    new = folder / "session.json.new"
    new.write_text(json.dumps(asdict(session), indent=1))
    os.replace(new, folder / "session.json")


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
