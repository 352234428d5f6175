"""The few things that differ between a CPU and a GPU."""

from __future__ import annotations

import torch

from minisgl.errors import DeviceError


def pick_device(name: str = "auto") -> torch.device:
    """ "auto" is the first GPU if there is one, else the CPU; or name one yourself.

    Raises DeviceError for a device that is unknown or not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise DeviceError(f"device is {name!r}; it must be 'auto', 'cpu' or 'cuda'")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise DeviceError("no CUDA device is visible to PyTorch; use device='cpu'")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise DeviceError(
            f"device is {name!r}; PyTorch sees {torch.cuda.device_count()} CUDA devices"
        )
    return device


def free_memory(device: torch.device) -> int:
    """Bytes that could be allocated on the device now."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    import psutil  # not needed, and not everywhere installed, beside a GPU

    return psutil.virtual_memory().available


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given (a CPU always has)."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
