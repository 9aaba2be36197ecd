"""falchion.flash_attn: the functions of the flash_attn package, by Falchion.

    from falchion.flash_attn import flash_attn_func

Code that imports flash_attn itself gets these functions after falchion.flash_attn.install(). v3 has
the functions of FlashAttention-3. docs/python_from_flash_attn.md: each argument."""

from __future__ import annotations

import importlib
import sys
import types

import torch  # noqa: F401  (so that a missing PyTorch is the first thing that is told)

from ._bounds import check_bounds
from .flash_attn_interface import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)

__all__ = [
    "check_bounds",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "install",
    "uninstall",
]

_NAMES = {
    "flash_attn": "",
    "flash_attn.flash_attn_interface": ".flash_attn_interface",
    "flash_attn_2_cuda": ".flash_attn_gpu",
    "flash_attn.bert_padding": ".bert_padding",
    "flash_attn.layers.rotary": ".rotary",
}


def install() -> None:
    """From now on `import flash_attn` gives this package, in this process. Where a module of that
    name is already imported, it stays, and RuntimeError says so."""
    found = sys.modules.get("flash_attn")
    if found is not None and found is not sys.modules[__name__]:
        where = getattr(found, "__file__", None)
        raise RuntimeError(f"flash_attn is already imported, from {where}; install() came too late")
    for name, part in _NAMES.items():
        sys.modules[name] = importlib.import_module(__name__ + part)
    layers = types.ModuleType("flash_attn.layers")
    layers.rotary = sys.modules["flash_attn.layers.rotary"]  # type: ignore[attr-defined]
    sys.modules["flash_attn.layers"] = layers


def uninstall() -> None:
    """Takes back what install() did."""
    if sys.modules.get("flash_attn") is sys.modules[__name__]:
        for name in (*_NAMES, "flash_attn.layers"):
            sys.modules.pop(name, None)
