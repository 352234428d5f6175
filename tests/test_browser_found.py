"""Which Chromium the tests take, and what they say when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from browser_build.chromium import find_chromium
from support.browser import REPO


def test_the_named_chromium_goes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("google-chrome", "chromium-browser", "chromium"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert find_chromium() == str(program)
    monkeypatch.setenv("MINISGL_CHROMIUM", "/opt/chromium")
    assert find_chromium() == "/opt/chromium"


@pytest.mark.parametrize("is_needed", [False, True])
def test_a_machine_without_chromium_skips_aloud_or_fails(
    tmp_path: Path, is_needed: bool
):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MINISGL_")}
    environment["PATH"] = str(tmp_path)
    if is_needed:
        environment["MINISGL_NEEDS_BROWSER"] = "1"
    test = "tests/test_browser_runtime.py::test_a_right_answer_is_accepted_test_by_test"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test],
        cwd=REPO,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == (1 if is_needed else 0)
    assert ("1 error" if is_needed else "1 skipped") in done.stdout
    assert "no Chromium here: install Debian's chromium" in done.stdout
