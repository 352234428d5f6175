#!/usr/bin/env python3
"""All device tests on a GPU, and then figures: `make gpu`.

For a bare machine: Python 3.11 or newer, torch with CUDA, transformers and pytest. It
needs no network, installs nothing, and takes less than eight minutes. The models are
tiny, or of SmolLM2's size with seeded random weights.

Exit code: 0 good; 1 a test failed, or there is nothing to run on.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
TESTS_LIMIT = 330  # seconds
FIGURES_LIMIT = 120
# A test file takes part if it has a test that runs on a device. Others are not even
# imported: they may need packages that a bare machine lacks.
ON_A_DEVICE = re.compile(r"\bdevice: str\b|\bmark\.gpu\b")

SMOLLM2_SIZES = dict(
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    head_dim=64,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
    bos_token_id=None,
    eos_token_id=None,
)


def main() -> int:
    os.environ["HF_HUB_OFFLINE"] = "1"
    problem = missing()
    if problem:
        print(problem, file=sys.stderr)
        return 1
    print(about())
    counts = run_tests(device_tests(REPO / "tests"))
    print(json.dumps({"tests": counts}), flush=True)
    with time_limit(FIGURES_LIMIT), tempfile.TemporaryDirectory() as folder:
        figures(random_model(Path(folder), **SMOLLM2_SIZES), "cuda")
    return 0 if is_good(counts) else 1


def missing() -> str | None:
    """What this machine lacks, and what to do; None if it lacks nothing."""
    if sys.version_info < (3, 11):  # noqa: UP036 (an older one can start this file)
        return (
            f"Python {platform.python_version()} is too old; it must be 3.11 or newer"
        )
    try:
        import pytest  # noqa: F401
        import torch
        import transformers  # noqa: F401
    except ModuleNotFoundError as error:
        return (
            f"{sys.executable} has no {error.name}\n"
            "next: make gpu PYTHON=/path/to/a/python/that/has/it"
        )
    if not torch.cuda.is_available():
        return (
            "no CUDA device is visible to PyTorch, so there is nothing to run on\n"
            "next: run 'make gpu' on a machine with CUDA; 'make check' needs none"
        )
    return None


def about() -> str:
    """The device and the versions, in two lines."""
    import torch
    import transformers

    name = torch.cuda.get_device_name()
    memory = torch.cuda.get_device_properties(0).total_memory / 2**30
    return (
        f"{name}, {memory:.0f} GiB, CUDA {torch.version.cuda}\n"
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}"
    )


def device_tests(folder: Path) -> list[Path]:
    """The test files that have a test for a device."""
    files = sorted(folder.glob("test_*.py"))
    return [file for file in files if ON_A_DEVICE.search(file.read_text("utf-8"))]


def run_tests(files: list[Path]) -> dict[str, int]:
    """Run the tests marked `gpu`: how many passed, failed and were skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            *(sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider"),
            *("--durations=5", f"--junitxml={report}", f"--basetemp={folder}/tmp"),
            *map(str, files),
        ]
        try:
            done = subprocess.run(command, cwd=REPO, timeout=TESTS_LIMIT, check=False)
            code = done.returncode
        except subprocess.TimeoutExpired:
            print(f"the tests took more than {TESTS_LIMIT} s", file=sys.stderr)
            code = 124
        return {**read_counts(report), "exit_code": code}


def read_counts(report: Path) -> dict[str, int]:
    """The counts of a JUnit report; all 0 if pytest did not come to write one."""
    suite: Any = {}
    if report.is_file():
        suite = ElementTree.parse(report).getroot().find("testsuite").attrib
    total, failed = int(suite.get("tests", 0)), int(suite.get("failures", 0))
    errors, skipped = int(suite.get("errors", 0)), int(suite.get("skipped", 0))
    passed = total - failed - errors - skipped
    return {"passed": passed, "failed": failed + errors, "skipped": skipped}


def is_good(counts: dict[str, int]) -> bool:
    """A skip is no pass: where CUDA is, no device test has a reason to be skipped."""
    return (
        counts["exit_code"] == 0
        and counts["passed"] > 0
        and counts["failed"] == counts["skipped"] == 0
    )


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raises TimeoutError in the body when the time is over."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"the figures took more than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def random_model(folder: Path, **sizes: Any) -> Path:
    """A Llama with seeded random weights, saved in `folder`."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(**sizes)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    return folder


def figures(model_dir: Path, device: str) -> None:
    """Print the time of a decode step: the floor, ours, and that of `generate`."""
    import torch
    from benchmarks.decode import Subjects

    subjects = Subjects(model_dir, device, torch.bfloat16)
    print("\nA decode step in bfloat16, random weights of SmolLM2's size, median in ms")
    print("batch   floor    ours   generate")
    for batch_size in (1, 4, 16):
        times = subjects.measure(batch_size, rounds=3, advance=lambda: None).medians()
        floor, ours, generate = times
        print(f"{batch_size:>5}{floor:>8.2f}{ours:>8.2f}{generate:>11.2f}")
        row = dict(batch=batch_size, floor=floor, ours=ours, generate=generate)
        print(json.dumps({"decode_ms": row}), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(REPO))
    sys.exit(main())
