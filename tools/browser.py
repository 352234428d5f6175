#!/usr/bin/env python3
"""Build what the pages load: Python for the browser, exercises, editor.

See `tools/browser.py --help`.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def _use_venv() -> None:
    """Started by a bare system Python: go on in the checkout's own .venv."""
    python = ROOT / ".venv" / "bin" / "python"
    if sys.prefix == sys.base_prefix and python.exists():
        os.execv(python, [str(python), __file__, *sys.argv[1:]])


def _main() -> int:
    sys.path.append(str(ROOT))  # for the practice package
    try:
        from browser_build.cli import main
    except ModuleNotFoundError as error:
        print(f"error: {error}", file=sys.stderr)
        print("next: run `make check` once, it makes .venv", file=sys.stderr)
        return 2
    return main(ROOT)


if __name__ == "__main__":
    _use_venv()
    sys.exit(_main())
