"""What bench and verify have in common: arrays of random numbers on a device, by NumPy or by PyTorch, and progress."""

import re
import sys
from typing import Any

DTYPES = ("float32", "float16", "bfloat16")


def _torch_with(device: str) -> Any:
    """PyTorch, once it is sure that it can work on this device."""
    from falchion import Invalid

    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise Invalid(f"device = {device!r}: it is cpu, cuda or cuda:1")
    try:
        import torch
    except OSError as why:  # a library of CUDA that PyTorch wants
        raise ImportError(f"torch cannot be imported: {why}") from why
    count, index = torch.cuda.device_count(), int(device.partition(":")[2] or 0)
    if index >= count:
        raise Invalid(f"device = {device!r}: PyTorch finds {count} GPUs here")
    return torch


class Maker:
    """Makes arrays of random numbers, of NumPy for the host and of PyTorch for a GPU ("cuda", "cuda:1")."""

    def __init__(self, device: str = "cpu", seed: int = 0) -> None:
        import numpy

        self.numpy: Any = numpy
        self.random = numpy.random.default_rng(seed)
        self.device = device
        self.torch: Any = None
        if device != "cpu":
            self.torch = _torch_with(device)

    def why_not(self, dtype: str) -> str | None:
        """Why there are no arrays of this type here, or None."""
        if dtype != "bfloat16" or self.torch is not None:
            return None
        try:
            import ml_dtypes  # noqa: F401
        except ImportError:
            return "NumPy has bfloat16 only with the package ml_dtypes"
        return None

    def normal(self, *shape: int) -> Any:
        """Random normal numbers in float32, always of NumPy."""
        return self.random.standard_normal(shape, dtype=self.numpy.float32)

    def rounded(self, x: Any, dtype: str) -> tuple[Any, Any]:
        """The numbers of x in a type, on the device; and the same numbers in float32, of NumPy."""
        if self.torch is not None:
            there = self.torch.from_numpy(x).to(getattr(self.torch, dtype))
            return there.to(self.device), there.float().numpy()
        if dtype == "bfloat16":
            import ml_dtypes

            there = x.astype(ml_dtypes.bfloat16)
        else:
            there = x.astype(dtype)
        return there, there.astype(self.numpy.float32)

    def there(self, x: Any) -> Any:
        """An array of NumPy as one of the device."""
        return x if self.torch is None else self.torch.from_numpy(x).to(self.device)

    def back(self, x: Any) -> Any:
        """An array of the device in float32, of NumPy."""
        if self.torch is not None:
            return x.float().cpu().numpy()
        return x.astype(self.numpy.float32)

    def wait(self) -> None:
        """Waits for the GPU."""
        if self.torch is not None:
            self.torch.cuda.synchronize(self.device)


class Progress:
    """One line that is written over, on terminals alone."""

    def __init__(self) -> None:
        self.is_on = sys.stderr.isatty()

    def say(self, text: str) -> None:
        if self.is_on:
            print(f"\r\x1b[K{text[:100]}", end="", file=sys.stderr, flush=True)

    def done(self) -> None:
        if self.is_on:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
