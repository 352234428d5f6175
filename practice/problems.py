"""The problems: folders below `practice/problems`, read strictly."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course.errors import CourseError

PROBLEMS = "practice/problems"
HINTS = 3  # of every problem, from gentle to nearly the answer

_SLUG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_FENCE = "+++"
_KEYS = {
    "title": str,
    "chapter": int,
    "order": int,
    "difficulty": int,
    "defines": list,
    "checks": int,
    "hints": list,
    "wrong": dict,
}


class ProblemError(CourseError):
    """A problem's folder does not say what it must."""


@dataclass(frozen=True)
class Problem:
    """One problem: its front matter, its statement, and the sources beside it.

    `wrong` maps the name of a known-wrong answer to a part of the message it must get.
    """

    slug: str
    title: str
    chapter: int
    order: int
    difficulty: int
    defines: tuple[str, ...]
    applies_to: tuple[str, ...]
    checks: int
    hints: tuple[str, ...]
    wrong: Mapping[str, str]
    statement: str
    starter: str
    solution: str
    tests: str
    wrong_answers: Mapping[str, str]

    @property
    def required(self) -> tuple[str, ...]:
        """What must be written in the answer: `defines`, and methods to hand in."""
        names = list(self.defines)
        for target in self.applies_to:
            parts = target.split(".")
            for cut in range(len(parts)):
                name = ".".join(parts[cut:])
                if parts[cut] in self.defines and name not in names:
                    names.append(name)
                    break
        return tuple(names)

    @property
    def holes(self) -> tuple[str, ...]:
        """What is taken out of the engine while an answer is graded."""
        return tuple(f"minisgl.{target}" for target in self.applies_to)


def slugs(root: Path) -> list[str]:
    """The folders of problems, by name."""
    folders = [path for path in (root / PROBLEMS).glob("*") if path.is_dir()]
    return sorted(path.name for path in folders if path.name[0] not in "._")


def load_all(root: Path) -> list[Problem]:
    """Every problem, in the order of the list. Raises ProblemError."""
    problems = [load(root / PROBLEMS / slug) for slug in slugs(root)]
    return sorted(problems, key=lambda p: (p.chapter, p.order, p.slug))


def load(folder: Path) -> Problem:
    """The problem in a folder; its name is the slug. Raises ProblemError."""
    slug = folder.name
    if not _SLUG.fullmatch(slug):
        raise _broken(slug, "a slug has small letters, digits and single dashes")
    front, statement = _front_matter(slug, _read(folder, "problem.md"))
    for key, kind in _KEYS.items():
        if type(front.get(key)) is not kind:
            raise _broken(slug, f"problem.md: {key} must be given, as {kind.__name__}")
    if unknown := sorted(front.keys() - _KEYS.keys() - {"applies_to"}):
        raise _broken(slug, f"problem.md: unknown key {unknown[0]}")
    applies_to = _texts(slug, "applies_to", front.get("applies_to", []))
    defines = _texts(slug, "defines", front["defines"])
    hints = _texts(slug, "hints", front["hints"])
    for name in (*defines, *applies_to):
        if not _NAME.fullmatch(name):
            raise _broken(slug, f"problem.md: {name!r} is not a name")
    if not defines:
        raise _broken(slug, "problem.md: defines names nothing")
    if len(hints) != HINTS:
        raise _broken(slug, f"problem.md: {len(hints)} hints; it must be {HINTS}")
    if front["difficulty"] not in (1, 2, 3):
        raise _broken(slug, "problem.md: difficulty must be 1, 2 or 3")
    if front["checks"] < 1:
        raise _broken(slug, "problem.md: checks must be 1 or more")
    wrong = _wrong(slug, front["wrong"])
    files = {path.stem for path in (folder / "wrong").glob("*.py")}
    if files != wrong.keys():
        odd = ", ".join(sorted(files ^ wrong.keys()))
        raise _broken(slug, f"wrong/*.py and the [wrong] tables differ: {odd}")
    if len(wrong) < 2:
        raise _broken(slug, "at least two wrong answers are needed")
    return Problem(
        slug=slug,
        title=front["title"],
        chapter=front["chapter"],
        order=front["order"],
        difficulty=front["difficulty"],
        defines=defines,
        applies_to=applies_to,
        checks=front["checks"],
        hints=hints,
        wrong=wrong,
        statement=statement,
        starter=_read(folder, "starter.py"),
        solution=_read(folder, "solution.py"),
        tests=_read(folder, "tests.py"),
        wrong_answers={n: _read(folder, f"wrong/{n}.py") for n in sorted(wrong)},
    )


def _front_matter(slug: str, text: str) -> tuple[dict[str, Any], str]:
    before, fence, rest = text.partition(f"{_FENCE}\n")
    front, second, statement = rest.partition(f"\n{_FENCE}\n")
    if before or not fence or not second:
        raise _broken(slug, f"problem.md must begin with TOML between {_FENCE} lines")
    try:
        return tomllib.loads(front), statement.strip() + "\n"
    except tomllib.TOMLDecodeError as error:
        raise _broken(slug, f"problem.md: {error}") from None


def _wrong(slug: str, tables: Mapping[str, Any]) -> dict[str, str]:
    messages = {}
    for name, table in tables.items():
        message = table.get("message") if isinstance(table, dict) else None
        if not (isinstance(message, str) and message.strip()):
            raise _broken(slug, f"problem.md: [wrong.{name}] needs a message")
        messages[name] = message
    return messages


def _texts(slug: str, key: str, values: Any) -> tuple[str, ...]:
    if isinstance(values, list) and all(isinstance(v, str) and v for v in values):
        return tuple(values)
    raise _broken(slug, f"problem.md: {key} must be a list of texts")


def _read(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _broken(folder.name, f"there is no {name}") from None
    except UnicodeDecodeError as error:
        raise _broken(folder.name, f"{name} is not UTF-8: {error}") from None


def _broken(slug: str, what: str) -> ProblemError:
    return ProblemError(f"problem {slug}: {what}", f"correct {PROBLEMS}/{slug}")
