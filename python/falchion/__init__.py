"""Exact attention on the arrays that you have: NumPy's, PyTorch's, CuPy's. See docs/python.md."""

from falchion._fal import (
    Device,
    Error,
    Invalid,
    Unsupported,
    Workspace,
    attention,
    attention_backward,
    varlen,
    varlen_backward,
    version,
)

__all__ = [
    "Device",
    "Error",
    "Invalid",
    "Unsupported",
    "Workspace",
    "attention",
    "attention_backward",
    "varlen",
    "varlen_backward",
    "version",
]
__version__ = version()
