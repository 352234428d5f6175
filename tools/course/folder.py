"""Package files as they lie in a folder: `minisgl/` itself, or a work folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from course.git import GitRepo
from course.stack import PACKAGE, content_fault, path_fault, tree_files


def list_files(repo: GitRepo, top: Path, root: Path, *inside: str) -> list[str]:
    """Every path below `top` that `root`'s .gitignore does not ignore, sorted.

    `inside` limits it to these folders.

    Whether a file is tracked makes no difference. A nested repository is listed as one
    path that ends in a slash.
    """
    ignore = root / ".gitignore"
    options = [f"--exclude-from={ignore}"] if ignore.is_file() else []
    with repo.index() as index:
        out = repo.run(
            "ls-files",
            "-z",
            "--others",
            "--exclude-per-directory=.gitignore",
            *options,
            "--",
            *inside,
            env=index | {"GIT_WORK_TREE": str(top)},
            cwd=top,
        ).out
    return sorted(os.fsdecode(path) for path in out.split(b"\0") if path)


def list_package(repo: GitRepo, root: Path) -> list[str]:
    """The files of `root`/minisgl, as `list_files`."""
    package = root / PACKAGE
    if package.is_symlink() or (package.exists() and not package.is_dir()):
        return [PACKAGE]
    if not package.exists():
        return []
    return list_files(repo, root, root, PACKAGE)


def file_faults(top: Path, paths: Iterable[str]) -> list[str]:
    """What is wrong with these files as files of the package; one line each."""
    faults = []
    for path in paths:
        fault = path_fault(path) or _file_fault(top / path)
        if fault:
            faults.append(f"{path} {fault}")
    return faults


def write_tree(repo: GitRepo, top: Path, paths: list[str]) -> str:
    """Store these files as a tree with mode 644: its id."""
    on_disk = "".join(f"{top / path}\n" for path in paths).encode()
    out = repo.run("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=on_disk)
    blobs = out.out.decode().split()
    rows = (f"100644 {b}\t{p}\0" for b, p in zip(blobs, paths, strict=True))
    with repo.index() as index:
        repo.run(
            "update-index",
            "-z",
            "--index-info",
            stdin="".join(rows).encode(),
            env=index,
        )
        return repo.line("write-tree", env=index)


def changed_paths(repo: GitRepo, a: str, b: str) -> list[str]:
    """The paths in which two trees differ, sorted."""
    old, new = tree_files(repo, a), tree_files(repo, b)
    return sorted(p for p in old.keys() | new.keys() if old.get(p) != new.get(p))


def _file_fault(file: Path) -> str | None:
    mode = file.lstat().st_mode
    if stat.S_ISLNK(mode):
        return "is a symbolic link"
    if not stat.S_ISREG(mode):
        return "is no regular file"
    if mode & stat.S_IXUSR:
        return "is executable; files of the package have mode 644"
    for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
        if fault := content_fault(line):
            return f"{fault} (line {number})"
    return None
