"""falchion.torch on a GPU: streams, graphs, threads, devices. Skipped where there is none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from torch_support import assert_near, definition, leaves, problem, torch

import falchion
import falchion.torch as ft

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here")


def cuda_problem(**sizes):
    sizes = {"s_q": 130, "s_k": 130, "d_qk": 64, "dtype": torch.bfloat16, **sizes}
    return problem(**sizes, device="cuda")


def training_step(tensors):
    q, k, v = tensors
    o = ft.attention(q, k, v, causal=True)
    o.float().square().sum().backward()
    return o


def test_a_side_stream_waits_for_what_is_on_it():
    q, k, v = cuda_problem(s_q=2000, s_k=2000)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    expected = ft.attention(2 * q, k, v, causal=True)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        later = 2 * q
        o = ft.attention(later, k, v, causal=True)
    stream.synchronize()
    assert torch.equal(o, expected)


def test_the_backward_pass_on_a_side_stream():
    expected = leaves(*cuda_problem())
    training_step(expected)
    found = leaves(*cuda_problem())
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        training_step(found)
    torch.cuda.synchronize()
    assert all(torch.equal(x.grad, y.grad) for x, y in zip(found, expected))


def test_a_graph_replays_both_passes():
    static = leaves(*cuda_problem())
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            training_step(static)
    torch.cuda.current_stream().wait_stream(stream)
    for x in static:
        x.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = training_step(static)
    other = cuda_problem(seed=5)
    with torch.no_grad():
        for x, y in zip(static, other):
            x.copy_(y)
    graph.replay()
    torch.cuda.synchronize()
    fresh = leaves(*other)
    assert torch.equal(o, training_step(fresh))
    assert all(torch.equal(x.grad, y.grad) for x, y in zip(static, fresh))


def test_each_replay_drops_other_elements():
    q, k, v = cuda_problem()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        ft.attention(q, k, v, dropout=0.5)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = ft.attention(q, k, v, dropout=0.5)
    graph.replay()
    first = o.clone()
    graph.replay()
    assert not torch.equal(first, o)


def test_two_threads_on_their_own_streams():
    def run(seed):
        tensors = leaves(*cuda_problem(seed=seed))
        training_step(tensors)
        return [x.grad for x in tensors]

    alone = [run(seed) for seed in range(2)]
    torch.cuda.synchronize()

    def wrong(seed):
        found = []
        with torch.cuda.stream(torch.cuda.Stream()):
            for turn in range(30):
                grads = run(seed)
                torch.cuda.current_stream().synchronize()
                if not all(map(torch.equal, grads, alone[seed])):
                    found.append(turn)
        return found

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(wrong, range(2))) == [[], []]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_longer_sequences(d, dtype):
    tensors = cuda_problem(s_q=700, s_k=700, d_qk=d, dtype=dtype)
    ours, theirs = leaves(*tensors), leaves(*tensors)
    o = ft.attention(*ours, causal=True)
    expected = definition(*theirs, causal=True)[0]
    assert_near(o, expected, dtype)
    grad = torch.randn_like(o)
    o.backward(grad)
    expected.backward(grad.double())
    for name, x, y in zip("qkv", ours, theirs):
        assert_near(x.grad, y.grad, dtype, f"grad_{name}")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_both_passes_have_the_same_bits_beside_other_work(dtype, causal):
    tensors = leaves(*cuda_problem(b=8, s_q=1024, s_k=1024, h_q=12, h_k=12, dtype=dtype))
    above = torch.randn_like(tensors[0])
    noise, side = torch.randn(2048, 2048, device="cuda"), torch.cuda.Stream()
    first, other = None, [0, 0, 0, 0]
    for _ in range(100):
        with torch.cuda.stream(side):
            noise @ noise
        o = ft.attention(*tensors, causal=causal)
        found = [o.detach(), *torch.autograd.grad(o, tensors, above)]
        first = first or [x.clone() for x in found]
        for i, (x, y) in enumerate(zip(found, first)):
            other[i] += not torch.equal(x, y)
    assert other == [0, 0, 0, 0], "how many runs gave other bits of o and the gradients of q, k, v"


def test_any_order_moves_gradients_by_rounding_alone():
    grads = []
    for any_order in (False, True, True):
        tensors = leaves(*cuda_problem(s_q=500, s_k=500))
        ft.attention(*tensors, causal=True, any_order=any_order).float().sum().backward()
        grads.append([x.grad for x in tensors])
    for name, x, y in zip("qkv", grads[1], grads[0]):
        assert_near(x, y, torch.bfloat16, f"grad_{name}")
    for x, y in zip(grads[1][1:], grads[2][1:]):  # of k and v the bits repeat all the same
        assert torch.equal(x, y)


def test_tensors_of_two_devices_are_refused():
    q, k, v = cuda_problem()
    with pytest.raises((falchion.Error, TypeError), match="on a GPU"):
        ft.attention(q, k.cpu(), v)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU is here")
def test_another_device_than_the_current_one():
    tensors = leaves(*[x.to("cuda:1") for x in cuda_problem()])
    expected = leaves(*cuda_problem())
    training_step(tensors)
    training_step(expected)
    assert all(torch.equal(x.grad.cpu(), y.grad.cpu()) for x, y in zip(tensors, expected))


def test_numbers_and_lengths_of_other_kinds():
    """Lists and int64 on a GPU, straight to C, through autograd and packed; numbers that lie on the GPU."""
    q, k, v = cuda_problem()
    used = torch.tensor([100, 7][: q.shape[0]], dtype=torch.int32, device="cuda")
    for tensors in ((q, k, v), leaves(q, k, v)):
        expected = ft.attention(*tensors, used_k=used, scale=0.25, causal="top_left")
        for given in (used.tolist(), used.long()):
            scale = torch.tensor(0.25, device="cuda")
            o = ft.attention(*tensors, used_k=given, scale=scale, causal="top_left")
            assert torch.equal(o, expected)
    rows = [x[0] for x in (q, k, v)]
    starts = torch.tensor([0, 50, q.shape[1]], dtype=torch.int32, device="cuda")
    expected = ft.varlen(*rows, starts, causal=True)
    for given in (starts.tolist(), starts.long()):
        assert torch.equal(ft.varlen(*rows, given, causal=True), expected)
    with pytest.raises(falchion.Invalid, match="used_k has the type int64: lengths are int32"):
        falchion.attention(q, k, v, used_k=used.long())
    with pytest.raises(falchion.Invalid, match="used_k is a list, but q lies on a GPU"):
        falchion.attention(q, k, v, used_k=used.tolist())


def test_nested_on_a_gpu():
    parts = [torch.randn(s, 4, 64, dtype=torch.bfloat16, device="cuda") for s in (130, 7, 64)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged)
    for got, part in zip(ft.attention(x, x, x, causal=True).unbind(), parts):
        assert_near(got, ft.attention(*[part[None]] * 3, causal=True)[0], torch.bfloat16)
    heads = x.transpose(1, 2)
    theirs = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    assert_near(ft.sdpa(heads, heads, heads, is_causal=True).values(), theirs.values(), torch.bfloat16)
