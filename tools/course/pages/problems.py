"""The exercises, as their `problem.md` describes them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from course.errors import CourseError

PROBLEMS = "practice/problems"
_FENCE = "+++\n"


@dataclass(frozen=True)
class Problem:
    """What a page shows of one exercise."""

    slug: str
    title: str
    chapter: int
    order: int
    difficulty: int  # 1 easy … 3 hard
    statement: str  # Markdown
    starter: str

    @classmethod
    def load(cls, root: Path, slug: str) -> Problem:
        """Read one; `CourseError` names the file and what it lacks."""
        path = f"{PROBLEMS}/{slug}/problem.md"
        text = (root / path).read_text(encoding="utf-8")
        _, front, statement = [*text.split(_FENCE, 2), "", ""][:3]
        try:
            data = tomllib.loads(front)
            facts = {key: data[key] for key in ("title", "chapter", "difficulty")}
        except (ValueError, KeyError) as error:
            raise CourseError(
                f"{path}: its front matter, TOML between +++ lines, is wrong: {error}",
                f"correct {path}",
            ) from None
        starter = (root / PROBLEMS / slug / "starter.py").read_text(encoding="utf-8")
        return cls(
            slug,
            order=data.get("order", 0),
            statement=statement.strip(),
            starter=starter,
            **facts,
        )


def slugs(root: Path) -> list[str]:
    return sorted(p.parent.name for p in (root / PROBLEMS).glob("*/problem.md"))


def problems(root: Path) -> list[Problem]:
    """All exercises, in the order of the course."""
    found = [Problem.load(root, slug) for slug in slugs(root)]
    return sorted(found, key=lambda p: (p.chapter, p.order, p.slug))
