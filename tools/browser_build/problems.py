"""The exercises as the pages load them: one list per chapter."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

_SHOWN = ("title", "chapter", "order", "difficulty", "defines", "checks", "hints")


def problems_by_chapter(root: Path) -> dict[int, list[dict[str, Any]]]:
    """Chapter -> its problems in order, ready for `json.dumps`."""
    chapters: dict[int, list[dict[str, Any]]] = {}
    for folder in sorted((root / "practice" / "problems").glob("*/")):
        _, front, statement = (folder / "problem.md").read_text().split("+++\n", 2)
        facts = tomllib.loads(front)
        problem = {"slug": folder.name} | {key: facts[key] for key in _SHOWN}
        problem["statement"] = statement.strip() + "\n"
        for part in ("starter", "solution", "tests"):
            problem[part] = (folder / f"{part}.py").read_text()
        chapters.setdefault(facts["chapter"], []).append(problem)
    for problems in chapters.values():
        problems.sort(key=lambda problem: problem["order"])
    return chapters
