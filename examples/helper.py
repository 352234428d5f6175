"""What every example shares: figures that differ by machine, and the real model."""

from __future__ import annotations

import os
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent / "tools"


def measured(value: float, unit: str) -> str:
    """A figure of this machine, "12.3 ms"; while outputs are recorded only "‹ms›"."""
    if os.environ.get("MINISGL_RECORD") == "1":
        return f"‹{unit}›"
    decimals = 0 if isinstance(value, int) else max(0, 3 - len(str(int(abs(value)))))
    return f"{value:,.{decimals}f} {unit}"


def smollm2() -> Path:
    """Directory of SmolLM2; ends the program with the next command if it is missing."""
    # At the end, so that nothing there can hide a module of the chapter's package.
    sys.path.append(str(TOOLS))
    from course.models import ModelError, resolve

    try:
        return resolve("smollm2")
    except ModelError as error:
        raise SystemExit(str(error)) from None
