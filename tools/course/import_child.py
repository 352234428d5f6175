"""Run by `verify` as `python -I import_child.py`: import the modules of one stage.

Reads JSON from stdin: `stage` (folder), `modules` (names), `preload` (third-party
modules to load once). Each module is imported in a fork that has loaded nothing of the
package, so that no module gets by on what another one imported first. Writes a JSON
list of faults as the last line of stdout. Needs the standard library only.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import traceback


def main() -> int:
    task = json.load(sys.stdin)
    stage = os.path.realpath(task["stage"])
    for name in task["preload"]:
        with contextlib.suppress(Exception):  # the module that needs it will say so
            importlib.import_module(name)
    sys.path.insert(0, stage)
    faults = [f"{m} {fault}" for m in task["modules"] if (fault := _try(m, stage))]
    print("\n" + json.dumps(faults))
    return 0


def _try(module: str, stage: str) -> str:
    """What goes wrong when a fork imports `module`; empty when nothing does."""
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        with open(write_end, "w", encoding="utf-8", errors="replace") as pipe:
            pipe.write("-" + _import(module, stage))
        os._exit(0)
    os.close(write_end)
    with open(read_end, encoding="utf-8") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    return said[1:] if said else f"ends the interpreter (status {status})"


def _import(module: str, stage: str) -> str:
    try:
        importlib.import_module(module)
    except BaseException as error:
        where = _where(error, stage)
        return f"does not import: {type(error).__name__}: {error}{where}"
    package = module.partition(".")[0]
    for name, loaded in sorted(sys.modules.items()):
        file = getattr(loaded, "__file__", None)
        if name.partition(".")[0] == package and not _is_inside(file, stage):
            return f"loads {name} from {file}, not from the stage"
    return ""


def _where(error: BaseException, stage: str) -> str:
    """The last line of the stage that the error passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if _is_inside(f.filename, stage)]
    if not inside:
        return ""
    last = inside[-1]
    return f" ({os.path.relpath(os.path.realpath(last.filename), stage)}:{last.lineno})"


def _is_inside(file: str | None, stage: str) -> bool:
    return file is not None and os.path.realpath(file).startswith(stage + os.sep)


if __name__ == "__main__":
    sys.exit(main())
