"""Commands for the builder: start, grade, hint, solution."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
