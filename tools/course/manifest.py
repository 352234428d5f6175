"""What the chapters are: `steps/chapters.toml`, read strictly."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course.errors import CourseError
from course.models import MODELS

MANIFEST = "steps/chapters.toml"

_SLUG = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
_TEST_ID = re.compile(r"tests/[\w./-]+\.py(::[\w.\[\]-]+)*", re.ASCII)


class ManifestError(CourseError):
    """`steps/chapters.toml` does not say what it must."""


class UnknownChapter(CourseError):
    """A chapter number that the manifest does not list."""


@dataclass(frozen=True)
class Chapter:
    """One chapter. Paths are relative to the course's root, with forward slashes."""

    number: int
    slug: str
    title: str
    part: str
    example: str
    tests: tuple[str, ...]
    names: tuple[str, ...]  # module path below minisgl + qualified name
    page: str | None = None
    model: str | None = None  # if it has been fetched, the example shows it too
    retired: Mapping[str, str] = field(default_factory=dict)  # test id -> reason

    @property
    def label(self) -> str:
        """For people: `03 pool`."""
        return f"{self.number:02d} {self.slug}"

    @property
    def stem(self) -> str:
        """For file names: `03_pool`."""
        return f"{self.number:02d}_{self.slug}"

    @property
    def patch(self) -> str:
        return f"steps/{self.stem}.patch"

    @property
    def hints(self) -> str:
        return f"steps/hints/{self.stem}.toml"

    @property
    def recorded(self) -> str:
        """Where the output of `example` is kept."""
        return self.example.removesuffix(".py") + ".out"

    @property
    def recorded_with_model(self) -> str | None:
        """Where the output is kept that the example has with its optional `model`."""
        if self.model is None:
            return None
        return self.example.removesuffix(".py") + f".{self.model}.out"


@dataclass(frozen=True)
class Course:
    """The course in folder `root`: its chapters in order."""

    root: Path
    chapters: tuple[Chapter, ...]

    @classmethod
    def load(cls, root: Path) -> Course:
        """Read and validate `root`/steps/chapters.toml.

        Raises:
            ManifestError: the file is missing, is no TOML, or breaks a rule.
        """
        root = Path(root).resolve()
        return cls(root, parse_manifest(_read(root / MANIFEST)))

    @property
    def last(self) -> Chapter:
        return self.chapters[-1]

    def chapter(self, number: int) -> Chapter:
        """The chapter with this number; `UnknownChapter` lists what exists."""
        for chapter in self.chapters:
            if chapter.number == number:
                return chapter
        listed = ", ".join(str(c.number) for c in self.chapters)
        raise UnknownChapter(
            f"there is no chapter {number}", f"chapters that exist: {listed}"
        )

    def previous(self, number: int) -> int:
        """The number of the chapter before this one; 0 before the first."""
        at = self.chapters.index(self.chapter(number))
        return self.chapters[at - 1].number if at else 0

    def through(self, number: int) -> tuple[Chapter, ...]:
        """All chapters up to and including this one."""
        return self.chapters[: self.chapters.index(self.chapter(number)) + 1]

    def after(self, number: int) -> tuple[Chapter, ...]:
        """All chapters after this one."""
        return self.chapters[self.chapters.index(self.chapter(number)) + 1 :]


