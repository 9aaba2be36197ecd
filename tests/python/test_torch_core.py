"""falchion.attention and its like on PyTorch's tensors, without falchion.torch: the C functions read them themselves."""

import sys
import types
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
    with pytest.raises(falchion.Unsupported, match="^q lies on the device meta and has no memory"):
        falchion.attention(*(x.to("meta") for x in (q, k, v)))
    with pytest.raises(RuntimeError, match="^k: torch gives no memory of this array: [^\n]*$"):
        falchion.attention(q, k.to_sparse(), v)
    with pytest.raises(falchion.Invalid, match="q has the type float64"):
        falchion.attention(q.double(), k, v)
    # Nothing is recorded, so a tensor that requires a gradient is only read where torch records nothing either.
    parameter = torch.nn.Parameter(q)
    with torch.no_grad():
        assert torch.equal(falchion.attention(parameter, k, v), falchion.attention(q, k, v))
    with pytest.raises(falchion.Invalid, match=r"v requires a gradient.*falchion\.torch\.attention.*v\.detach\(\)"):
        falchion.attention(q, k, parameter)
    with pytest.raises(falchion.Invalid, match=r"v requires a gradient.*falchion\.torch\.linear_attention"):
        falchion.linear_attention(q, k, parameter)
    falchion.validate_lengths(parameter, k, v)


def test_a_sign_that_is_yet_to_be_turned() -> None:
    """Tensors are read as memory, where a lazily negated one has the other sign, so docs/python.md asks for resolve_neg."""
    q, k, v = normal(12, *[(1, 4, 2, 8)] * 3)
    turned = torch._neg_view(q)
    assert turned.is_neg() and torch.equal(turned, -q)
    assert torch.equal(falchion.attention(turned.resolve_neg(), k, v), falchion.attention(-q, k, v))


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


