"""Fixtures that the tests of all chapters share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# set before transformers is imported: nothing is looked up on a network
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"

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


@pytest.fixture(autouse=True)
def no_global_context():
    """A context that one test sets by hand must not reach the next."""
    yield
    from minisgl.core import reset_global_ctx

    reset_global_ctx()
