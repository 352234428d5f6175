"""The exercises as the pages load them: one list per chapter."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from practice.problems import Problem, load_all

_KEPT_BACK = ("applies_to", "wrong", "wrong_answers")


def problems_by_chapter(root: Path) -> dict[int, list[dict[str, Any]]]:
    """Chapter -> its problems in order, ready for `json.dumps`."""
    chapters: dict[int, list[dict[str, Any]]] = {}
    for problem in load_all(root):
        chapters.setdefault(problem.chapter, []).append(for_page(problem))
    return chapters


def for_page(problem: Problem) -> dict[str, Any]:
    """A problem without what only its authors need."""
    facts = asdict(problem) | {"required": problem.required, "holes": problem.holes}
    return {key: value for key, value in facts.items() if key not in _KEPT_BACK}
