"""What a learner has done: `learn/practice/progress.json`, in the browser's form too.

    {"version": 1, "problems": {SLUG: {"accepted": true, "answer": "…", "tries": 3}}}

The file here also counts the hints that were seen; an export leaves them out.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from course.errors import CourseError
from course.runner import write_whole

FOLDER = "learn/practice"
_VERSION = 1


@dataclass
class Attempt:
    """One problem: the accepted answer, or the last one if none was accepted."""

    accepted: bool = False
    answer: str = ""
    tries: int = 0
    hints: int = 0


@dataclass
class Progress:
    """The attempts of one learner, by slug; `save` writes them to `path`."""

    path: Path
    attempts: dict[str, Attempt] = field(default_factory=dict)

    @classmethod
    def load(cls, root: Path) -> Progress:
        """Raises CourseError if the file is there and damaged; it is left alone."""
        path = root / FOLDER / "progress.json"
        return cls(path, read(path) if path.exists() else {})

    def of(self, slug: str) -> Attempt:
        return self.attempts.get(slug, Attempt())

    def tried(self, slug: str, answer: str, accepted: bool) -> None:
        """Count a try. An accepted answer is replaced by an accepted one only."""
        attempt = self.attempts.setdefault(slug, Attempt())
        attempt.tries += 1
        if accepted or not attempt.accepted:
            attempt.answer = answer
        attempt.accepted |= accepted

    def hinted(self, slug: str, hints: int) -> None:
        self.attempts.setdefault(slug, Attempt()).hints = hints

    def merge(self, others: dict[str, Attempt]) -> None:
        """Take in attempts from elsewhere: what was accepted on either side stays."""
        for slug, other in others.items():
            mine = self.attempts.setdefault(slug, Attempt())
            if not mine.accepted and (other.accepted or not mine.answer):
                mine.answer = other.answer
            mine.accepted |= other.accepted
            mine.tries = max(mine.tries, other.tries)

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, _json(self.attempts))

    def export(self, path: Path) -> None:
        """Write the file that the browser reads too."""
        write_whole(path, _json(self.attempts, without="hints"))


def read(path: Path) -> dict[str, Attempt]:
    """The attempts in a file. Raises CourseError that says what is wrong with it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CourseError(f"there is no {path}", "name a file of progress") from None
    except IsADirectoryError:
        raise CourseError(f"{path} is a folder", "name a file of progress") from None
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("version") != _VERSION:
        raise _damaged(path, f"it has no version {_VERSION}")
    problems = data.get("problems")
    if not isinstance(problems, dict):
        raise _damaged(path, "it has no problems")
    return {slug: _attempt(path, slug, entry) for slug, entry in problems.items()}


def _attempt(path: Path, slug: str, entry: Any) -> Attempt:
    kinds = {"accepted": bool, "answer": str, "tries": int, "hints": int}
    if not isinstance(entry, dict):
        raise _damaged(path, f"{slug} is no table")
    known = {key: entry[key] for key in kinds if key in entry}
    for key, value in known.items():
        if type(value) is not kinds[key] or (kinds[key] is int and value < 0):
            raise _damaged(path, f"{slug}: {key} is {value!r}")
    return Attempt(**known)


def _json(attempts: dict[str, Attempt], without: str = "") -> bytes:
    problems = {slug: asdict(attempt) for slug, attempt in sorted(attempts.items())}
    for entry in problems.values():
        entry.pop(without, None)
    data = {"version": _VERSION, "problems": problems}
    return (json.dumps(data, indent=1) + "\n").encode()


def _damaged(path: Path, what: str) -> CourseError:
    return CourseError(
        f"{path} cannot be read: {what}; it was not changed",
        "correct it, or move it away to begin a new one",
    )
