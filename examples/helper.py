"""What every example shares: figures that differ by machine, and the real model."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

TOOLS = Path(__file__).resolve().parent.parent / "tools"


def measured(value: float, unit: str) -> str:
    """A figure of this machine, "12.3 ms"; while outputs are recorded only "‹ms›"."""
    if os.environ.get("MINISGL_RECORD") == "1":
        return f"‹{unit}›"
    decimals = 0 if isinstance(value, int) else max(0, 3 - len(str(int(abs(value)))))
    return f"{value:,.{decimals}f} {unit}"


def smollm2() -> Path:
    """Directory of SmolLM2; ends the program with the next command if it is missing."""
    models = _models()
    try:
        return models.resolve("smollm2")
    except models.ModelError as error:
        raise SystemExit(str(error)) from None


def gemma3() -> Path | None:
    """Directory of Gemma 3 270M, or None if it has not been fetched."""
    models = _models()
    if not models.is_there(models.GEMMA3, models.models_dir()):
        return None
    return models.resolve("gemma3")


def _models() -> ModuleType:
    # At the end, so that nothing there can hide a module of the chapter's package.
    if str(TOOLS) not in sys.path:
        sys.path.append(str(TOOLS))
    from course import models

    return models
