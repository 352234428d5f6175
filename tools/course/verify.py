"""Prove the course's static guarantees: everything that needs no model and no test.

`verify` yields one `Result` per rule, in order, as soon as it is known. Rules about
stages cover the chapters that can be built; when one cannot, the rule about patches
says why.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from course.author import EDIT_FOLDER
from course.errors import CourseError
from course.folder import file_faults, list_files, list_package
from course.git import clean_environment
from course.manifest import MANIFEST, Chapter, Course
from course.modules import Modules, definition
from course.pages.check import Checker as PageChecker
from course.pages.content import Contents
from course.pages.errors import PageError
from course.stack import PACKAGE, Stack, read_patch, write_files

_CHILD = Path(__file__).with_name("import_child.py")
_LIMIT_S = 600
_HINTS_PER_NAME = 3
# Distributions whose import name is not their own.
_IMPORT_NAMES = {"flashinfer-python": "flashinfer", "uvicorn[standard]": "uvicorn"}
_TOOL_EXTRAS = ("dev", "site")  # what the package itself must not need


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and what to do about it."""

    message: str
    hint: str


@dataclass(frozen=True)
class Result:
    """A rule, how much it looked at, and what it found."""

    rule: str
    covered: str  # "5 chapters"
    problems: Sequence[Problem]
    is_complete: bool = (
        True  # False: some chapters could not be built, so not looked at
    )

    @property
    def is_good(self) -> bool:
        return not self.problems


def verify(
    course: Course, progress: Callable[[str], None] = lambda text: None
) -> Iterator[Result]:
    """Check every rule; `progress` hears what is being looked at."""
    checker = _Checker(course, progress)
    for rule, check in checker.rules():
        checker.is_complete = True
        problems = list(check())
        yield Result(rule, checker.covered, problems, checker.is_complete)


