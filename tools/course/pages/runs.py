"""Recorded runs: where the measured figures of the pages come from.

`docs/runs/KEY.toml` says what is run and which figures are taken from what it prints;
`docs/runs/KEY.json` is what it printed, when, and on what machine. The second is
written by `tools/figures.py KEY` and never by hand.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course.errors import CourseError

RUNS = "docs/runs"
_KEYS = {"about", "chapter", "command", "figures"}
_RECORDED = ("fingerprint", "command", "date", "machine", "output")


class RunError(CourseError):
    """A run that is not listed, not recorded, or does not print what it must."""


@dataclass(frozen=True)
class Run:
    """What is run: `command` is what follows `python`, from the course's root."""

    key: str
    about: str
    command: tuple[str, ...]
    chapter: int | None = None  # run on this stage; None: on the finished package
    figures: Mapping[str, str] = field(default_factory=dict)  # name -> regex, one group

    @classmethod
    def load(cls, root: Path, key: str) -> Run:
        """Read `docs/runs/KEY.toml`; `RunError` names what is wrong with it."""
        path = f"{RUNS}/{key}.toml"
        try:
            data = tomllib.loads((root / path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            known = ", ".join(run_keys(root)) or "none yet"
            raise RunError(
                f"there is no {path}", f"write it, or use one of: {known}"
            ) from None
        except ValueError as error:
            raise RunError(f"{path} is not TOML: {error}", f"correct {path}") from None
        if fault := _fault(data):
            raise RunError(f"{path} {fault}", f"correct {path}")
        command = tuple(data.get("command", [f"{RUNS}/{key}.py"]))
        figures = data.get("figures", {})
        return cls(key, data["about"], command, data.get("chapter"), figures)

    def fingerprint(self, root: Path) -> str:
        """Changes when the command or its script does: then the recording is stale."""
        script = root / self.command[0]
        if not script.is_file():
            raise RunError(
                f"{RUNS}/{self.key}.toml runs {self.command[0]}, which is not there",
                f"write it, or correct {RUNS}/{self.key}.toml",
            )
        facts = json.dumps([self.command, self.chapter]).encode()
        return hashlib.sha256(facts + script.read_bytes()).hexdigest()[:16]


@dataclass(frozen=True)
class Recorded:
    """A run as it was recorded."""

    run: Run
    date: str  # 2026-01-31
    machine: str
    output: str

    @classmethod
    def load(cls, root: Path, key: str) -> Recorded:
        """Read a run and its recording; `RunError` when one is missing or stale."""
        run = Run.load(root, key)
        again = f"record it: tools/figures.py {key}"
        try:
            text = (root / RUNS / f"{key}.json").read_text(encoding="utf-8")
            data = json.loads(text)
        except FileNotFoundError:
            raise RunError(f"{RUNS}/{key}.json is not recorded", again) from None
        except ValueError as error:
            raise RunError(f"{RUNS}/{key}.json is not JSON: {error}", again) from None
        if not isinstance(data, dict) or any(
            not isinstance(data.get(name), str) for name in _RECORDED
        ):
            raise RunError(f"{RUNS}/{key}.json is no recording", again)
        if data["fingerprint"] != run.fingerprint(root):
            what = "was recorded before its command or script changed"
            raise RunError(f"{RUNS}/{key}.json {what}", again)
        return cls(run, data["date"], data["machine"], data["output"])

    def figure(self, name: str) -> str:
        """What one figure was; `RunError` when the output does not have it once."""
        where = f"{RUNS}/{self.run.key}.toml"
        if name not in self.run.figures:
            known = ", ".join(self.run.figures) or "none"
            raise RunError(
                f"{where} has no figure {name}", f"add it, or use one of: {known}"
            )
        found = re.findall(self.run.figures[name], self.output, re.MULTILINE)
        if len(found) != 1:
            count = f"matches the recorded output {len(found)} times"
            raise RunError(
                f"{where}: figure {name} {count}",
                "correct its regex, so that it matches once",
            )
        return found[0]


def run_keys(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / RUNS).glob("*.toml"))


def _fault(data: Mapping[str, Any]) -> str | None:
    if surplus := sorted(set(data) - _KEYS):
        return f"has unknown keys: {', '.join(surplus)}"
    if not isinstance(data.get("about"), str) or not data["about"].strip():
        return 'must say about = "what it shows"'
    if not _is_command(data.get("command", ["x"])):
        return 'must say command = ["tools/bench.py", …], or leave it out'
    if type(data.get("chapter", 1)) is not int:
        return "must give chapter as a number"
    figures = data.get("figures", {})
    if not isinstance(figures, dict):
        return "must have [figures] as a table"
    for name, regex in figures.items():
        try:
            groups = re.compile(regex).groups
        except (TypeError, re.error) as error:
            return f"has no regular expression for figure {name}: {error}"
        if groups != 1:
            return f"must have one group in the regex of figure {name}"
    return None


def _is_command(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(word, str) for word in value)
    )
