"""Replace many files as one: all of them, or none.

    journal/            exists exactly while a swap is unfinished
      list.json         path -> sha256 of the old and of the new content (null: absent)
      old/PATH          the old content

A journal that is found later belongs to a swap that was killed: `roll_back` restores
every old file. Signals wait while a swap runs (it takes milliseconds), so only a kill
or a power cut leaves one behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from course.errors import CourseError

_HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def swap_files(root: Path, journal: Path, changes: Mapping[str, bytes | None]) -> None:
    """Write each path below `root` (None: remove it); on any error, none of them."""
    _write_journal(root, journal, changes)
    with _signals_held():
        try:
            for path, content in changes.items():
                _put(root / path, content)
        except BaseException:
            roll_back(root, journal)
            raise
        _close(journal)


def roll_back(root: Path, journal: Path) -> bool:
    """Undo a swap that was killed; False when there is none to undo.

    Raises:
        CourseError: somebody changed one of the files since. Nothing is undone.
    """
    if not journal.exists():
        return False
    entries = json.loads((journal / "list.json").read_text())
    for path, (old, new) in entries.items():
        if _digest(_content(root / path)) not in (old, new):
            raise CourseError(
                f"{path} was changed after a save was interrupted",
                f"its old content is in {journal / 'old'}: put it back, or take it "
                f"into account, then remove {journal}",
            )
    for path, (old, _) in entries.items():
        _put(root / path, None if old is None else _content(journal / "old" / path))
    _close(journal)
    return True


def _write_journal(
    root: Path, journal: Path, changes: Mapping[str, bytes | None]
) -> None:
    """All old content is safe on disk before the journal gets its name."""
    draft = journal.with_name(journal.name + ".new")
    shutil.rmtree(draft, ignore_errors=True)
    entries = {}
    for path, content in changes.items():
        old = _content(root / path)
        entries[path] = (_digest(old), _digest(content))
        if old is not None:
            _write(draft / "old" / path, old)
    _write(draft / "list.json", json.dumps(entries, indent=1).encode())
    draft.rename(journal)


def _close(journal: Path) -> None:
    """One rename ends the swap; what is removed after it no longer counts."""
    done = journal.with_name(journal.name + ".done")
    shutil.rmtree(done, ignore_errors=True)
    journal.rename(done)
    shutil.rmtree(done, ignore_errors=True)


def _put(file: Path, content: bytes | None) -> None:
    """Give a file its content in one step. A killed try leaves a `….steps-new`."""
    new = file.with_name(file.name + ".steps-new")
    if content is None:
        new.unlink(missing_ok=True)
        file.unlink(missing_ok=True)
        with suppress(OSError):
            os.removedirs(file.parent)  # stops at the first that is not empty
        return
    _write(new, content)
    os.replace(new, file)


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def _digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


@contextmanager
def _signals_held() -> Iterator[None]:
    """Deliver at the end what comes meanwhile.

    Not by a signal mask: that holds for one thread, and another would take the signal.
    """
    arrived: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: arrived.append(number))
        for number in _HELD
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in arrived:
            signal.raise_signal(number)