@pytest.mark.parametrize("device", DEVICES)
def test_linear_and_plan(device: str) -> None:
    q, k, v, grad_o = normal(8, *[(1, 70, 2, 16)] * 4, device=device)
    decay = -torch.rand(1, 70, 2, device=device)
    theirs = [x.cpu().numpy() for x in (q, k, v, grad_o, decay)]
    o, state = falchion.linear_attention(q, k, v, decay=decay, return_state=True)
    want = falchion.linear_attention(*theirs[:3], decay=theirs[4], return_state=True, backend="ref")
    assert o.device == q.device and state.device == q.device and state.dtype == torch.float32
    assert all(distance(a, torch.from_numpy(b)) < 1e-5 for a, b in zip((o, state), want, strict=True))
    grads = falchion.linear_attention_backward(grad_o, q, k, v, decay=decay)
    want = falchion.linear_attention_backward(theirs[3], *theirs[:3], decay=theirs[4], backend="ref")
    assert all(distance(a, torch.from_numpy(b)) < 1e-4 for a, b in zip(grads[:4], want[:4], strict=True))
    plan = falchion.Plan(q, causal=True)
    assert distance(plan(q, k, v), falchion.attention(q, k, v, causal=True)) < 1e-6
    assert "bf16" in falchion.Plan((1, 40, 2, 16), dtype=torch.bfloat16).describe()
    if device == "cuda":
        with pytest.raises(falchion.Invalid, match="lies on|device|memory"):
            plan(q.cpu(), k.cpu(), v.cpu())
        with pytest.raises(falchion.Invalid, match="GPU|device|memory"):
            falchion.attention(q, k, v, backend="cpu")
        with pytest.raises(falchion.Invalid, match=r"cu_seqlens_q\[1\]"):
            falchion.validate_lengths(q[0], k[0], v[0], torch.tensor([0, 99, 70], dtype=torch.int32, device=device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_gemm(device: str, dtype: Any) -> None:
    """A layer of PyTorch's, with the weight that torch.nn.functional.linear takes."""
    functional = torch.nn.functional
    x, weight, bias = normal(13, (2, 33, 4, 16), (40, 64), (40,), dtype=dtype, device=device)
    flat = x.flatten(2)
    exact = functional.linear(flat.double(), weight.double(), bias.double())
    y = falchion.gemm(flat, weight, bias=bias, activation="gelu_erf")
    assert y.dtype == dtype and y.device == x.device and y.is_contiguous() and not y.requires_grad
    assert distance(y, functional.gelu(exact)) < LIMITS[dtype]
    assert distance(falchion.gemm(x, weight, bias=bias), exact) < LIMITS[dtype]
    assert distance(falchion.gemm(flat, weight.T.contiguous().T, bias=bias), exact) < LIMITS[dtype]
    wide = falchion.gemm(flat, weight, bias=bias, out_dtype=torch.float32)
    assert wide.dtype == torch.float32 and distance(wide, exact) < 3e-6
    out = torch.empty(2, 8, 33, 5, dtype=dtype, device=device).transpose(1, 2)
    assert falchion.gemm(flat, weight, bias=bias, out=out) is out and distance(out.flatten(2), exact) < LIMITS[dtype]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_norms(device: str, dtype: Any) -> None:
    functional = torch.nn.functional
    x, residual, weight, bias = normal(14, (2, 33, 72), (2, 33, 72), (72,), (72,), dtype=dtype, device=device)
    theirs = [t.double() for t in (x + 0, residual, weight, bias)]
    y = falchion.layer_norm(x, weight, bias, 1e-3)
    assert y.dtype == dtype and y.device == x.device and not y.requires_grad
    assert distance(y, functional.layer_norm(theirs[0], (72,), *theirs[2:], 1e-3)) < LIMITS[dtype]
    y, summed = falchion.rms_norm(x, weight, residual=residual, eps=1e-3)
    both = theirs[0] + theirs[1]
    assert distance(y, functional.rms_norm(both, (72,), theirs[2], 1e-3)) < LIMITS[dtype]
    assert distance(summed, both) < LIMITS[dtype]
    _, mean, rstd = falchion.layer_norm(x, return_stats=True)
    want = torch.native_layer_norm(theirs[0], (72,), None, None, 1e-5)
    assert mean.shape == want[1].shape and mean.dtype == torch.float32
    assert distance(mean, want[1]) < 1e-5 and distance(rstd, want[2]) < 1e-5
    # The sum has the type of the residual, whichever x has.
    for other in LIMITS:
        y, summed = falchion.rms_norm(x, residual=residual.to(other), out_dtype=torch.float16)
        assert (
            y.dtype == torch.float16 and summed.dtype == other and distance(summed, both) < 2 * LIMITS[torch.bfloat16]
        )


def test_gemm_of_8_bits() -> None:
    """The CPU has kernels of them. Tensors of torch come as int8 and float8_e4m3fn."""
    generator = torch.Generator().manual_seed(17)
    a, b = (torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8) for shape in ((33, 70), (40, 70)))
    want = a.int() @ b.int().T
    sums = falchion.gemm(a, b, out_dtype=torch.int32)
    assert sums.dtype == torch.int32 and torch.equal(sums, want)
    scale_a, scale_b = (torch.rand(rows, generator=generator) for rows in (33, 40))
    y = falchion.gemm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16)
    assert y.dtype == torch.bfloat16
    assert distance(y, scale_a.double()[:, None] * scale_b.double() * want) < LIMITS[torch.bfloat16]
    small = [x.to(torch.float8_e4m3fn) for x in normal(18, (33, 70), (40, 70))]
    y = falchion.gemm(*small)
    assert y.dtype == torch.float32 and distance(y, small[0].double() @ small[1].double().T) < LIMITS[torch.float32]


def test_outputs_of_other_types_leave_nothing() -> None:
    """The name that torch has for a type is asked for once, and nothing of a call stays."""
    x, weight = normal(16, (3, 8), (4, 8), dtype=torch.bfloat16)
    grown = []
    for _ in range(4):
        blocks = sys.getallocatedblocks()
        for _ in range(500):
            falchion.gemm(x, weight, out_dtype=torch.float32)
            falchion.rms_norm(x, out_dtype="float16")
        grown.append(sys.getallocatedblocks() - blocks)
    assert min(grown) < 250


