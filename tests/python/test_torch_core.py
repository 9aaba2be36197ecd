"""falchion.attention and its like on PyTorch's tensors, without falchion.torch: the C functions read them themselves."""

from typing import Any

import falchion
import numpy as np
import pytest

torch = pytest.importorskip("torch")
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
LIMITS = {torch.float32: 3e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def normal(seed: int, *shapes: tuple[int, ...], dtype: Any = None, device: str = "cpu") -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype or torch.float32).to(device) for shape in shapes]


def distance(a: Any, b: Any) -> float:
    a, b = a.detach().double().cpu(), b.detach().double().cpu()
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-30))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_autograd(device: str, dtype: Any, causal: bool) -> None:
    """Both passes against PyTorch's own, in float64."""
    q, k, v, grad_o = normal(1, *[(2, 65, 4, 32)] * 4, dtype=dtype, device=device)
    o, lse = falchion.attention(q, k, v, causal=causal, return_lse=True)
    grads = falchion.attention_backward(grad_o, q, k, v, o, lse, causal=causal)
    assert o.dtype == dtype and o.device == q.device and type(o) is torch.Tensor and lse.dtype == torch.float32
    exact = [x.double().cpu().requires_grad_() for x in (q, k, v)]
    turned = [x.transpose(1, 2) for x in exact]
    want = torch.nn.functional.scaled_dot_product_attention(*turned, is_causal=causal).transpose(1, 2)
    want.backward(grad_o.double().cpu())
    assert distance(o, want) < LIMITS[dtype]
    assert all(distance(a, b.grad) < LIMITS[dtype] for a, b in zip(grads, exact, strict=True))


@pytest.mark.parametrize("device", DEVICES)
def test_layouts_and_outputs(device: str) -> None:
    q, k, v = normal(2, *[(2, 4, 33, 32)] * 3, device=device)  # bhsd
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    o, lse = falchion.attention(q, k, v, layout="bhsd", return_lse=True)
    assert o.is_contiguous() and o.shape == q.shape and lse.shape == (2, 4, 33) and distance(o, want) < 1e-3
    other = falchion.attention(*(x.transpose(1, 2) for x in (q, k, v)))
    assert other.is_contiguous() and torch.equal(other.transpose(1, 2), o)
    out = torch.empty(2, 33, 4, 32, device=device).transpose(1, 2)
    assert falchion.attention(q, k, v, layout="bhsd", out=out) is out and torch.equal(out, o)
    wide = falchion.attention(q, k, torch.cat([v, v], -1), layout="bhsd")
    assert wide.shape == (2, 4, 33, 64) and distance(wide[..., :32], o) < 1e-3
    # What is made is an ordinary tensor of PyTorch's allocator.
    assert o.untyped_storage().resizable() and not o.requires_grad


@pytest.mark.parametrize("device", DEVICES)
def test_varlen_and_options(device: str) -> None:
    starts = torch.tensor([0, 5, 5, 30], dtype=torch.int32, device=device)
    q, k, v, grad_o = normal(3, *[(30, 2, 32)] * 4, dtype=torch.float16, device=device)
    o, lse = falchion.varlen(q, k, v, starts, causal=True, return_lse=True)
    grads = falchion.varlen_backward(grad_o, q, k, v, o, lse, starts, causal=True)
    for a, b in ((0, 5), (5, 30)):
        rows = [x[None, a:b] for x in (q, k, v, grad_o)]
        want, want_lse = falchion.attention(*rows[:3], causal=True, return_lse=True)
        assert distance(o[None, a:b], want) < 4e-3
        want_grads = falchion.attention_backward(rows[3], *rows[:3], want, want_lse, causal=True)
        assert all(distance(x[None, a:b], y) < 8e-3 for x, y in zip(grads, want_grads, strict=True))
    q, k, v = normal(4, *[(2, 9, 2, 32)] * 3, device=device)
    mask = torch.rand(2, 1, 1, 9, device=device) < 0.6
    mask[..., 0] = True
    turned = [x.transpose(1, 2) for x in (q, k, v)]
    want = torch.nn.functional.scaled_dot_product_attention(*turned, attn_mask=mask).transpose(1, 2)
    assert distance(falchion.attention(q, k, v, mask=mask), want) < 1e-3
    used = torch.tensor([9, 4], dtype=torch.int32, device=device)
    o, lse = falchion.attention(q, k, v, used_q=used, return_lse=True)
    assert (o[1, 4:] == 0).all() and (lse[1, :, 4:] == -torch.inf).all()


