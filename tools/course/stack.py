"""The patch stack: what the package looks like at each chapter.

Patches are the truth, and a stage is a pure function of them: stage N is the empty tree
with patches 1…N applied, in an index of a scratch repository and never in a folder.
Git does all the applying and diffing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from course.errors import CheckFailed, CourseError
from course.git import EMPTY_TREE, GitRepo, GitResult
from course.manifest import Chapter, Course

PACKAGE = "minisgl"

_DIFF = (
    "diff-tree",
    "--patch",
    "-r",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--unified=3",
    "--inter-hunk-context=0",
    "--diff-algorithm=myers",
    "--indent-heuristic",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--full-index",
)
_INDEX_LINE = re.compile(rb"^index [0-9a-f]+\.\.[0-9a-f]+( \d+)?\n", re.MULTILINE)
_CLEAN = re.compile(r"(Checking patch .*\.\.\.|Applied patch .* cleanly\.)")


class PatchError(CheckFailed):
    """A chapter's patch cannot be used: names chapter, file and line."""


class Stack:
    """The stages of a course. Stage 0 is the empty tree.

    Trees are named by git's tree id: equal ids mean equal files, so an id is a cache
    key. All methods raise `PatchError` when a patch on the way does not apply exactly
    as stored, and `UnknownChapter` for a number that is not listed.
    """

    def __init__(self, course: Course, *, absent_is_empty: bool = False) -> None:
        """`absent_is_empty`: a chapter without a patch (yet) changes nothing."""
        self.course = course
        self._absent_is_empty = absent_is_empty
        self.repo = GitRepo(course.root / "build" / "steps.git")
        self._trees: dict[int, str] = {0: EMPTY_TREE}

    def tree(self, number: int) -> str:
        """The git tree id of stage `number`."""
        if not self.repo.exists():  # not made yet, or deleted under us
            self._trees = {0: EMPTY_TREE}
        if number not in self._trees:
            chapters = self.course.through(number)
            with self.repo.index() as index:
                for chapter in chapters:
                    self._trees[chapter.number] = self._next(chapter, index)
        return self._trees[number]

    def files(self, number: int) -> dict[str, bytes]:
        """Path (`minisgl/core.py`) -> content of stage `number`, sorted by path."""
        return tree_files(self.repo, self.tree(number))

    def export(self, number: int, dest: Path) -> None:
        """Write stage `number` into `dest`, which must be absent or empty."""
        write_files(self.files(number), dest)

    def diff(self, a: int, b: int) -> bytes:
        """The canonical text of the change from stage `a` to stage `b`."""
        return tree_diff(self.repo, self.tree(a), self.tree(b))

    def shown_diff(self, number: int, path: str | None = None) -> bytes:
        """What a chapter changes, for people: renames are shown as renames.

        `path` limits it to one file or folder, named with or without `minisgl/`;
        `CourseError` lists what the chapter changes when it does not change that.
        """
        a, b = self.tree(self.course.previous(number)), self.tree(number)
        if path is None:
            return tree_diff(self.repo, a, b, "-M")
        parts = [part for part in path.split("/") if part not in ("", ".")]
        inside = "/".join(parts if parts[:1] == [PACKAGE] else [PACKAGE, *parts])
        text = tree_diff(self.repo, a, b, "-M", paths=(inside,))
        if not text:
            names = ("diff-tree", "-r", "-z", "--name-only", a, b)
            changed = self.repo.run(*names).out.decode().split("\0")[:-1]
            raise CourseError(
                f"chapter {number} does not change {path}",
                f"it changes {', '.join(changed) or 'nothing'}",
            )
        return text

    def _next(self, chapter: Chapter, index: dict[str, str]) -> str:
        """Apply one chapter on what `index` holds: the tree id afterwards."""
        if self._absent_is_empty and not (self.course.root / chapter.patch).exists():
            return self._trees[self.course.previous(chapter.number)]
        patch = read_patch(self.course, chapter)
        apply_patch(self.repo, patch, chapter, index)
        tree = self.repo.line("write-tree", env=index)
        if faults := tree_faults(self.repo, tree):
            raise _bad_path(chapter, faults[0])
        return tree


def read_patch(course: Course, chapter: Chapter) -> bytes:
    """The stored patch; text with LF line ends, or `PatchError`."""
    try:
        patch = (course.root / chapter.patch).read_bytes()
    except FileNotFoundError:
        raise PatchError(
            f"chapter {chapter.label}: there is no {chapter.patch}",
            f"write the chapter: tools/steps.py edit {chapter.number}",
        ) from None
    for number, line in enumerate(patch.split(b"\n"), 1):
        if fault := _line_fault(line):
            raise PatchError(
                f"chapter {chapter.label}: {chapter.patch}:{number} {fault}",
                f"patches hold UTF-8 text with LF line ends: git checkout "
                f"{chapter.patch}, or write the chapter again with "
                f"tools/steps.py edit {chapter.number}",
            )
    return patch


def apply_patch(
    repo: GitRepo, patch: bytes, chapter: Chapter, index: dict[str, str]
) -> None:
    """Apply to the index, exactly: an offset is an error, and so is silence."""
    _check_paths(repo, patch, chapter)
    result = repo.run(
        "apply",
        "--cached",
        "--whitespace=nowarn",
        "--verbose",
        "-",
        stdin=patch,
        env=index,
        ok=(0, 1, 128),
    )
    lines = result.err.splitlines()
    if result.code or not lines or not all(map(_CLEAN.fullmatch, lines)):
        raise _refused(chapter, _complaint(result))


