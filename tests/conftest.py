"""Fixtures that the tests of all chapters share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

# set before transformers is imported: nothing is looked up on a network
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"

# A shell starts what it runs in the background deaf to Ctrl-C, and children inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

REPO = Path(__file__).resolve().parent.parent


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Every test that takes a device runs on the CPU and, where there is one, a GPU."""
    import torch

    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return request.param


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The directory of the real SmolLM2 weights."""
    root = Path(os.environ.get("MINISGL_MODELS", REPO / "models"))
    path = root / "SmolLM2-135M-Instruct"
    if not (path / "config.json").is_file():
        pytest.fail(f"{path} is missing; run: tools/models.py get smollm2")
    return path


@pytest.fixture(scope="session")
def smollm2_hf(smollm2: Path) -> Any:
    """The same model in transformers, loaded once for all tests."""
    from tiny_models import load_hf

    return load_hf(smollm2)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """tiny("qwen3") is the directory of that tiny model; it is built once."""
    from tiny_models import build_tiny

    root = tmp_path_factory.mktemp("tiny")
    return cache(lambda name: build_tiny(name, root))


@pytest.fixture(autouse=True)
def no_global_context():
    """A context that one test sets by hand must not reach the next."""
    yield
    from minisgl.core import reset_global_ctx

    reset_global_ctx()
