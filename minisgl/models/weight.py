"""Weights of a Hugging Face directory, read one tensor at a time.

The files are memory-mapped and every weight is copied once, straight to where it will
be used. Loading needs the memory of the model and of nothing else, and a weight that is
missing, surplus or of the wrong shape is named.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import torch
from safetensors import SafetensorError, safe_open

from minisgl.errors import ModelError
from minisgl.models.config import read_json


class WeightReader:
    """Hands out each weight exactly once; use it in a `with`.

    Leaving the `with` raises ModelError if a weight of the files was never taken.
    """

    def __init__(
        self, model_dir: str | Path, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.dtype = dtype
        self.device = device
        self._files = {}
        self._untaken: dict[str, Path] = {}  # weight name -> its file
        for path in _weight_files(Path(model_dir)):
            try:
                self._files[path] = safe_open(path, framework="pt")
            except SafetensorError as error:
                raise ModelError(f"{path} is damaged: {error}") from None
            for name in self._files[path].keys():  # noqa: SIM118 (not a dict)
                if name in self._untaken:
                    raise ModelError(f"{name} is in {self._untaken[name]} and in {path}")
                self._untaken[name] = path

    def has(self, name: str) -> bool:
        """Whether the weight is there and not taken yet."""
        return name in self._untaken

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """The weight `name` of shape `shape`, on the device and in the dtype asked for.

        Raises ModelError if it is missing, was taken before, or has another shape.
        """
        return self.take_rows([(name, shape[0])], *shape[1:])

    def take_rows(
        self, parts: list[tuple[str, int]], *row_shape: int
    ) -> torch.Tensor:
        """Several weights of `(name, rows)` stacked in one tensor.

        Matrices that multiply the same input are stored as one, so that one product
        does the work of several. Raises ModelError as `take` does.
        """
        total = sum(rows for _, rows in parts)
        out = torch.empty(total, *row_shape, dtype=self.dtype, device=self.device)
        start = 0
        for name, rows in parts:
            out[start : start + rows].copy_(self._read(name, (rows, *row_shape)))
            start += rows
        return out

    def _read(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        path = self._untaken.pop(name, None)
        if path is None:
            raise ModelError(f"weight {name} is missing, or was taken already")
        tensor = self._files[path].get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"weight {name} has shape {tuple(tensor.shape)}; "
                f"the config asks for {shape}"
            )
        return tensor

    def __enter__(self) -> WeightReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._files.clear()  # closes the maps
        if kind is None and self._untaken:
            names = ", ".join(sorted(self._untaken)[:3])
            raise ModelError(f"{len(self._untaken)} weights have no use: {names} …")


def _weight_files(model_dir: Path) -> list[Path]:
    """The safetensors files: those that the index names, or all there are."""
    index = model_dir / "model.safetensors.index.json"
    if index.is_file():
        names = set(read_json(index).get("weight_map", {}).values())
        files = [model_dir / name for name in sorted(names)]
    else:
        files = sorted(model_dir.glob("*.safetensors"))
    missing = [path.name for path in files if not path.is_file()]
    if missing or not files:
        wanted = ", ".join(missing) or "any *.safetensors file"
        raise ModelError(f"{model_dir} lacks {wanted}; fetch the model again")
    return files