def parse_manifest(text: str) -> tuple[Chapter, ...]:
    """The chapters that a manifest's text lists; `ManifestError` names the fault."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _wrong(f"is not TOML: {error}") from None
    if surplus := sorted(set(data) - {"chapter"}):
        raise _wrong(f"has unknown keys: {', '.join(surplus)}")
    tables = data.get("chapter")
    if not isinstance(tables, list) or not tables:
        raise _wrong("lists no [[chapter]]")
    chapters = tuple(_chapter(table, i + 1) for i, table in enumerate(tables))
    _check_order(chapters)
    return chapters


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise ManifestError(
            f"there is no {MANIFEST} in {path.parents[1]}",
            "run the tools of a full checkout, or put the file back: "
            f"git checkout {MANIFEST}",
        ) from None
    except UnicodeDecodeError as error:
        raise _wrong(f"is not UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise _wrong(f"cannot be read: {error.strerror}") from None


def _wrong(what: str) -> ManifestError:
    return ManifestError(f"{MANIFEST} {what}", f"correct {MANIFEST} and run this again")


def _chapter(table: Any, position: int) -> Chapter:
    """Chapter from its TOML table; `position` (1 = first) names it in errors."""
    fields = _Fields(table, f"chapter entry {position}")
    number = fields.take("number", int)
    fields.where = f"chapter {number}"
    slug = fields.take("slug", str)
    if not 1 <= number <= 99:
        raise fields.wrong("number must be between 1 and 99")
    if not _SLUG.fullmatch(slug):
        raise fields.wrong(f"slug {slug!r} must be lower case words joined by _")
    chapter = Chapter(
        number=number,
        slug=slug,
        title=fields.take("title", str),
        part=fields.take("part", str),
        example=fields.path(fields.take("example", str), "examples/", ".py"),
        tests=tuple(
            fields.path(test, "tests/", ".py") for test in fields.strings("tests")
        ),
        names=tuple(fields.strings("names")),
        page=fields.optional_page(),
        model=fields.optional_model(),
        retired=fields.retired(),
    )
    for name in chapter.names:
        if not _NAME.fullmatch(name):
            raise fields.wrong(f"name {name!r} must be module.Name, as core.Req")
    fields.done()
    return chapter


class _Fields:
    """Takes typed fields out of one table; what is left over is unknown."""

    def __init__(self, table: Any, where: str) -> None:
        self.where = where
        if not isinstance(table, dict):
            raise self.wrong("must be a table")
        self.left = dict(table)

    def wrong(self, what: str) -> ManifestError:
        return _wrong(f"{self.where}: {what}")

    def take(self, key: str, kind: type) -> Any:
        if key not in self.left:
            raise self.wrong(f"{key} is missing")
        value = self.left.pop(key)
        if type(value) is not kind:
            raise self.wrong(f"{key} must be {_KINDS[kind]}, not {value!r}")
        if kind is str and (not value.strip() or not value.isprintable()):
            raise self.wrong(f"{key} must be one line of text, not {value!r}")
        return value

    def strings(self, key: str) -> list[str]:
        values = self.take(key, list)
        for value in values:
            if type(value) is not str:
                raise self.wrong(f"{key} must hold strings, not {value!r}")
        if not values:
            raise self.wrong(f"{key} is empty")
        if twice := sorted({v for v in values if values.count(v) > 1}):
            raise self.wrong(f"{key} lists {', '.join(twice)} twice")
        return values

    def path(self, value: str, folder: str, suffix: str) -> str:
        """A plain relative path inside `folder`: no way out of it."""
        parts = value.split("/")
        plain = all(p not in ("", ".", "..") for p in parts) and "\\" not in value
        if not (plain and value.startswith(folder) and value.endswith(suffix)):
            raise self.wrong(f"path {value!r} must be {folder}…{suffix}")
        return value

    def optional_page(self) -> str | None:
        if "page" not in self.left:
            return None
        return self.path(self.take("page", str), "docs/", ".md")

    def optional_model(self) -> str | None:
        if "model" not in self.left:
            return None
        name, known = self.take("model", str), [spec.name for spec in MODELS]
        if name not in known:
            raise self.wrong(f"model {name!r} must be one of: {', '.join(known)}")
        return name

    def retired(self) -> dict[str, str]:
        if "retired" not in self.left:
            return {}
        table = self.take("retired", dict)
        for test, reason in table.items():
            if not _TEST_ID.fullmatch(test) or ".." in test:
                raise self.wrong(f"retired {test!r} must be tests/….py::test_name")
            if type(reason) is not str or not reason.strip():
                raise self.wrong(f"retired {test!r} needs a reason")
        return table

    def done(self) -> None:
        if self.left:
            raise self.wrong(f"unknown keys: {', '.join(sorted(self.left))}")


_KINDS = {int: "a number", str: "a string", list: "a list", dict: "a table"}


def _check_order(chapters: tuple[Chapter, ...]) -> None:
    numbers = [c.number for c in chapters]
    if numbers != sorted(set(numbers)):
        raise _wrong(f"must list numbers once each and in order, not {numbers}")
    owners: dict[str, Chapter] = {}
    for chapter in chapters:
        pages = [chapter.page] if chapter.page else []
        for path in (chapter.slug, chapter.example, *chapter.tests, *pages):
            if path in owners:
                both = f"chapters {owners[path].number} and {chapter.number}"
                raise _wrong(f"lists {path!r} twice, in {both}")
            owners[path] = chapter
