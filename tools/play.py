#!/usr/bin/env python3
"""Play the operations of a live drawing, as text: what the pages do, on this machine.

    tools/play.py 8 radix 'insert 1 2 3' 'insert 1 2 9' 'match 1 2 3'
    tools/play.py 8 radix page_size=2 'insert 1 2 3'
    tools/play.py 8 radix --test 'insert 1 2 3'     a test that repeats them

The chapter's own Python plays them. Exit codes: 0 good, 2 wrong use.
"""

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def _use_venv() -> None:
    """Started by a bare system Python: go on in the checkout's own .venv."""
    python = ROOT / ".venv" / "bin" / "python"
    if sys.prefix == sys.base_prefix and python.exists():
        os.execv(python, [str(python), __file__, *sys.argv[1:]])


def _main(arguments: list[str]) -> int:
    from course.errors import CourseError
    from course.pages.live import LiveError, kinds, played

    words = [word for word in arguments if word != "--test"]
    if len(words) < 2 or {"-h", "--help"} & set(words):
        print(__doc__.strip())
        print(f"kinds: {', '.join(kinds(ROOT))}")
        return 0 if {"-h", "--help"} & set(words) else 2
    chapter, kind, *rest = words
    options = [tuple(word.split("=", 1)) for word in rest if _is_option(word)]
    operations = [word for word in rest if not _is_option(word)]
    try:
        if not chapter.isdigit() or kind not in kinds(ROOT):
            raise LiveError(
                f"{chapter} {kind} is no drawing: give a chapter's number and one of "
                f"{', '.join(kinds(ROOT))}"
            )
        said = played(ROOT, int(chapter), kind, options, operations)
    except (LiveError, CourseError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if "--test" in arguments:
        print(said["test"], end="")
        return 0
    for step in said["steps"][1:]:
        print(f"> {step['line']}\n{step['says'] or step['error']}\n")
        print(f"{step['text']}\n{', '.join(step['sizes'])}\n")
    return 0


def _is_option(word: str) -> bool:
    return re.fullmatch(r"[a-z_]+=\S*", word) is not None


if __name__ == "__main__":
    _use_venv()
    sys.exit(_main(sys.argv[1:]))