class _Checker:
    def __init__(self, course: Course, progress: Callable[[str], None]) -> None:
        self.course = course
        self.root = course.root
        self.progress = progress
        self.stack = Stack(course)
        self.built: list[Chapter] = []
        self.modules: dict[int, Modules] = {}
        self.covered = ""
        self.is_complete = True

    def rules(self) -> list[tuple[str, Callable[[], Iterator[Problem]]]]:
        return [
            ("manifest and folders agree", self.folders),
            ("patches apply exactly and are what git writes", self.patches),
            (f"all patches together give {PACKAGE}/, byte for byte", self.package),
            ("every import finds its module and its name", self.imports),
            ("every name to write is new or changed in its chapter", self.names),
            ("every name to write has its hints", self.hints),
            ("no save was left half done", self.leftovers),
            ("torch-free modules stay torch-free", self.torch_free),
            *self._page_rules(),
            ("every module imports, from its own stage", self.importing),
        ]

    # The manifest and the folders

    def folders(self) -> Iterator[Problem]:
        chapters = self.course.chapters
        self._covers(chapters)
        for chapter in chapters:
            for path, what in _belongings(chapter):
                if not (self.root / path).is_file():
                    yield Problem(
                        f"chapter {chapter.label} has no {what}: {path}",
                        _HOW_TO_ADD[what].format(n=chapter.number),
                    )
            if not chapter.page and self._has_site():
                page = f"docs/{chapter.stem}.md"
                hint = f'write it, and list it in {MANIFEST}: page = "{page}"'
                yield Problem(f"chapter {chapter.label} has no page", hint)
            yield from self._retired_faults(chapter)
        listed = {path for c in chapters for path, _ in _belongings(c)} | {MANIFEST}
        for path in self._chapter_files():
            if path not in listed:
                yield Problem(
                    f"no chapter lists {path}", f"list it in {MANIFEST}, or remove it"
                )

    def _has_site(self) -> bool:
        return (self.root / "mkdocs.yml").is_file()

    def _chapter_files(self) -> list[str]:
        """Files that only a chapter can own."""
        folders = [f for f in _OWNED if (self.root / f).is_dir()]
        if not folders:
            return []
        files = list_files(self.stack.repo, self.root, self.root, *folders)
        return [p for p in files if re.match(_OWNED[p.partition("/")[0]], p)]

    def _retired_faults(self, chapter: Chapter) -> Iterator[Problem]:
        before = [c for c in self.course.chapters if c.number < chapter.number]
        known = {test for c in before for test in c.tests}
        for test in chapter.retired:
            if test.partition("::")[0] not in known:
                yield Problem(
                    f"chapter {chapter.label} retires {test}, which no earlier "
                    "chapter has",
                    f"correct it in {MANIFEST}",
                )

    # The stages

    def patches(self) -> Iterator[Problem]:
        for chapter in self.course.chapters:
            self.progress(f"patch {chapter.label}")
            try:
                self.stack.tree(chapter.number)
            except CourseError as error:
                yield Problem(error.message, error.hint)
                break
            self.built.append(chapter)
            before = self.course.previous(chapter.number)
            stored = read_patch(self.course, chapter)
            line = _first_difference(stored, self.stack.diff(before, chapter.number))
            if line is not None:
                yield Problem(
                    f"chapter {chapter.label}: {chapter.patch}:{line} is not what git "
                    "writes for this change",
                    f"write it again: tools/steps.py edit {chapter.number}, then "
                    "tools/steps.py save",
                )
        self._covers(self.built)

    def package(self) -> Iterator[Problem]:
        paths = list_package(self.stack.repo, self.root)
        self.covered = f"{len(paths)} files"
        faults = file_faults(self.root, paths)
        for fault in faults:
            yield Problem(fault, "correct it, and then the patches if they have it too")
        self.is_complete = len(self.built) == len(self.course.chapters)
        if faults or not self.is_complete:
            return
        last = self.course.last
        stage = self.stack.files(last.number)
        found = {path: (self.root / path).read_bytes() for path in paths}
        for path in sorted(stage.keys() | found.keys()):
            if what := _how_they_differ(stage.get(path), found.get(path)):
                yield Problem(
                    f"{path} {what}",
                    f"take {PACKAGE}/ into the last chapter with tools/steps.py edit "
                    f"{last.number} --adopt and save; or git checkout {PACKAGE}",
                )

    def imports(self) -> Iterator[Problem]:
        self._covers(self.built)
        declared = set(declared_imports(self.root))
        for chapter in self.built:
            modules = Modules.of(self.stack.files(chapter.number))
            self.modules[chapter.number] = modules
            for fault in [*modules.faults, *modules.import_faults(declared)]:
                yield self._in_stage(chapter, fault)

    def torch_free(self) -> Iterator[Problem]:
        self._covers(self.built)
        for chapter in self.built:
            names, faults = self.modules[chapter.number].torch_free()
            if not faults and names:
                # -S: no site-packages, so nothing but the standard library is there.
                faults = self._import_faults(chapter, ["-I", "-S"], names, [])
            for fault in faults:
                yield self._in_stage(chapter, fault)

    def importing(self) -> Iterator[Problem]:
        self._covers(self.built)
        declared = declared_imports(self.root)
        for chapter in self.built:
            modules = self.modules[chapter.number].by_name
            wanted = {i.module for m in modules.values() for i in m.imports}
            preload = [d for d in declared if d in wanted]
            for fault in self._import_faults(chapter, ["-I"], list(modules), preload):
                yield self._in_stage(chapter, fault)

    def _import_faults(
        self,
        chapter: Chapter,
        options: Sequence[str],
        modules: Sequence[str],
        preload: Sequence[str],
    ) -> list[str]:
        """Import modules of a stage in an interpreter of their own; passes are kept."""
        versions = {
            name: _version(d) for name, d in declared_imports(self.root).items()
        }
        tree = self.stack.tree(chapter.number)
        facts = [tree, sys.version, options, modules, preload, versions]
        key = json.dumps(facts).encode() + _CHILD.read_bytes()
        name = hashlib.sha256(key).hexdigest()
        passed = self.root / "build" / "verify" / name
        if passed.exists():
            return []
        self.progress(f"importing {chapter.label}")
        with tempfile.TemporaryDirectory(prefix="stage-") as stage:
            write_files(self.stack.files(chapter.number), Path(stage))
            faults = _run_child(Path(stage), options, modules, preload)
        if not faults:
            passed.parent.mkdir(parents=True, exist_ok=True)
            passed.touch()
        return faults

    # What the reader writes

    def names(self) -> Iterator[Problem]:
        self._covers(self.built)
        for chapter in self.built:
            before = self.stack.files(self.course.previous(chapter.number))
            after = self.stack.files(chapter.number)
            for name in chapter.names:
                text = definition(after, name)
                if text is None:
                    what = f"{name} does not exist at this stage"
                elif text == definition(before, name):
                    what = f"{name} is as it was in the chapter before"
                else:
                    continue
                hint = f"correct names of chapter {chapter.number} in {MANIFEST}"
                yield Problem(f"chapter {chapter.label}: {what}", hint)

    def hints(self) -> Iterator[Problem]:
        self._covers(self.course.chapters)
        for chapter in self.course.chapters:
            path = self.root / chapter.hints
            if path.is_file():
                for fault in _hint_faults(path, chapter.names):
                    yield Problem(
                        f"chapter {chapter.label}: {chapter.hints} {fault}",
                        f"correct {chapter.hints}, or names in {MANIFEST}",
                    )

    def leftovers(self) -> Iterator[Problem]:
        self.covered = "build, steps"
        if (self.root / EDIT_FOLDER / "journal").exists():
            hint = "tools/steps.py list undoes it, as any command does"
            yield Problem("a save was interrupted", hint)
        for folder in ("steps", PACKAGE):
            for path in sorted((self.root / folder).rglob("*.steps-new")):
                name = path.relative_to(self.root)
                yield Problem(f"{name} is left of a save", f"remove {name}")

    # The pages

    def _page_rules(self) -> list[tuple[str, Callable[[], Iterator[Problem]]]]:
        """The rules about what the pages say, as rules of `verify`."""
        checker = PageChecker(Contents(self.course))

        def as_problems(
            check: Callable[[], Iterator[PageError]],
        ) -> Callable[[], Iterator[Problem]]:
            def problems() -> Iterator[Problem]:
                self.is_complete = len(self.built) == len(self.course.chapters)
                self.covered = f"{len(checker.paths)} pages"
                if self.is_complete:
                    self.progress("pages")
                    yield from (Problem(e.message, e.hint) for e in check())

            return problems

        return [(rule, as_problems(check)) for rule, check in checker.rules()]

    def _in_stage(self, chapter: Chapter, fault: str) -> Problem:
        return Problem(
            f"chapter {chapter.label}: {fault}",
            f"correct it with tools/steps.py edit {chapter.number}",
        )

    def _covers(self, chapters: Sequence[Chapter]) -> None:
        num_all = len(self.course.chapters)
        self.is_complete = len(chapters) == num_all
        of_all = "" if self.is_complete else f" of {num_all}"
        self.covered = f"{len(chapters)}{of_all} chapter{'s' * (num_all != 1)}"