@pytest.mark.parametrize("device", DEVICES)
def test_seeds_in_memory(device: str) -> None:
    q, k, v = normal(5, *[(1, 64, 2, 32)] * 3, device=device)
    seed = torch.tensor([3, 4], device=device)
    one = falchion.attention(q, k, v, dropout=0.5, seed=seed)
    assert torch.equal(one, falchion.attention(q, k, v, dropout=0.5, seed=3, offset=4))
    seed += 1
    assert not torch.equal(one, falchion.attention(q, k, v, dropout=0.5, seed=seed))


def test_mixed() -> None:
    q, k, v = normal(6, *[(1, 4, 2, 8)] * 3)
    with pytest.raises(TypeError, match="k is an array of numpy, but q is one of torch"):
        falchion.attention(q, k.numpy(), v)
    with pytest.raises(TypeError, match="q is one of numpy"):
        falchion.attention(q.numpy(), k, v.numpy())
    if torch.cuda.is_available():
        with pytest.raises(falchion.Invalid, match="k lies on a GPU, but q in the host's memory"):
            falchion.attention(q, k.cuda(), v)
    with pytest.raises(Exception, match="meta|device"):
        falchion.attention(*(x.to("meta") for x in (q, k, v)))
    with pytest.raises((falchion.Error, RuntimeError, TypeError)):
        falchion.attention(q.to_sparse(), k, v)
    with pytest.raises(falchion.Invalid, match="q has the type float64"):
        falchion.attention(q.double(), k, v)
    # Parameters and tensors that require a gradient are read as any other; nothing is recorded.
    parameter = torch.nn.Parameter(q)
    assert torch.equal(falchion.attention(parameter, k, v), falchion.attention(q, k, v))


def test_threads_are_torchs() -> None:
    """On the host torch.get_num_threads() says how many threads work."""
    q, k, v = normal(7, *[(1, 4, 2, 8)] * 3)
    falchion.plan_cache_clear()
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 1):
            torch.set_num_threads(threads)
            falchion.attention(q, k, v)
    finally:
        torch.set_num_threads(before)
    assert falchion.plan_cache_info()["misses"] == 2


def test_linear_and_plan() -> None:
    q, k, v = normal(8, *[(1, 40, 2, 16)] * 3)
    o, state = falchion.linear_attention(q, k, v, return_state=True)
    want, want_state = falchion.linear_attention(*(x.numpy() for x in (q, k, v)), return_state=True)
    assert (
        isinstance(state, torch.Tensor)
        and np.array_equal(o.numpy(), want)
        and np.array_equal(state.numpy(), want_state)
    )
    plan = falchion.Plan(q, causal=True)
    assert distance(plan(q, k, v), falchion.attention(q, k, v, causal=True)) < 1e-6
    assert falchion.Plan((1, 40, 2, 16), dtype=torch.bfloat16).describe().split()[3] == "bf16"


def test_dlpack_without_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch before 2.10 has no exchange table: __dlpack__ is called, also for what requires a gradient."""

    class Older(torch.Tensor):
        __dlpack_c_exchange_api__ = None

    q, k, v = (x.as_subclass(Older) for x in normal(9, *[(1, 4, 2, 8)] * 3))
    want = falchion.attention(*(x.as_subclass(torch.Tensor) for x in (q, k, v)))
    o = falchion.attention(q.requires_grad_(), k, v)
    assert isinstance(o, torch.Tensor) and torch.equal(o.as_subclass(torch.Tensor), want)
    with pytest.raises(falchion.Invalid, match="s_q = 4 and s_k = 2 differ"):
        falchion.attention(q, k[:, :2], v[:, :2], causal=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_streams_and_graphs() -> None:
    """The run is on torch's current stream, or on the one that is named, and can be captured into a graph."""
    q, k, v = normal(10, *[(1, 512, 4, 64)] * 3, dtype=torch.bfloat16, device="cuda")
    want = falchion.attention(q, k, v)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    for stream in (side, side.cuda_stream):
        o = falchion.attention(q, k, v, stream=stream)
        side.synchronize()
        assert torch.equal(o, want)
    out = torch.empty_like(q)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        falchion.attention(q, k, v, out=out)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, want)
