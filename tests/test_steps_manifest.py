"""`steps/chapters.toml` is read strictly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from course.manifest import Course, ManifestError, UnknownChapter, parse_manifest
from support.patch_course import entry

GOOD = entry(1, "core", ["core.Req"])
SECOND = entry(2, "model", ["model.Model"])


def test_a_chapter_knows_its_files():
    (chapter,) = parse_manifest(GOOD)
    assert (chapter.label, chapter.stem) == ("01 core", "01_core")
    assert chapter.patch == "steps/01_core.patch"
    assert chapter.hints == "steps/hints/01_core.toml"
    assert (chapter.example, chapter.recorded) == (
        "examples/ch01_core.py",
        "examples/ch01_core.out",
    )
    assert (chapter.tests, chapter.names) == (
        ("tests/test_ch01_core.py",),
        ("core.Req",),
    )
    assert (chapter.page, dict(chapter.retired)) == (None, {})


def test_chapters_have_an_order_and_numbers_may_be_left_out(tmp_path: Path):
    text = GOOD + SECOND + entry(9, "chunks", ["chunks.Chunk"])
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps/chapters.toml").write_text(text)
    course = Course.load(tmp_path)
    assert course.last.number == 9
    assert [course.previous(n) for n in (1, 2, 9)] == [0, 1, 2]
    assert [c.number for c in course.through(2)] == [1, 2]
    assert [c.number for c in course.after(2)] == [9]


def test_an_unknown_chapter_is_answered_with_those_that_exist(tmp_path: Path):
    course = Course(tmp_path, parse_manifest(GOOD + SECOND))
    with pytest.raises(UnknownChapter, match="no chapter 7") as error:
        course.chapter(7)
    assert error.value.hint == "chapters that exist: 1, 2"


def test_a_missing_manifest_is_named(tmp_path: Path):
    with pytest.raises(ManifestError, match=r"no steps/chapters\.toml in "):
        Course.load(tmp_path)


def test_a_manifest_that_is_not_utf8_is_named(tmp_path: Path):
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps/chapters.toml").write_bytes(b'title = "caf\xe9"')
    with pytest.raises(ManifestError, match="not UTF-8"):
        Course.load(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("number = 1", "number = ", "is not TOML"),
        ("[[chapter]]", "[[chapters]]", "unknown keys: chapters"),
        ("[[chapter]]", "[chapter]", r"lists no \[\[chapter\]\]"),
        ("number = 1\n", "", "chapter entry 1: number is missing"),
        ("number = 1", 'number = "1"', "number must be a number, not '1'"),
        ("number = 1", "number = true", "number must be a number, not True"),
        ("number = 1", "number = 0", "between 1 and 99"),
        ("number = 1", "number = 100", "between 1 and 99"),
        ('slug = "core"', 'slug = "../core"', "slug '../core' must be lower case"),
        ('slug = "core"', 'slug = "Core"', "must be lower case"),
        ('slug = "core"', 'slug = "co re"', "must be lower case"),
        ('title = "The core"', 'title = ""', "title must be one line"),
        ('title = "The core"', "title = 3", "title must be a string, not 3"),
        ('title = "The core"', r'title = "a\nb"', "title must be one line"),
        ("examples/ch01", "examples/../ch01", r"path .* must be examples/….py"),
        ("examples/ch01", "/examples/ch01", r"path .* must be examples/….py"),
        ("examples/ch01", "examples//ch01", r"path .* must be examples/….py"),
        ("core.py", "core.sh", r"path .* must be examples/….py"),
        ('["tests/', '["../tests/', r"path .* must be tests/….py"),
        ('["tests/test_ch01_core.py"]', "[]", "tests is empty"),
        ('["tests/test_ch01_core.py"]', "[1]", "tests must hold strings, not 1"),
        ("['core.Req']", "['core.Req', 'core.Req']", "lists core.Req twice"),
        ("['core.Req']", "['core']", "name 'core' must be module.Name"),
        ("['core.Req']", "['core/Req']", "must be module.Name"),
        ("['core.Req']", "'core.Req'", "names must be a list"),
        ("part =", "pert = 1\npart =", "chapter 1: unknown keys: pert"),
        ("part =", 'page = "docs/../x.md"\npart =', r"must be docs/….md"),
        ("part =", 'page = "docs/x.txt"\npart =', r"must be docs/….md"),
        ("part =", 'retired = {"x" = "y"}\npart =', "retired 'x' must be tests/"),
        ("part =", 'retired = {"tests/a.py::b" = ""}\npart =', "needs a reason"),
        ("part =", "retired = 1\npart =", "retired must be a table"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_name(old: str, new: str, message: str):
    assert old in GOOD
    with pytest.raises(ManifestError, match=message) as error:
        parse_manifest(GOOD.replace(old, new, 1))
    assert "chapters.toml" in error.value.message
    assert error.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SECOND + GOOD, r"in order, not \[2, 1\]"),
        (GOOD + GOOD, r"once each and in order, not \[1, 1\]"),
        (GOOD + entry(2, "core", ["a.B"]), "lists 'core' twice, in chapters 1 and 2"),
        (GOOD + re.sub("ch02_model.py", "ch01_core.py", SECOND, count=1), "twice, in"),
        ("chapter = [1]", "chapter entry 1: must be a table"),
        ("", "lists no"),
    ],
)
def test_chapters_must_be_apart_and_in_order(text: str, message: str):
    with pytest.raises(ManifestError, match=message):
        parse_manifest(text)


def test_a_model_must_be_one_that_can_be_fetched():
    text = GOOD.replace("number = 1\n", 'number = 1\nmodel = "gemma4"\n')
    with pytest.raises(ManifestError, match="must be one of: smollm2, gemma3"):
        parse_manifest(text)
