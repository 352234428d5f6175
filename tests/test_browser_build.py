"""What `tools/browser.py build` makes, and what it says when it cannot."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from browser_build.build import build, fingerprint, is_current
from browser_build.node import NodeTools
from browser_build.problems import for_page
from browser_build.wheels import MagicError, check_magic, make_wheels, stage_sources
from course.errors import CheckFailed, CourseError
from course.manifest import Course
from support.browser import FREE_LIST, REPO

from practice.grading import WORLDS
from practice.stages import torch_free

pytest_plugins = ["support.browser_fixtures"]

WEB = REPO / "practice" / "web"


def tool(*arguments: str, path: str) -> subprocess.CompletedProcess[str]:
    """`tools/browser.py …` with this PATH."""
    return subprocess.run(
        [sys.executable, "tools/browser.py", *arguments],
        cwd=REPO,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )


def wheel_of(built: Path, stage: str) -> Path:
    lock = json.loads((built / "runtime" / "pyodide-lock.json").read_text())
    return built / "runtime" / lock["packages"][stage]["file_name"]


def test_a_second_build_does_nothing_and_says_so(built: Path):
    assert not build(REPO).is_new
    said = tool("build", path=os.environ["PATH"])
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith("nothing changed: ")


def test_a_file_that_is_gone_or_changed_is_built_again(built: Path, tmp_path: Path):
    copy = tmp_path / "web"
    inputs = fingerprint(REPO)
    shutil.copytree(built, copy)
    assert is_current(copy, inputs)
    assert not is_current(copy, "other inputs")
    script = copy / "worker.js"
    content = script.read_text()
    script.write_text(content + "\n")
    assert not is_current(copy, inputs)
    script.unlink()
    assert not is_current(copy, inputs)
    assert build(REPO, copy).is_new
    assert script.read_text() == content


def test_every_input_counts(tmp_path: Path):
    for name in ("steps", "practice", "tools"):
        (tmp_path / name).mkdir()
    (tmp_path / "pyproject.toml").write_text("")
    seen = {fingerprint(tmp_path)}
    for name in (
        "steps/01_core.patch",
        "practice/grading.py",
        "practice/problems/free-list/tests.py",
        "practice/web/src/worker.js",
        "tools/browser_build/build.py",
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("new")
        seen.add(fingerprint(tmp_path))
    assert len(seen) == 6
    file = tmp_path / "practice" / "web" / "node_modules" / "x.js"
    file.parent.mkdir()
    file.write_text("not an input")
    assert fingerprint(tmp_path) in seen


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(CourseError, match="holds other files"):
        build(REPO, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_the_manifest_and_the_lock_file_name_what_is_there(built: Path):
    manifest = json.loads((built / "manifest.json").read_text())
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((built / name).read_bytes()).hexdigest() == digest
    lock = json.loads((built / "runtime" / "pyodide-lock.json").read_text())
    chapters = [chapter.number for chapter in Course.load(REPO).chapters]
    assert [*lock["packages"]] == [f"minisgl-stage{n:02}" for n in chapters]
    for package in lock["packages"].values():
        name = f"runtime/{package['file_name']}"
        assert manifest["files"][name] == package["sha256"]
        assert manifest["files"][name.replace("cp313", "py3")]
    for name in ("grading", *WORLDS):
        core = REPO / "practice" / f"{name}.py"
        assert (built / "python" / core.name).read_bytes() == core.read_bytes()


def test_a_stage_has_the_modules_that_the_local_judge_gives():
    course = Course.load(REPO)
    sources = stage_sources(course)
    for chapter in (3, course.last.number):
        here = sources[f"minisgl_stage{chapter:02}"]
        there = torch_free(course, chapter)
        assert {path: text.encode() for path, text in here.items()} == there


def test_a_wheel_records_its_files_and_the_python_it_is_for(built: Path):
    wheel = wheel_of(built, "minisgl-stage08")
    with zipfile.ZipFile(wheel) as opened:
        content = {name: opened.read(name) for name in opened.namelist()}
    about = "minisgl_stage08-0.1.0.dist-info"
    assert b"Tag: cp313-none-any" in content[f"{about}/WHEEL"]
    record = content.pop(f"{about}/RECORD").decode()
    rows = {row[0]: row[1] for row in csv.reader(io.StringIO(record)) if row[1]}
    assert rows.keys() == content.keys()
    for name, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
        assert rows[name] == f"sha256={digest.decode().rstrip('=')}"
    assert not [name for name in content if name.endswith(".py")]


def test_the_same_modules_give_the_same_bytes(built: Path, tmp_path: Path):
    node = NodeTools(WEB)
    sources = {"minisgl_stage03": stage_sources(Course.load(REPO))["minisgl_stage03"]}
    for tools in (REPO / "build" / "web-cache").glob("tools-*"):
        shutil.copytree(tools, tmp_path / tools.name)  # no second download
    made = make_wheels(node, sources, "0.1.0", tmp_path)
    names = {file.name for file in made.glob("*.whl")}
    assert len(names) == 2
    for name in names:
        expected = (built / "runtime" / name).read_bytes()
        assert (made / name).read_bytes() == expected, name


def test_bytecode_of_another_python_is_found_out(built: Path, tmp_path: Path):
    for name in ("pyodide-lock.json", "python.json"):
        shutil.copy(built / "runtime" / name, tmp_path)
    for wheel in (built / "runtime").glob("*-cp313-*.whl"):
        shutil.copy(wheel, tmp_path)
    check_magic(tmp_path)

    wheel = tmp_path / wheel_of(built, "minisgl-stage03").name
    with zipfile.ZipFile(wheel) as old:
        content = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(wheel, "w") as new:
        for name, data in content.items():
            is_core = name == "minisgl/core.pyc"
            new.writestr(
                name, (3495).to_bytes(2, "little") + data[2:] if is_core else data
            )
    with pytest.raises(MagicError, match=r"minisgl/core\.pyc has magic number 3495"):
        check_magic(tmp_path)

    with zipfile.ZipFile(wheel, "w") as new:
        new.writestr("minisgl/core.py", "")
    with pytest.raises(MagicError, match="holds no bytecode"):
        check_magic(tmp_path)

    python = json.loads((tmp_path / "python.json").read_text())
    (tmp_path / "python.json").write_text(json.dumps(python | {"version": "3.14.1"}))
    with pytest.raises(MagicError, match=r"compiled by Python 3\.14\.1"):
        check_magic(tmp_path)


def test_a_machine_without_node_is_told_what_to_install(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(shutil.which("git"))
    said = tool("build", "--to", str(tmp_path / "web"), path=str(tmp_path / "bin"))
    assert said.returncode == 2
    assert said.stderr.startswith("error: node is not on the PATH")
    assert "next: install Node.js 20 or newer with npm" in said.stderr
    assert not (tmp_path / "web").exists()


def test_an_old_node_is_named(tmp_path: Path):
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\necho v16.20.2\n")
    node.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    said = tool("build", "--to", str(tmp_path / "web"), path=path)
    assert said.returncode == 2
    assert "is version v16.20.2; practice/web needs 20 or newer" in said.stderr


def test_packages_of_another_version_are_named(tmp_path: Path):
    shutil.copy(WEB / "package.json", tmp_path)
    shutil.copy(WEB / "package-lock.json", tmp_path)
    modules = tmp_path / "node_modules"
    lock = (tmp_path / "package-lock.json").read_bytes()
    for name, version in json.loads((WEB / "package.json").read_text())[
        "dependencies"
    ].items():
        package = modules / name / "package.json"
        package.parent.mkdir(parents=True)
        wrong = "0.28.0" if name == "pyodide" else version
        package.write_text(json.dumps({"version": wrong}))
    (modules / ".minisgl-lock").write_text(hashlib.sha256(lock).hexdigest())
    with pytest.raises(CheckFailed, match=r"pyodide 0\.28\.0, package\.json pins"):
        NodeTools(tmp_path).install()


def test_a_page_gets_no_wrong_answers():
    problem = for_page(FREE_LIST)
    assert not problem.keys() & {"wrong", "wrong_answers", "applies_to"}
    for key in ("starter", "solution", "tests", "hints", "required", "holes"):
        assert key in problem


def test_the_lock_files_name_no_host():
    lock = (WEB / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert "https://registry" not in lock
    assert "://" not in (WEB / "packaging" / "requirements.txt").read_text()
