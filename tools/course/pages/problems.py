"""The exercises and the stages' torch-free modules, as the judge itself has them.

The judge lies beside tools/.
"""

from __future__ import annotations

import sys
from pathlib import Path

_CHECKOUT = str(Path(__file__).resolve().parents[3])
if _CHECKOUT not in sys.path:
    sys.path.append(_CHECKOUT)  # last: it must not answer for anything else

from practice.problems import Problem, load, load_all, slugs  # noqa: E402
from practice.stages import LIBRARY, library  # noqa: E402

__all__ = ["LIBRARY", "Problem", "library", "load_problem", "problems", "slugs"]


def load_problem(root: Path, slug: str) -> Problem:
    """One exercise; `CourseError` says what is wrong with it."""
    return load(root / "practice" / "problems" / slug)


def problems(root: Path) -> list[Problem]:
    """All exercises, chapter by chapter."""
    return sorted(load_all(root), key=lambda p: (p.chapter, p.order, p.slug))
