"""Every static guarantee, broken one at a time: `verify` names what, where and why."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from course.errors import CourseError
from course.verify import Result, declared_imports, verify
from support.patch_course import (
    ONE,
    POOL,
    REQ,
    THREE,
    TWO,
    PatchCourse,
    git,
    git_patches,
)

FOLDERS = "manifest and folders agree"
PATCHES = "patches apply exactly and are what git writes"
PACKAGE = "all patches together give minisgl/, byte for byte"
IMPORTS = "every import finds its module and its name"
TORCH_FREE = "torch-free modules stay torch-free"
IMPORTING = "every module imports, from its own stage"
NAMES = "every name to write is new or changed in its chapter"
HINTS = "every name to write has its hints"
LEFT = "no save was left half done"
PAGES = [
    "what a page shows exists at its chapter's stage",
    "every line a chapter adds is on its page, or omitted there",
    "names in code style exist at the page's stage",
    "numbers say where they come from",
    "every exercise is on its chapter's page",
]
RULES = [
    FOLDERS,
    PATCHES,
    PACKAGE,
    IMPORTS,
    NAMES,
    HINTS,
    LEFT,
    TORCH_FREE,
    *PAGES,
    IMPORTING,
]


@pytest.fixture
def course(tmp_path: Path) -> PatchCourse:
    return PatchCourse(tmp_path / "a course")


def broken(course: PatchCourse) -> dict[str, list[str]]:
    """Rule -> messages, of the rules that do not hold."""
    results = list(verify(course.course))
    assert [r.rule for r in results] == RULES
    assert all(p.hint for r in results for p in r.problems)
    return {r.rule: [p.message for p in r.problems] for r in results if not r.is_good}


def with_module(tmp_path: Path, code: str, **more: str) -> PatchCourse:
    """A course whose second chapter adds `minisgl/extra.py`, and other modules."""
    files = {f"minisgl/{name}.py": text for name, text in more.items()}
    stages = (ONE, {**ONE, "minisgl/extra.py": code, **files})
    return PatchCourse(tmp_path / "a course", *stages, names=(["core.Req"], ["core.X"]))


def fault(course: PatchCourse, rule: str) -> str:
    """The one thing that `rule` finds; slower rules after it do not run."""
    (result,) = islice((r for r in verify(course.course) if r.rule == rule), 1)
    (problem,) = result.problems
    assert problem.hint
    return problem.message


def holds(course: PatchCourse, rule: str) -> bool:
    (result,) = islice((r for r in verify(course.course) if r.rule == rule), 1)
    return result.is_good


def test_a_good_course_holds_every_rule(course):
    assert broken(course) == {}
    covered = {r.rule: r.covered for r in verify(course.course)}
    assert covered[PATCHES] == covered[IMPORTS] == "3 chapters"
    assert covered[PACKAGE] == "3 files"


def test_verify_changes_nothing(course):
    before = course.state()
    broken(course)
    assert course.state() == before


# 1: all patches together give minisgl/


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("minisgl/core.py", "a = 1\n", "core.py differs from the patches at line 1"),
        ("minisgl/core.py", REQ, "core.py differs from the patches at line 5"),
        ("minisgl/pool.py", POOL + "\n", "pool.py differs from the patches at line 9"),
        ("minisgl/extra.py", "", "minisgl/extra.py is in no patch"),
        ("minisgl/notes.txt", "?\n", "minisgl/notes.txt is in no patch"),
    ],
)
def test_a_package_that_is_not_the_last_stage(course, path, content, message):
    course.write(path, content)
    assert message in fault(course, PACKAGE)


def test_a_file_that_only_the_patches_have(course):
    (course.root / "minisgl/pool.py").unlink()
    assert fault(course, PACKAGE) == "minisgl/pool.py is missing; the patches have it"


def test_ignored_files_do_not_count_and_tracked_or_not_makes_no_difference(course):
    course.write("minisgl/__pycache__/core.cpython-311.pyc", b"\0")
    assert broken(course) == {}
    git(course.root, "init", "-q")
    git(course.root, "add", "-A", ".")
    assert broken(course) == {}
    course.write("minisgl/extra.py", "")
    assert fault(course, PACKAGE) == "minisgl/extra.py is in no patch"
    git(course.root, "add", "minisgl/extra.py")
    assert fault(course, PACKAGE) == "minisgl/extra.py is in no patch"


# 2: patches apply exactly, and are canonical


def test_a_patch_that_is_not_what_git_writes(course):
    text = course.read("steps/03_three.patch")
    index = "--- a/minisgl/core.py"
    course.write(
        "steps/03_three.patch", text.replace(index, f"index 1..2 100644\n{index}")
    )
    said = fault(course, PATCHES)
    place = "chapter 03 three: steps/03_three.patch:2"
    assert said == f"{place} is not what git writes for this change"


def test_a_message_above_a_patch_is_not_what_git_writes(course):
    path = "steps/02_two.patch"
    course.write(path, "From: me\n\n" + course.read(path))
    assert f"{path}:1 is not what git writes" in fault(course, PATCHES)


def test_a_rename_in_short_form_is_not_what_git_writes(tmp_path):
    course = PatchCourse(tmp_path, {"minisgl/a.py": REQ}, {"minisgl/b.py": REQ})
    course.write(
        "steps/02_two.patch",
        "diff --git a/minisgl/a.py b/minisgl/b.py\nsimilarity index 100%\n"
        "rename from minisgl/a.py\nrename to minisgl/b.py\n",
    )
    assert "steps/02_two.patch:1 is not what git writes" in fault(course, PATCHES)


def test_a_patch_that_does_not_apply_stops_there_and_the_rest_is_still_checked(course):
    course.replace("steps/02_two.patch", "b/minisgl/pool.py", "b/minisgl/core.py")
    said = broken(course)
    assert set(said) == {PATCHES}
    assert "chapter 02 two" in said[PATCHES][0]
    results = {r.rule: r for r in verify(course.course)}
    for rule in (PATCHES, IMPORTS, NAMES, TORCH_FREE, IMPORTING):
        assert results[rule].covered == "1 of 3 chapters"
        assert not results[rule].is_complete
    assert not results[PACKAGE].is_complete
    assert results[FOLDERS].is_complete and results[HINTS].is_complete


# 3: plain files only


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = 1\r\n", "minisgl/extra.py has a CR line end (line 1)"),
        (b"a = 1\nb = '\xe9'\n", "minisgl/extra.py is not UTF-8 (line 2)"),
        (b"\0", "minisgl/extra.py is binary (line 1)"),
    ],
)
def test_a_file_of_the_package_that_is_no_plain_text(course, content, message):
    course.write("minisgl/extra.py", content)
    assert fault(course, PACKAGE) == message


def test_an_executable_file_in_the_package(course):
    (course.root / "minisgl/core.py").chmod(0o755)
    assert "minisgl/core.py is executable" in fault(course, PACKAGE)


def test_a_symbolic_link_in_the_package(course):
    (course.root / "minisgl/link.py").symlink_to("core.py")
    assert fault(course, PACKAGE) == "minisgl/link.py is a symbolic link"


def test_the_package_itself_must_be_a_folder(course):
    (course.root / "minisgl").rename(course.root / "elsewhere")
    (course.root / "minisgl").symlink_to("elsewhere")
    assert fault(course, PACKAGE) == "minisgl is outside minisgl/"


def test_a_repository_inside_the_package(course):
    git(course.root / "minisgl", "init", "-q", "sub")
    course.write("minisgl/sub/a.py", "a = 1\n")
    assert "minisgl/sub/ has a forbidden part" in fault(course, PACKAGE)


# 4: the manifest and the folders


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("steps/hints/02_two.toml", "hints"),
        ("examples/ch02_two.py", "example"),
        ("examples/ch02_two.out", "recorded output"),
        ("tests/test_ch02_two.py", "tests"),
    ],
)
def test_a_chapter_without_one_of_its_files(course, path, what):
    (course.root / path).unlink()
    assert fault(course, FOLDERS) == f"chapter 02 two has no {what}: {path}"


def test_an_optional_model_needs_a_recording_of_its_own(course):
    course.replace(
        "steps/chapters.toml", 'slug = "two"', 'slug = "two"\nmodel = "gemma3"'
    )
    assert fault(course, FOLDERS) == (
        "chapter 02 two has no recorded output with its model: "
        "examples/ch02_two.gemma3.out"
    )
    course.write("examples/ch02_two.gemma3.out", "2\n")
    assert broken(course) == {}


def test_a_chapter_without_its_patch(course):
    (course.root / "steps/03_three.patch").unlink()
    said = broken(course)
    assert said[FOLDERS] == ["chapter 03 three has no patch: steps/03_three.patch"]
    assert said[PATCHES] == ["chapter 03 three: there is no steps/03_three.patch"]


def test_a_page_must_exist_when_the_manifest_lists_one(course):
    course.replace(
        "steps/chapters.toml", 'slug = "two"', 'slug = "two"\npage = "docs/p.md"'
    )
    assert fault(course, FOLDERS) == "chapter 02 two has no page: docs/p.md"
    course.write("docs/p.md", "# Two\n\n::: code pool.py\n")
    assert broken(course) == {}


@pytest.mark.parametrize(
    "path",
    [
        "steps/04_four.patch",
        "steps/02_old.patch",
        "steps/notes.txt",
        "steps/hints/04_four.toml",
        "steps/01_one.patch.orig",
        "examples/ch04_four.py",
        "examples/ch02_two.txt",
        "tests/test_ch02_more.py",
        "docs/02_more.md",
    ],
)
def test_a_file_that_no_chapter_lists(course, path):
    course.write(path, "")
    assert fault(course, FOLDERS) == f"no chapter lists {path}"


def test_files_that_belong_to_no_chapter_are_left_alone(course):
    for path in ("examples/helper.py", "tests/conftest.py", "docs/index.md"):
        course.write(path, "")
    assert broken(course) == {}


def test_a_retired_test_must_belong_to_an_earlier_chapter(course):
    retired = 'retired = { "tests/test_ch02_two.py::test_it" = "gone" }'
    course.replace("steps/chapters.toml", 'slug = "two"', f'slug = "two"\n{retired}')
    assert "02 two retires tests/test_ch02_two.py::test_it" in fault(course, FOLDERS)
    course.replace("steps/chapters.toml", f"{retired}\n", "")
    course.replace(
        "steps/chapters.toml", 'slug = "three"', f'slug = "three"\n{retired}'
    )
    assert broken(course) == {}


# 5: imports, read without running them


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import minisgl.later\n",
            ":1 imports minisgl.later, which this stage does not",
        ),
        ("from minisgl.later import X\n", ":1 imports minisgl.later, which this stage"),
        (
            "from minisgl.core import Batch\n",
            ":1 imports Batch, which minisgl.core does",
        ),
        (
            "from minisgl import later\n",
            ":1 imports later, which minisgl does not define",
        ),
        ("from .core import Batch\n", ":1 imports Batch, which minisgl.core does not"),
        ("from . import later\n", ":1 imports later, which minisgl does not define"),
        ("from .. import core\n", ":1 a relative import leaves the package"),
        ("from ...x import core\n", ":1 a relative import leaves the package"),
        ("from minisgl.core import *\n", ":1 imports * from minisgl.core; name what"),
        ("def f():\n    from minisgl.core import Batch\n", ":2 imports Batch, which"),
        ("class A:\n    import minisgl.later\n", ":2 imports minisgl.later, which"),
        (
            "f = lambda: 1\nimport numpy\n",
            ":2 imports numpy, which pyproject.toml does",
        ),
        (
            "def f():\n    import numpy\n",
            ":2 imports numpy, which pyproject.toml does not",
        ),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
            "    from minisgl.core import Batch\n",
            ":3 imports Batch, which minisgl.core does not define here",
        ),
        (
            "import typing\nif typing.TYPE_CHECKING:\n    import minisgl.later\n",
            ":3 imports minisgl.later, which this stage does not have",
        ),
        (
            "try:\n    from minisgl.core import Batch\nexcept ImportError:\n    pass\n",
            ":2 imports Batch, which minisgl.core does not define here",
        ),
        (
            "from importlib import import_module\ndef f():\n"
            "    return import_module('minisgl.later')\n",
            ":3 imports minisgl.later, which this stage does not have",
        ),
    ],
)
def test_an_import_that_its_stage_cannot_satisfy(tmp_path, code, message):
    said = fault(with_module(tmp_path, code), IMPORTS)
    assert said.startswith(f"chapter 02 two: minisgl/extra.py{message}")


DEFINES = """\
import os.path
import json as j
from typing import TYPE_CHECKING, Any
if TYPE_CHECKING:
    from collections import deque
