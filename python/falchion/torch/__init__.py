"""falchion.torch: attention with autograd, torch.compile, vmap and autocast for PyTorch 2.4 and
newer.

    import falchion.torch as fal
    o = fal.attention(q, k, v, causal=True)   # (b, s, h, d)
    o = fal.sdpa(query, key, value, is_causal=True)  # as torch's scaled_dot_product_attention
    o = fal.varlen(q, k, v, cu_seqlens, max_q=longest, causal=True)
    o = fal.decode(q, k_cache, v_cache, used_k=lengths, page_table=table)
    o = fal.linear_attention(q, k, v, decay=g)
    y, total = fal.rms_norm(x, weight, residual=total)

docs/python_torch.md says more. Importing this module imports torch; `import falchion` does not."""

from __future__ import annotations

import torch  # noqa: F401  (so that a missing PyTorch is the first thing that is told)

from ._attention import attention, varlen
from ._decode import decode
from ._linear import linear_attention
from ._norms import layer_norm, rms_norm
from ._sdpa import sdpa

__all__ = ["attention", "decode", "layer_norm", "linear_attention", "rms_norm", "sdpa", "varlen"]
