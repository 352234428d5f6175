"""Git, run in a private bare repository that no configuration of the user reaches."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from course.errors import CourseError

OLDEST_GIT = (2, 38)  # the first with `git merge-tree --write-tree`
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

_WHO = {"NAME": "course", "EMAIL": "course@localhost", "DATE": "2000-01-01T00:00:00Z"}
_CONFIG = {
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.hooksPath": os.devnull,
    "core.quotePath": "true",
    "core.autocrlf": "false",
    "diff.suppressBlankEmpty": "true",
    "gc.auto": "0",
    "merge.conflictStyle": "zdiff3",
}


class GitError(CourseError):
    """Git is missing, too old, or failed where it never should."""


@dataclass(frozen=True)
class GitResult:
    code: int
    out: bytes
    err: str


@dataclass(frozen=True)
class GitRepo:
    """A bare repository at `path`, used as an object store; made when first needed.

    Objects are shared by all processes; the index is private to each `index()` block,
    so that concurrent processes never wait for, or see, one another.
    """

    path: Path

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        ok: tuple[int, ...] = (0,),
    ) -> GitResult:
        """Run `git args`; an exit code outside `ok` raises `GitError`."""
        self._ensure()
        config = [part for pair in _CONFIG.items() for part in ("-c", "=".join(pair))]
        result = _git(
            [*config, *args],
            stdin=stdin,
            env={"GIT_DIR": str(self.path), **(env or {})},
            cwd=cwd or self.path,
        )
        if result.code not in ok:
            raise GitError(
                f"git {args[0]} failed ({result.code}): {result.err.strip()}",
                "run this again; if it stays, save or abort an open edit, then delete "
                f"{self.path} (it is made again)",
            )
        return result

    def line(self, *args: str, **kwargs: object) -> str:
        """The one line that `git args` prints."""
        return self.run(*args, **kwargs).out.decode().strip()  # type: ignore[arg-type]

    @contextmanager
    def index(self) -> Iterator[dict[str, str]]:
        """An empty private index: the environment that makes git use it."""
        self._ensure()
        with tempfile.TemporaryDirectory(prefix="index-", dir=self.path) as folder:
            yield {"GIT_INDEX_FILE": os.path.join(folder, "index")}

    def exists(self) -> bool:
        return (self.path / "HEAD").exists()

    def _ensure(self) -> None:
        if self.exists():
            return
        _require_git()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=".steps-git-", dir=self.path.parent))
        try:
            made = _git(
                ["init", "--quiet", "--bare", "--template=", "--object-format=sha1"],
                env={"GIT_DIR": str(new)},
                cwd=new,
            )
            if made.code:
                raise GitError(f"git init failed: {made.err.strip()}", "check the disk")
            self._move_into_place(new)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def _move_into_place(self, new: Path) -> None:
        """Rename, so that nobody sees half a repository; losing a race is fine."""
        try:
            os.rename(new, self.path)
        except OSError:
            if not self.exists():
                raise GitError(
                    f"{self.path} is in the way: it is no repository of this tool",
                    f"delete {self.path} and run this again",
                ) from None


def clean_environment() -> dict[str, str]:
    """The caller's environment without anything that changes what git does."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env.pop("LANGUAGE", None)
    env |= {f"GIT_AUTHOR_{key}": value for key, value in _WHO.items()}
    env |= {f"GIT_COMMITTER_{key}": value for key, value in _WHO.items()}
    return env | {
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }


def _git(
    args: list[str], *, env: Mapping[str, str], cwd: Path, stdin: bytes = b""
) -> GitResult:
    try:
        done = subprocess.run(
            ["git", *args],
            input=stdin,
            capture_output=True,
            env=clean_environment() | dict(env),
            cwd=cwd,
            check=False,
        )
    except FileNotFoundError:
        raise GitError("git is not installed", "install git 2.38 or newer") from None
    return GitResult(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


def _require_git() -> None:
    text = _git(["--version"], env={}, cwd=Path.cwd()).out.decode(errors="replace")
    found = re.search(r"(\d+)\.(\d+)", text)
    if found is None or tuple(map(int, found.groups())) < OLDEST_GIT:
        raise GitError(
            f"{text.strip() or 'git'} is too old", "install git 2.38 or newer"
        )
