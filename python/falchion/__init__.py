"""Exact softmax attention and linear attention, forward and backward, GEMMs and norms, on CPUs and NVIDIA GPUs.

    import falchion, numpy
    q = k = v = numpy.ones((1, 8, 2, 64), numpy.float32)    # (b, s, h, d)
    o = falchion.attention(q, k, v, causal=True)

Arrays may be NumPy's, PyTorch's, CuPy's or of another library with DLPack; what comes back is of the same library. The
package depends on none of them. docs/python.md is a tour of ten minutes.
"""

from falchion._fal import (
    Device,
    Error,
    Invalid,
    Unsupported,
    Workspace,
    attention,
    attention_backward,
    gemm,
    layer_norm,
    layer_norm_backward,
    linear_attention,
    linear_attention_backward,
    merge,
    plan_cache_clear,
    plan_cache_info,
    quantise,
    release_workspaces,
    rms_norm,
    rms_norm_backward,
    validate_lengths,
    varlen,
    varlen_backward,
    version,
)
from falchion.plan import Explanation, Plan, explain

TYPE_CHECKING = False  # as typing's, whose import would take longer than all of this
if TYPE_CHECKING:
    from falchion._bench import bench
    from falchion._info import info
    from falchion._verify import verify

__all__ = [
    "Device",
    "Error",
    "Explanation",
    "Invalid",
    "Plan",
    "Unsupported",
    "Workspace",
    "attention",
    "attention_backward",
    "bench",
    "explain",
    "gemm",
    "info",
    "layer_norm",
    "layer_norm_backward",
    "linear_attention",
    "linear_attention_backward",
    "merge",
    "plan_cache_clear",
    "plan_cache_info",
    "quantise",
    "release_workspaces",
    "rms_norm",
    "rms_norm_backward",
    "validate_lengths",
    "varlen",
    "varlen_backward",
    "verify",
    "version",
]
__version__ = version()


if not TYPE_CHECKING:  # a type checker should see that other names are not there

    def __getattr__(name: str) -> object:
        """bench, info and verify, which are not loaded before they are asked for."""
        if name == "bench":
            from falchion._bench import bench

            return bench
        if name == "info":
            from falchion._info import info

            return info
        if name == "verify":
            from falchion._verify import verify

            return verify
        raise AttributeError(f"module 'falchion' has no attribute {name!r}")
