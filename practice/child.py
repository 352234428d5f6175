"""Runs in a fresh interpreter, `python -I -S -B child.pyc`: one answer, one problem.

The request comes as JSON on standard input, and what happens goes as JSON lines to a
pipe of its own, each with the word that the request gave. After the last of them the
judge ends the process. This file is run by path, not imported; standard library only.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

# Seconds after which the process ends by itself, should its judge be gone.
_LIFETIME = 600
_MEMORY = 1 << 30
_FILE_SIZE = 1 << 20
_OPEN_FILES = 64

# What Python announces before it starts a process, signals one, or opens a connection.
_FORBIDDEN = {
    "ctypes.dlopen": "load a C library",
    "os.exec": "start a process",
    "os.fork": "start a process",
    "os.forkpty": "start a process",
    "os.kill": "send a signal",
    "os.killpg": "send a signal",
    "os.posix_spawn": "start a process",
    "os.system": "start a process",
    "resource.prlimit": "change its limits",
    "resource.setrlimit": "change its limits",
    "socket.__new__": "open a connection",
    "subprocess.Popen": "start a process",
}


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    _limit()
    sys.path.insert(0, request["library"])
    import grading

    send = _sender(request["channel"], request["word"])
    sys.addaudithook(_audit)
    trace = traceback.format_exc
    try:
        result = grading.run(**request["run"], announce=send)
        send({"event": "end", "result": result})
    except Exception:  # an answer's errors are results; this is the problem's or ours
        send({"event": "broken", "text": trace(limit=-2)})


def _sender(channel: int, word: str) -> Callable[[dict[str, Any]], None]:
    """A function that writes an event, made before an answer can change anything."""
    encode, write = json.JSONEncoder().encode, os.write

    def send(event: dict[str, Any]) -> None:
        line = encode({"word": word, **event}).encode() + b"\n"
        while line:
            line = line[write(channel, line) :]

    return send


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _FORBIDDEN:
        raise PermissionError(f"an answer may not {_FORBIDDEN[event]}")


def _limit() -> None:
    """What the operating system can limit; where it cannot, the judge's clock does."""
    limits = {
        "RLIMIT_AS": _MEMORY,
        "RLIMIT_CORE": 0,
        "RLIMIT_CPU": _LIFETIME,
        "RLIMIT_FSIZE": _FILE_SIZE,
        "RLIMIT_NOFILE": _OPEN_FILES,
        "RLIMIT_NPROC": 0,
    }
    for name, value in limits.items():
        try:
            resource.setrlimit(getattr(resource, name), (value, value))
        except (AttributeError, OSError, ValueError):
            continue  # macOS does not take all of them
    signal.alarm(_LIFETIME)


if __name__ == "__main__":
    main()