A = B = 1
(C, *D) = 1, 2
E: int = 3
NEVER: int
if A:
    F = 1
else:
    def G(): ...
try:
    H = 1
except ValueError:
    I = 1
for K in ():
    pass
with open(os.devnull) as L:
    M = [HIDDEN for HIDDEN in ()]
class N:
    INSIDE = 1
async def O():
    LOCAL = 1
"""


@pytest.mark.parametrize(
    "name",
    ["os", "j", "Any", *"ABCDEFGHIKLMNO", "__doc__", "__name__"],
)
def test_a_name_may_be_defined_in_any_way(tmp_path, name):
    code = f"from minisgl.base import {name}\n"
    assert holds(with_module(tmp_path, code, base=DEFINES), IMPORTS)


@pytest.mark.parametrize("name", ["NEVER", "HIDDEN", "INSIDE", "LOCAL", "json"])
def test_what_only_looks_like_a_definition(tmp_path, name):
    code = f"from minisgl.base import {name}\n"
    said = fault(with_module(tmp_path, code, base=DEFINES), IMPORTS)
    assert said.endswith(f":1 imports {name}, which minisgl.base does not define here")


def test_a_name_that_is_there_for_typing_only(tmp_path):
    code = "from minisgl.base import deque\n"
    said = fault(with_module(tmp_path, code, base=DEFINES), IMPORTS)
    assert said.endswith("imports deque, which minisgl.base has for typing only")
    shutil.rmtree(tmp_path / "a course")
    code = f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {code}"
    assert holds(with_module(tmp_path, code, base=DEFINES), IMPORTS)


def test_submodules_relative_imports_and_guarded_third_party_are_fine(tmp_path):
    code = (
        "import minisgl.core\nfrom minisgl import core\nfrom . import core as c\n"
        "from .core import Req\nimport xml.dom\n"
        "try:\n    import no_such_thing\nexcept (ImportError, OSError):\n    pass\n"
    )
    assert set(broken(with_module(tmp_path, code))) == {NAMES}


def test_a_moved_piece_is_found_at_the_chapter_that_needs_it(tmp_path):
    """Chapter 2 needs a function that only chapter 3 adds: the end alone is fine."""
    pool = POOL.replace("import Req", "import Req, later")
    early = {**ONE, "minisgl/pool.py": pool}
    late = {**early, "minisgl/core.py": REQ + "\n\ndef later(): ...\n"}
    names = (["core.Req"], ["pool.Pool"], ["core.later"])
    course = PatchCourse(tmp_path, ONE, early, late, names=names)
    said = broken(course)
    place = "chapter 02 two: minisgl/pool.py:1 imports later, which minisgl.core does"
    assert said[IMPORTS] == [f"{place} not define here"]
    assert set(said) == {IMPORTS, IMPORTING}
    (importing,) = said[IMPORTING]
    assert "chapter 02 two: minisgl.pool does not import: ImportError" in importing


def test_what_is_no_python_is_named_with_its_line(tmp_path):
    said = fault(with_module(tmp_path, "a = 1\ndef f(:\n"), IMPORTS)
    assert said.startswith("chapter 02 two: minisgl/extra.py:2 is no Python: ")


def test_a_module_and_a_package_of_the_same_name(tmp_path):
    files = {**ONE, "minisgl/core/__init__.py": REQ}
    said = fault(PatchCourse(tmp_path, files), IMPORTS)
    paths = "minisgl/core/__init__.py and minisgl/core.py"
    assert said == f"chapter 01 one: {paths} are the same module"


def test_a_folder_of_modules_needs_an_init(tmp_path):
    files = {**ONE, "minisgl/sub/deep/a.py": "", "minisgl/sub/deep/__init__.py": ""}
    said = fault(PatchCourse(tmp_path, files), IMPORTS)
    assert said == "chapter 01 one: minisgl/sub/ has modules and no __init__.py"


def test_third_party_modules_are_those_that_pyproject_declares(tmp_path):
    course = with_module(tmp_path, "import numpy\nimport flashinfer\nimport pytest\n")
    course.write(
        "pyproject.toml",
        "[project]\ndependencies = [\"NumPy>=2; python_version>'3'\"]\n"
        '[project.optional-dependencies]\ngpu = ["flashinfer-python>=0.5"]\n'
        'dev = ["pytest"]\n',
    )
    declared = {"numpy": "numpy", "flashinfer": "flashinfer-python"}
    assert declared_imports(course.root) == declared
    assert "extra.py:3 imports pytest, which" in fault(course, IMPORTS)


def test_a_broken_pyproject_is_a_users_error(course):
    course.write("pyproject.toml", "[project")
    with pytest.raises(CourseError, match=r"pyproject\.toml is not TOML"):
        broken(course)


# 6: imports, run


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("a = 1\nb = 1 / 0\n", "does not import: ZeroDivisionError: division by zero"),
        ("raise SystemExit(0)\n", "does not import: SystemExit: 0"),
        ("import os\nos._exit(0)\n", "ends the interpreter (status 0)"),
        ("import os\nos.kill(os.getpid(), 9)\n", "ends the interpreter (status 9)"),
    ],
)
def test_a_module_that_does_not_import_is_named(tmp_path, code, message):
    said = fault(with_module(tmp_path, code), IMPORTING)
    assert said.startswith(f"chapter 02 two: minisgl.extra {message}")
    if "ZeroDivision" in message:
        assert said.endswith("(minisgl/extra.py:2)")


def test_modules_that_import_only_in_the_right_order_are_found(tmp_path):
    """`extra` first is fine, and then `other` is loaded: but alone it fails."""
    extra = "A = 1\nfrom minisgl.other import B\n"
    other = "from minisgl.extra import A, C\nB = 2\n"
    course = with_module(tmp_path, extra + "C = 3\n", other=other)
    said = broken(course)[IMPORTING]
    assert any("minisgl.extra does not import: ImportError" in line for line in said)


def test_what_a_module_prints_does_not_disturb_the_report(tmp_path):
    course = with_module(tmp_path, "print('[\"a fault\"]', end='')\n")
    assert holds(course, IMPORTING)


def test_another_copy_of_the_package_does_not_answer_for_a_stage(tmp_path):
    """As with an editable install: modules that the stage lacks come from elsewhere."""
    other = tmp_path / "other" / "minisgl"
    other.mkdir(parents=True)
    (other / "later.py").write_text("X = 1\n")
    code = f"import minisgl\nminisgl.__path__.append({str(other)!r})\n"
    said = fault(with_module(tmp_path, code + "import minisgl.later\n"), IMPORTING)
    place = f"loads minisgl.later from {other / 'later.py'}, not from the stage"
    assert said == f"chapter 02 two: minisgl.extra {place}"


def test_python_path_and_user_site_do_not_answer_for_a_stage(tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    (other / "elsewhere.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(other))
    course = with_module(tmp_path, "import elsewhere\n")
    assert "does not import: ModuleNotFoundError" in fault(course, IMPORTING)


def test_imports_that_passed_are_not_run_again_until_something_changes(course):
    heard: list[str] = []
    list(verify(course.course, heard.append))
    assert [h for h in heard if "importing" in h] == [
        "importing 01 one",
        "importing 02 two",
        "importing 03 three",
    ]
    heard.clear()
    list(verify(course.course, heard.append))
    assert not [h for h in heard if "importing" in h]
    changed = {**THREE, "minisgl/core.py": REQ + "\n\nX = 1\n"}
    course.write("steps/03_three.patch", git_patches(ONE, TWO, changed)[2])
    list(verify(course.course, heard.append))
    assert [h for h in heard if "importing" in h] == ["importing 03 three"]


def test_a_failure_is_not_remembered_as_a_pass(tmp_path):
    course = with_module(tmp_path, "1 / 0\n")
    assert fault(course, IMPORTING) == fault(course, IMPORTING)


# 13: the torch-free modules

LISTING = 'MODULES = ("minisgl", "minisgl.core", "minisgl.torch_free")\n'


def torch_free(tmp_path: Path, listing: str, **modules: str) -> PatchCourse:
    files = {f"minisgl/{name}.py": text for name, text in modules.items()}
    stages = ({**ONE, **files, "minisgl/torch_free.py": listing},)
    return PatchCourse(tmp_path / "a course", *stages)


def test_torch_free_modules_may_use_one_another_and_the_standard_library(tmp_path):
    core = (
        "import json\nfrom minisgl import torch_free\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n" + REQ
    )
    assert holds(torch_free(tmp_path, LISTING, core=core), TORCH_FREE)


@pytest.mark.parametrize(
    "code",
    [
        "import torch\n",
        "import torch.nn\n",
        "def f():\n    from torch import nn\n",
        "try:\n    import torch\nexcept ImportError:\n    torch = None\n",
        "import minisgl.heavy\n",
        "from minisgl import heavy\n",
        "from .heavy import H\n",
    ],
)
def test_a_torch_free_module_that_needs_more(tmp_path, code):
    said = fault(torch_free(tmp_path, LISTING, core=code, heavy="H = 1\n"), TORCH_FREE)
    target = "torch" if "torch" in code else "minisgl.heavy"
    assert (
        f": minisgl/core.py:{code[: code.index(target[-5:])].count(chr(10)) + 1} "
        in said
    )
    assert f" imports {target}" in said


@pytest.mark.parametrize(
    ("listing", "message"),
    [
        ('MODULES = ("minisgl", "minisgl.later")\n', "lists minisgl.later, which this"),
        (
            'MODULES = ("minisgl.core",)\n',
            "torch-free, its package minisgl is not listed",
        ),
        ("MODULES = tuple(x for x in ())\n", "must say MODULES = (…), names in quotes"),
        ("NAMES = ()\n", "must say MODULES = (…), names in quotes"),
    ],
)
def test_a_list_of_torch_free_modules_that_is_wrong(tmp_path, listing, message):
    assert message in fault(torch_free(tmp_path, listing), TORCH_FREE)


def test_a_package_may_load_a_heavy_module_on_demand_only(tmp_path):
    lazy = "def load():\n    from minisgl.heavy import H\n    return H\n"
    course = torch_free(tmp_path, LISTING, __init__=lazy, heavy="H = 1\n")
    assert holds(course, TORCH_FREE)
    shutil.rmtree(course.root)
    eager = "from minisgl.heavy import H\n"
    course = torch_free(tmp_path, LISTING, __init__=eager, heavy="H = 1\n")
    assert "minisgl/__init__.py:1 imports minisgl.heavy" in fault(course, TORCH_FREE)


def test_torch_that_only_running_reveals_is_found(tmp_path):
    code = "__import__('pytest')\n"
    said = fault(torch_free(tmp_path, LISTING, core=code), TORCH_FREE)
    assert "minisgl.core does not import: ModuleNotFoundError: No module named" in said


# the names to write, and their hints


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("core.Missing", "core.Missing does not exist at this stage"),
        ("core.Req.missing", "core.Req.missing does not exist at this stage"),
        ("missing.Req", "missing.Req does not exist at this stage"),
        ("core.Req.step", "core.Req.step is as it was in the chapter before"),
    ],
)
def test_a_name_that_its_chapter_does_not_write(tmp_path, name, message):
    names = (["core.Req"], [name], ["core.Req.step"])
    course = PatchCourse(tmp_path, ONE, TWO, THREE, names=names)
    assert fault(course, NAMES) == f"chapter 02 two: {message}"


def test_functions_classes_and_values_in_packages_too_can_be_written(tmp_path):
    code = (
        "import functools\nLIMIT = 3\nif LIMIT:\n    def f(): ...\n"
        "class A:\n    x: int = 1\n    @functools.cache\n    def g(self): ...\n"
    )
    names = ["sub.LIMIT", "sub.f", "sub.A", "sub.A.x", "sub.A.g", "sub.deep.D"]
    course = PatchCourse(
        tmp_path,
        {
            **ONE,
            "minisgl/sub/__init__.py": code,
            "minisgl/sub/deep.py": "class D: ...\n",
        },
        names=(names,),
    )
    assert broken(course) == {}


def test_a_changed_decorator_changes_a_name(tmp_path):
    after = REQ.replace("    def step", "    @property\n    def step")
    stages = (ONE, {**ONE, "minisgl/core.py": after})
    course = PatchCourse(tmp_path, *stages, names=(["core.Req"], ["core.Req.step"]))
    assert broken(course) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no hints for pool.Pool"),
        ('"pool.Pool" = ["a?", "b?"]', "must have 3 hints for pool.Pool"),
        ('"pool.Pool" = "a?"', "must have 3 hints for pool.Pool"),
        ('"pool.Pool" = ["a?", "b?", " "]', "must have 3 hints for pool.Pool"),
        ('"pool.Pool" = ["a?"', "is not TOML"),
    ],
)
def test_hints_that_are_not_three_for_each_name(course, text, message):
    course.write("steps/hints/02_two.toml", text)
    said = fault(course, HINTS)
    assert said.startswith(f"chapter 02 two: steps/hints/02_two.toml {message}")


def test_hints_for_a_name_that_is_not_written(course):
    more = '\n"pool.Poll" = ["a?", "b?", "c?"]\n'
    course.write(
        "steps/hints/02_two.toml", course.read("steps/hints/02_two.toml") + more
    )
    assert "has hints for pool.Poll, which is no name of this" in fault(course, HINTS)


# 14: no half-done save


def test_what_a_killed_save_leaves_is_named(course):
    course.write("build/edit/journal/list.json", "{}")
    course.write("minisgl/core.py.steps-new", "")
    said = broken(course)
    assert said[LEFT] == [
        "a save was interrupted",
        "minisgl/core.py.steps-new is left of a save",
    ]


# the command


def test_the_command_prints_a_line_for_each_rule_and_exits_1_when_one_is_broken(course):
    steps = Path(__file__).resolve().parents[1] / "tools" / "steps.py"
    command = [sys.executable, str(steps), "--root", str(course.root), "verify"]
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "20"}

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, env=env, cwd="/", check=False
        )

    good = run()
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.splitlines()[1] == f"ok   {PATCHES} (3 chapters)"
    assert len(good.stdout.splitlines()) == len(RULES)
    course.write("minisgl/extra.py", "")
    bad = run()
    assert bad.returncode == 1
    assert (
        f"FAIL {PACKAGE} (4 files)\n     minisgl/extra.py is in no patch\n"
        in bad.stdout
    )
    assert "error: 1 rule is broken" in bad.stderr
    assert "Traceback" not in bad.stdout + bad.stderr


def test_a_result_is_good_without_problems():
    assert Result("a rule", "1 chapter", []).is_good