def test_gradients_of_gemms_and_norms_are_refused() -> None:
    """There is no falchion.torch.gemm that could be named."""
    x, weight = normal(15, (3, 8), (4, 8))
    parameter = torch.nn.Parameter(weight)
    words = r"requires a gradient, and falchion\.{} records none: give {}\.detach\(\), or call it under torch\.no_grad"
    with pytest.raises(falchion.Invalid, match="^b " + words.format("gemm", "b")):
        falchion.gemm(x, parameter)
    with pytest.raises(falchion.Invalid, match="^weight " + words.format("rms_norm", "weight")):
        falchion.rms_norm(x, parameter[0])
    with torch.no_grad():
        assert torch.equal(falchion.gemm(x, parameter), falchion.gemm(x, weight))
    assert torch.equal(falchion.layer_norm(x, parameter.detach()[0]), falchion.layer_norm(x, weight[0]))
    eight = x.to(torch.float8_e4m3fn)
    with pytest.raises(falchion.Invalid, match="^a " + words.format("gemm", "a")):
        falchion.gemm(eight.clone().requires_grad_(), eight)
    assert falchion.explain(x, parameter, op="gemm").json["problem"]["n"] == 4  # It reads no numbers.


def test_dlpack_without_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch before 2.10 has no exchange table: __dlpack__ is called, also for what requires a gradient."""

    class Older(torch.Tensor):
        __dlpack_c_exchange_api__ = None

    q, k, v = (x.as_subclass(Older) for x in normal(9, *[(1, 4, 2, 8)] * 3))
    want = falchion.attention(*(x.as_subclass(torch.Tensor) for x in (q, k, v)))
    with torch.no_grad():
        o = falchion.attention(q.requires_grad_(), k, v)
    with pytest.raises(falchion.Invalid, match="q requires a gradient"):
        falchion.attention(q, k, v)
    q = q.detach()
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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("library", ["cupy", "numba"])
def test_other_libraries_of_a_gpu(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy is read by __dlpack__ and numba by __cuda_array_interface__, and each makes outputs and workspaces. These are
    stand-ins of that form over PyTorch's memory."""

    class Theirs:
        def __init__(self, x: Any) -> None:
            self.x, self.dtype = x, np.dtype(str(x.dtype).removeprefix("torch."))

    def empty(shape: Any, dtype: Any) -> Any:
        return Theirs(torch.empty(shape, dtype=getattr(torch, np.dtype(dtype).name), device="cuda"))

    module: Any = types.ModuleType(library)
    module.float32, module.uint8 = np.float32, np.uint8
    if library == "cupy":
        Theirs.__dlpack__ = lambda self, **options: self.x.__dlpack__(**options)  # type: ignore[attr-defined]
        Theirs.__dlpack_device__ = lambda self: self.x.__dlpack_device__()  # type: ignore[attr-defined]
        stream = types.SimpleNamespace(ptr=torch.cuda.current_stream().cuda_stream)
        module.empty, module.cuda = (
            empty,
            types.SimpleNamespace(get_current_stream=lambda: stream, Device=torch.cuda.device),
        )
    else:
        Theirs.__cuda_array_interface__ = property(lambda self: self.x.__cuda_array_interface__)  # type: ignore[attr-defined]
        module.cuda = types.SimpleNamespace(device_array=empty)
    Theirs.__module__ = library + ".core"
    monkeypatch.setitem(sys.modules, library, module)
    q, k, v, grad_o = normal(11, *[(2, 300, 4, 64)] * 4, dtype=torch.float16, device="cuda")
    want, want_lse = falchion.attention(q, k, v, causal=True, return_lse=True)
    want_grads = falchion.attention_backward(grad_o, q, k, v, want, want_lse, causal=True)
    o, lse = falchion.attention(Theirs(q), Theirs(k), Theirs(v), causal=True, return_lse=True)
    assert torch.equal(o.x, want) and torch.equal(lse.x, want_lse)
    theirs = [Theirs(x) for x in (grad_o, q, k, v, want, want_lse)]
    grads = falchion.attention_backward(*theirs, causal=True)
    assert all(torch.equal(a.x, b) for a, b in zip(grads, want_grads, strict=True))
