"""What the worker calls: grade an answer, compute the data of a live drawing.

One interpreter serves many calls, so each of them begins with fresh modules of minisgl
and leaves nothing behind that the next could find.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import grading

# Pyodide's ways into JavaScript. An answer has the standard library and minisgl, here
# as on the command line, and no other way to the page than what it returns.
_FROM_JS = ("js", "pyodide_js")
_TO_JS = ("pyodide", "_pyodide", "_pyodide_core")

# Made before an answer can replace anything.
_encode = json.JSONEncoder().encode


def prepare() -> None:
    """Close the bridges to JavaScript, before anybody's code runs."""
    sys.dont_write_bytecode = True
    sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "JsFinder"]
    _forget(*_FROM_JS, *_TO_JS, "minisgl")
    sys.modules.update(dict.fromkeys(_TO_JS))  # None: an import of it fails


def grade(asked: str, tell: Callable[[str], None]) -> None:
    """Grade one answer.

    Args:
        asked: JSON with the answer, and the problem's slug, tests, required, holes and
            checks.
        tell: takes every event of `grading.run` as JSON, and at the end
            `{"event": "result", "result": …, "reusable": …}`. Files were changed in an
            interpreter that is not reusable: the next run would import them.
    """
    problem = json.loads(asked)
    before = _files()
    result = grading.run(
        problem["slug"],
        answer=problem["answer"],
        tests=problem["tests"],
        defines=problem["required"],
        checks=problem["checks"],
        holes=problem["holes"],
        announce=lambda event: tell(_encode(_complete(event))),
    )
    done = {"event": "result", "result": result, "reusable": _files() == before}
    tell(_encode(done))


def _complete(event: dict[str, Any]) -> dict[str, Any]:
    """An event with all that a page needs if it is the last one."""
    if event["event"] == "found":
        return event | {"message": grading.message_of(event["failure"])}
    return event


def call(name: str, payload: str) -> str:
    """Call `module.function` of live/ with parsed JSON: JSON with value or error."""
    _forget("minisgl", "live")  # counters begin where they begin
    module, _, function = name.partition(".")
    try:
        value = getattr(import_module(f"live.{module}"), function)(json.loads(payload))
        return _encode({"value": value})
    except Exception as error:
        return _encode({"error": type(error).__name__, "message": str(error)})


def _forget(*packages: str) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] in packages:
            del sys.modules[name]


def _files() -> list[tuple[str, int, int]]:
    """Path, size and time of everything that an import could find."""
    found = []
    for top in sys.path:
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                stat = os.lstat(path)
                found.append((path, stat.st_size, stat.st_mtime_ns))
    return found
