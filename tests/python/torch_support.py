"""What the tests of falchion.torch share: the definition in float64, tolerances, devices."""

from __future__ import annotations

import math

import pytest

try:
    import torch
except (ImportError, OSError) as why:  # OSError: a library of CUDA that PyTorch wants
    pytest.skip(f"PyTorch cannot be imported: {why}", allow_module_level=True)

import falchion.torch as ft

torch.set_num_threads(1)

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# The largest error that is allowed, as a share of the largest number of the tensor (at least 1).
TOLERANCE = {torch.float32: 4e-6, torch.float16: 3e-3, torch.bfloat16: 2e-2}


def shift_of(s_q, s_k, causal, align):
    """The key at which query 0 stands."""
    align = causal if isinstance(causal, str) else align
    return align if isinstance(align, int) else 0 if align == "top_left" else s_k - s_q


def visible(s_q, s_k, causal=False, window=None, align=None):
    """Which query sees which key, as a bool matrix (s_q, s_k)."""
    shift = shift_of(s_q, s_k, causal, align)
    distance = torch.arange(s_k)[None] - (torch.arange(s_q)[:, None] + shift)
    left, right = window or (None, None)
    right = 0 if causal else right
    seen = torch.ones(s_q, s_k, dtype=torch.bool)
    if left is not None:
        seen &= distance >= -left
    if right is not None:
        seen &= distance <= right
    return seen


def definition(
    q, k, v, *, scale=None, softcap=0.0, bias=None, alibi=None, mask=None, keep=None, **band
):
    """(O, LSE) in float64 of tensors (b, s, h, d); keep (b, h, s_q, s_k) is the dropout's factor.
    Differentiable."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    group = q.shape[1] // max(k.shape[1], 1)
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    s = scale * q @ k.transpose(-1, -2)
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    s_q, s_k = s.shape[-2:]
    if alibi is not None:
        shift = shift_of(s_q, s_k, band.get("causal"), band.get("align"))
        i, j = torch.arange(s_q, device=q.device)[:, None], torch.arange(s_k, device=q.device)[None]
        slopes = alibi.double()[None] if alibi.dim() == 1 else alibi.double()
        s = s - slopes[:, :, None, None] * (i + shift - j).abs()
    if bias is not None:
        s = s + bias.double()
    seen = visible(s_q, s_k, **band).to(q.device)
    if mask is not None:
        seen = seen & mask
    s = s.masked_fill(~seen, -math.inf)
    empty = ~seen.any(-1).expand(s.shape[:-1])
    safe = s.masked_fill(empty[..., None], 0.0)
    p = torch.softmax(safe, -1).masked_fill(empty[..., None], 0.0)
    lse = torch.logsumexp(safe, -1).masked_fill(empty, -math.inf)
    p = p if keep is None else p * keep.double()
    return (p @ v).transpose(1, 2), lse


def problem(
    b=2, s_q=19, s_k=19, h_q=4, h_k=2, d_qk=16, d_v=None, dtype=torch.float32, device="cpu", seed=0
):
    generator = torch.Generator().manual_seed(seed)
    shapes = (b, s_q, h_q, d_qk), (b, s_k, h_k, d_qk), (b, s_k, h_k, d_v or d_qk)
    return tuple(torch.randn(*shape, generator=generator).to(device, dtype) for shape in shapes)


def leaves(*tensors):
    return tuple(x.detach().clone().requires_grad_() for x in tensors)


def causal(q, k, v):
    return ft.attention(q, k, v, causal=True)


def gradients(run, *tensors):
    """Those of the sum of the squares of what `run` returns."""
    tensors = leaves(*tensors)
    run(*tensors).square().sum().backward()
    return [x.grad for x in tensors]


def assert_near(found, expected, dtype=None, what=""):
    """Compares with the definition: NaN and Inf in the same places, and no error above the
    tolerance of the type."""
    found, expected = found.detach().double().cpu(), expected.detach().double().cpu()
    assert found.shape == expected.shape, f"{what}: {found.shape}, not {expected.shape}"
    finite = expected.isfinite()
    assert torch.equal(found.isfinite(), finite), f"{what}: other places are finite"
    if not finite.any():
        return
    error = (found - expected)[finite].abs().max().item()
    limit = TOLERANCE[dtype or torch.float32] * max(1.0, expected[finite].abs().max().item())
    assert error <= limit, f"{what}: the error {error:.3g} is above {limit:.3g}"


def assert_same_as_definition(
    run, tensors, extras=None, dtype=torch.float32, reference=None, **options
):
    """Runs `run(q, k, v, **extras, **options)`, and compares result and gradients with those of the
    definition. extras are tensors by name; those that are floating point get gradients too."""
    extras = extras or {}
    ours = leaves(*tensors)
    our_extras = {n: leaves(x)[0] if x.is_floating_point() else x for n, x in extras.items()}
    theirs = leaves(*tensors)
    their_extras = {n: leaves(x)[0] if x.is_floating_point() else x for n, x in extras.items()}
    o = run(*ours, **our_extras, **options)
    expected = definition(*theirs, **their_extras, **(options if reference is None else reference))[
        0
    ]
    assert_near(o, expected, dtype, "o")
    grad = torch.randn(o.shape, generator=torch.Generator().manual_seed(7)).to(o.device, o.dtype)
    o.backward(grad)
    expected.backward(grad.double())
    pairs = [(n, x, y) for n, x, y in zip("qkv", ours, theirs)]
    pairs += [(n, our_extras[n], their_extras[n]) for n in extras if extras[n].is_floating_point()]
    for name, x, y in pairs:
        assert_near(x.grad, y.grad, dtype, f"grad_{name}")
