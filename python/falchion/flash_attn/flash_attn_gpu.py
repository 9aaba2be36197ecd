"""The functions of FlashAttention-2's compiled module that its own tests and other code call, with its
signatures: flash_attn_2_cuda, which flash_attn_interface imports as flash_attn_gpu. They have no
gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from falchion import Unsupported
from falchion.torch._options import exact_scale

from ._call import dense, packed, truth
from ._kvcache import Cache


def _refuse(generator: Any, num_splits: int = 0) -> None:
    if generator is not None:
        raise Unsupported(
            "the `generator` argument is no longer supported: dropout draws from torch's default one"
        )
    if num_splits > 1:
        raise Unsupported("num_splits > 1 is not supported: the engine cuts the keys itself")


def _filled(out: Tensor | None, found: Tensor) -> Tensor:
    return found if out is None else out.copy_(found)


def _all(out: Tensor | None, found: Any, return_softmax: bool) -> list[Tensor | None]:
    """[out, softmax_lse, S_dmask, rng_state]: the state is torch's own, so there is none to hand on."""
    o, lse, signed = found
    state = torch.zeros(2, dtype=torch.int64, device=o.device)
    return [_filled(out, o), lse, signed if return_softmax else None, state]


@torch.no_grad()
def fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out_: Tensor | None,
    alibi_slopes_: Tensor | None,
    p_dropout: float,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    return_softmax: bool,
    gen_: Any = None,
) -> list[Tensor | None]:
    _refuse(gen_)
    found = dense(
        q,
        k,
        v,
        dropout_p=p_dropout,
        softmax_scale=softmax_scale,
        causal=is_causal,
        window_size=(window_size_left, window_size_right),
        softcap=softcap,
        alibi_slopes=alibi_slopes_,
        return_attn_probs=True,
    )
    return _all(out_, found, truth("return_softmax", return_softmax))


@torch.no_grad()
def varlen_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out_: Tensor | None,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    seqused_k: Tensor | None,
    leftpad_k_: Tensor | None,
    block_table_: Tensor | None,
    alibi_slopes_: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    p_dropout: float,
    softmax_scale: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    return_softmax: bool,
    gen_: Any = None,
    num_splits: int = 0,
) -> list[Tensor | None]:
    _refuse(gen_, num_splits)
    found = packed(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        seqused_k=seqused_k,
        leftpad_k=leftpad_k_,
        block_table=block_table_,
        dropout_p=p_dropout,
        softmax_scale=softmax_scale,
        causal=is_causal,
        window_size=(window_size_left, window_size_right),
        softcap=softcap,
        alibi_slopes=alibi_slopes_,
        return_attn_probs=True,
    )
    return _all(out_, found, truth("return_softmax", return_softmax))


def _backward(name: str, generator: Any) -> None:
    _refuse(generator)
    raise Unsupported(f"{name} is not offered: gradients are autograd's, through flash_attn_func")


def bwd(*arguments: Any) -> None:
    """Its generator is argument 17."""
    _backward("bwd", arguments[17] if len(arguments) > 17 else None)


def varlen_bwd(*arguments: Any) -> None:
    """Its generator is argument 22."""
    _backward("varlen_bwd", arguments[22] if len(arguments) > 22 else None)


def fwd_kvcache(
    q: Tensor,
    kcache: Tensor,
    vcache: Tensor,
    k_: Tensor | None,
    v_: Tensor | None,
    seqlens_k_: Tensor | None,
    rotary_cos_: Tensor | None,
    rotary_sin_: Tensor | None,
    cache_batch_idx_: Tensor | None,
    leftpad_k_: Tensor | None,
    block_table_: Tensor | None,
    alibi_slopes_: Tensor | None,
    out_: Tensor | None,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    is_rotary_interleaved: bool,
    num_splits: int,
) -> list[Tensor]:
    q, softmax_scale = exact_scale(q, softmax_scale)
    cache = Cache(q, (kcache, vcache), ("block_table", block_table_), cache_batch_idx_)
    slopes = None if alibi_slopes_ is None else alibi_slopes_.float()
    options = {"scale": softmax_scale, "softcap": softcap, "alibi": slopes, "return_lse": True}
    rotary = rotary_cos_, rotary_sin_, is_rotary_interleaved, None
    window = window_size_left, window_size_right
    o, lse = cache.run(q, (k_, v_), seqlens_k_, leftpad_k_, rotary, is_causal, window, options)
    return [_filled(out_, o), lse]