def tree_faults(repo: GitRepo, tree: str) -> list[str]:
    """What keeps a tree from being a stage: modes, paths, case-only twins."""
    seen: dict[str, str] = {}
    faults = []
    for mode, _, path in _entries(repo, tree):
        if mode != "100644":
            faults.append(f"{path} {_MODES.get(mode, f'has mode {mode}')}")
        if fault := path_fault(path):
            faults.append(f"{path} {fault}")
        for folded, prefix in _prefixes(path):
            if seen.setdefault(folded, prefix) != prefix:
                twin = f"differs from {seen[folded]} in upper and lower case only"
                faults.append(f"{prefix} {twin}")
    return faults


def path_fault(path: str) -> str | None:
    """What forbids this path in a stage; None for a good one."""
    parts = path.split("/")
    if path.startswith("/"):
        return "is an absolute path"
    if ".." in parts:
        return "leaves the package with '..'"
    if any(p in ("", ".") or p.casefold() == ".git" for p in parts):
        return "has a forbidden part"
    if parts[0] != PACKAGE or len(parts) < 2:
        return f"is outside {PACKAGE}/"
    if "\\" in path or not path.isprintable():
        return "holds a character that file systems do not share"
    return None


def tree_files(repo: GitRepo, tree: str) -> dict[str, bytes]:
    """Path -> content of a tree, sorted by path."""
    entries = _entries(repo, tree)
    asked = "".join(f"{blob}\n" for _, blob, _ in entries).encode()
    out = repo.run("cat-file", "--batch", stdin=asked).out
    files = {}
    at = 0
    for _, _, path in entries:
        head, at = out.index(b"\n", at), out.index(b"\n", at) + 1
        size = int(out[:head].rsplit(b" ", 1)[1])
        files[path] = out[at : at + size]
        at += size + 1
    return files


def tree_diff(
    repo: GitRepo,
    a: str,
    b: str,
    renames: str = "--no-renames",
    paths: tuple[str, ...] = (),
) -> bytes:
    """The canonical diff of two trees: renames spelled out, no `index` lines.

    A line that starts with `index ` in column 0 is always a header: lines of content
    start with a blank, `+`, `-` or `\\`.
    """
    out = repo.run(*_DIFF, renames, a, b, "--", *paths).out
    return _INDEX_LINE.sub(b"", out)


def write_files(files: dict[str, bytes], dest: Path) -> None:
    """Write files into `dest`, which must be absent or an empty folder."""
    dest = Path(dest)
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise CourseError(
            f"{dest} is not empty", "name an empty or a new folder, or remove it"
        )
    for path, content in files.items():
        target = dest / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


_MODES = {
    "100755": "is executable; files of the package have mode 644",
    "120000": "is a symbolic link",
    "160000": "is a submodule",
}


def _entries(repo: GitRepo, tree: str) -> list[tuple[str, str, str]]:
    """(mode, blob id, path) of every file of a tree, sorted by path."""
    out = repo.run("ls-tree", "-r", "-z", "--full-tree", tree).out.decode()
    rows = [row.split("\t", 1) for row in out.split("\0") if row]
    return [(head.split(" ")[0], head.split(" ")[2], path) for head, path in rows]


def _prefixes(path: str) -> Iterable[tuple[str, str]]:
    """Every folder on the way and the path itself: (folded, as written)."""
    parts = path.split("/")
    for n in range(1, len(parts) + 1):
        prefix = "/".join(parts[:n])
        yield unicodedata.normalize("NFC", prefix).casefold(), prefix


def _line_fault(line: bytes) -> str | None:
    if line == b"GIT binary patch" or line.startswith(b"Binary files "):
        return "is binary"
    return content_fault(line)


def content_fault(line: bytes) -> str | None:
    """What forbids this line in a file of the package; None for a good one."""
    if b"\r" in line:
        return "has a CR line end"
    if b"\0" in line:
        return "is binary"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return "is not UTF-8"
    return None


def _check_paths(repo: GitRepo, patch: bytes, chapter: Chapter) -> None:
    """The paths a patch names; git refuses most bad ones too, but not outside ones."""
    listed = repo.run("apply", "--numstat", "-z", "-", stdin=patch, ok=(0, 1, 128))
    if listed.code:
        raise _refused(chapter, _complaint(listed))
    for row in listed.out.decode().split("\0"):
        path = row.split("\t")[-1]
        if path and (fault := path_fault(path)):
            raise _bad_path(chapter, f"{path} {fault}")


def _bad_path(chapter: Chapter, fault: str) -> PatchError:
    return PatchError(
        f"chapter {chapter.label}: {chapter.patch}: {fault}",
        f"change the chapter with tools/steps.py edit {chapter.number}",
    )


def _refused(chapter: Chapter, complaint: str) -> PatchError:
    return PatchError(
        f"chapter {chapter.label}: {chapter.patch}: {complaint}",
        f"patches are not edited by hand: git checkout {chapter.patch}, then "
        f"tools/steps.py edit {chapter.number}",
    )


def _complaint(result: GitResult) -> str:
    """What `git apply` found wrong, with file and line where it names them."""
    if failed := re.search(r"^error: patch failed: (.*):(\d+)$", result.err, re.M):
        return f"{failed[1]}:{failed[2]} is not what this patch expects there"
    if error := re.search(r"^error: (.*)$", result.err, re.M):
        return error[1]
    file = "git"
    for line in result.err.splitlines():
        if line.startswith("Checking patch "):
            file = line.removeprefix("Checking patch ").removesuffix("...")
        elif not _CLEAN.fullmatch(line):
            return f"{file}: does not apply exactly: {line}"
    return "git applied nothing"