def declared_imports(root: Path) -> dict[str, str]:
    """Import name -> distribution, of what pyproject.toml says the package needs."""
    try:
        text = (root / "pyproject.toml").read_text(encoding="utf-8")
        project = tomllib.loads(text).get("project", {})
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise CourseError(
            f"pyproject.toml is not TOML: {error}", "correct it"
        ) from None
    lines = list(project.get("dependencies", []))
    for extra, more in project.get("optional-dependencies", {}).items():
        lines += [] if extra in _TOOL_EXTRAS else more
    names = [re.split(r"[\s<>=!~;@]", line, maxsplit=1)[0].lower() for line in lines]
    return {_IMPORT_NAMES.get(n, n.replace("-", "_")): n for n in names}


_OWNED = {
    "steps": r".*",
    "examples": r"examples/ch\d.*",
    "tests": r"tests/test_ch\d.*",
    "docs": r"docs/\d\d_.*",
}
_HOW_TO_ADD = {
    "patch": "write the chapter: tools/steps.py edit {n}, then tools/steps.py save",
    "example": "write it; it prints what the chapter teaches",
    "recorded output": "record it: tools/steps.py record {n}",
    "recorded output with its model": "get the model (tools/models.py), then record",
    "tests": "write them",
    "hints": "write three questions for every name of the chapter",
    "page": "write it, or take page out of " + MANIFEST,
}


def _belongings(chapter: Chapter) -> list[tuple[str, str]]:
    """(path, what it is) of every file a chapter must have."""
    files = [
        (chapter.patch, "patch"),
        (chapter.hints, "hints"),
        (chapter.example, "example"),
        (chapter.recorded, "recorded output"),
    ]
    if chapter.model is not None:
        files.append((chapter.recorded_with_model, "recorded output with its model"))
    files += [(test, "tests") for test in chapter.tests]
    return files + ([(chapter.page, "page")] if chapter.page else [])


def _hint_faults(path: Path, names: Sequence[str]) -> Iterator[str]:
    try:
        hints = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        yield f"is not TOML: {error}"
        return
    for name in names:
        if name not in hints:
            yield f"has no hints for {name}"
    for name, texts in hints.items():
        if name not in names:
            yield f"has hints for {name}, which is no name of this chapter"
        elif not _are_texts(texts) or len(texts) != _HINTS_PER_NAME:
            yield f"must have {_HINTS_PER_NAME} hints for {name}"


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(text, str) and text.strip() for text in value
    )


def _how_they_differ(stage: bytes | None, found: bytes | None) -> str | None:
    if stage is None:
        return "is in no patch"
    if found is None:
        return "is missing; the patches have it"
    line = _first_difference(found, stage)
    return None if line is None else f"differs from the patches at line {line}"


def _first_difference(a: bytes, b: bytes) -> int | None:
    """The first line, from 1, in which two texts differ; None for equal texts."""
    if a == b:
        return None
    old, new = a.splitlines(keepends=True), b.splitlines(keepends=True)
    for number, (left, right) in enumerate(zip(old, new, strict=False), 1):
        if left != right:
            return number
    return min(len(old), len(new)) + 1


def _run_child(
    stage: Path, options: Sequence[str], modules: Sequence[str], preload: Sequence[str]
) -> list[str]:
    """Faults of importing `modules` from `stage`, as `import_child` reports them."""
    task = {"stage": str(stage), "modules": modules, "preload": preload}
    try:
        done = subprocess.run(
            [sys.executable, *options, str(_CHILD)],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            errors="replace",
            env=_child_environment(),
            cwd=stage,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"importing its modules takes more than {_LIMIT_S} s"]
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return [f"importing its modules ends the interpreter: {done.stderr[-500:]}"]


def _child_environment() -> Mapping[str, str]:
    return clean_environment() | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "absent"
