"""`make gpu`, as far as it can be tried on a machine without CUDA."""

from __future__ import annotations

import json
import time
from pathlib import Path

import gpu_run
import pytest
import torch
from tiny_models import SIZES

GOOD = dict(passed=5, failed=0, skipped=0, exit_code=0)


def test_without_cuda_it_says_what_to_do_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_run.main() == 1
    message = capsys.readouterr().err
    assert "no CUDA device" in message and "'make check'" in message


def test_only_files_with_device_tests_are_run(tmp_path: Path):
    bodies = {
        "test_a.py": "def test_one(device: str): ...\n",
        "test_b.py": "import something_that_is_not_installed\n",
        "test_c.py": "@pytest.mark.gpu\ndef test_two(): ...\n",
        "helper.py": "def helper(device: str): ...\n",
    }
    for name, body in bodies.items():
        (tmp_path / name).write_text(body)
    found = [path.name for path in gpu_run.device_tests(tmp_path)]
    assert found == ["test_a.py", "test_c.py"]


def test_the_chapters_that_use_a_device_take_part():
    names = {path.name for path in gpu_run.device_tests(gpu_run.REPO / "tests")}
    assert {
        "test_ch02_model.py",
        "test_ch03_pool.py",
        "test_ch04_attention.py",
        "test_ch05_engine.py",
    } <= names
    assert "test_ch01_core.py" not in names


def marked_tests(tmp_path: Path, body: str) -> Path:
    file = tmp_path / "test_marked.py"
    file.write_text(f"import pytest\n\n@pytest.mark.gpu\n{body}\n")
    return file


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        ("def test_it(): pass", dict(passed=1, failed=0, skipped=0, exit_code=0)),
        ("def test_it(): 1 / 0", dict(passed=0, failed=1, skipped=0, exit_code=1)),
        (
            "def test_it(): pytest.skip('no')",
            dict(passed=0, failed=0, skipped=1, exit_code=0),
        ),
        (
            "def test_it(nothing_so_named): pass",
            dict(passed=0, failed=1, skipped=0, exit_code=1),
        ),
        ("def not_a_test(): pass", dict(passed=0, failed=0, skipped=0, exit_code=5)),
    ],
    ids=["passes", "fails", "skipped", "error", "no test"],
)
def test_the_tests_are_counted_and_only_passes_are_good(
    body: str, counts: dict[str, int], tmp_path: Path
):
    assert gpu_run.run_tests([marked_tests(tmp_path, body)]) == counts
    assert gpu_run.is_good(counts) == (counts["passed"] == 1)


def test_tests_that_hang_are_stopped_and_are_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gpu_run, "TESTS_LIMIT", 0.5)
    file = marked_tests(tmp_path, "def test_it(): import time; time.sleep(60)")
    counts = gpu_run.run_tests([file])
    assert counts["exit_code"] == 124 and not gpu_run.is_good(counts)


def test_a_run_is_good_only_if_nothing_failed_or_was_skipped():
    assert gpu_run.is_good(GOOD)
    for spoiled in (dict(failed=1), dict(skipped=1), dict(exit_code=1), dict(passed=0)):
        assert not gpu_run.is_good({**GOOD, **spoiled})


def test_figures_that_take_too_long_are_stopped():
    with pytest.raises(TimeoutError, match="more than 1 s"), gpu_run.time_limit(1):
        time.sleep(30)


def test_the_figures_are_printed_for_people_and_for_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    model_dir = gpu_run.random_model(tmp_path, **SIZES)
    gpu_run.figures(model_dir, "cpu")
    lines = capsys.readouterr().out.splitlines()
    rows = [json.loads(line)["decode_ms"] for line in lines if line.startswith("{")]
    assert [row["batch"] for row in rows] == [1, 4, 16]
    assert all(row[name] > 0 for row in rows for name in ("floor", "ours", "generate"))
