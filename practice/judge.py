#!/usr/bin/env python3
"""Practice problems: `practice/judge.py check SLUG [FILE]`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "practice")]


def main(argv: list[str]) -> int:
    import json

    import grading
    import problems

    if argv[:1] != ["check"] or len(argv) not in (2, 3):
        print("usage: practice/judge.py check SLUG [FILE]", file=sys.stderr)
        return 2
    problem = problems.load(ROOT / problems.PROBLEMS / argv[1])
    file = Path(argv[2]) if len(argv) == 3 else ROOT / f"learn/practice/{argv[1]}.py"
    result = grading.run(
        problem.slug,
        answer=file.read_text(encoding="utf-8"),
        tests=problem.tests,
        defines=problem.required,
        checks=problem.checks,
        holes=problem.holes,
    )
    print(json.dumps(result, indent=1, ensure_ascii=False))
    return 0 if result["status"] == "accepted" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
