"""What compare_torch.py and compare_torch_cpu.py time of the backward pass: Falchion's and PyTorch's back ends on the same
tensors. Each is called by itself and not through autograd, so that nothing but its kernels is timed. Needs torch."""
import functools
import math

import torch

ATEN = torch.ops.aten


def cudnn(q, k, v, grad_o, causal):
    def forward():
        return ATEN._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False)

    def backward(state):
        o, lse, cu_q, cu_k, max_q, max_k, seed, offset = state[:8]
        return ATEN._scaled_dot_product_cudnn_attention_backward(
            grad_o, q, k, v, o, lse, seed, offset, None, cu_q, cu_k, max_q, max_k, 0.0, causal)
    return forward, backward


def flash(q, k, v, grad_o, causal):
    """FlashAttention-2, as PyTorch builds it."""
    def forward():
        return ATEN._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False)

    def backward(state):
        o, lse, cu_q, cu_k, max_q, max_k, seed, offset = state[:8]
        return ATEN._scaled_dot_product_flash_attention_backward(
            grad_o, q, k, v, o, lse, cu_q, cu_k, max_q, max_k, 0.0, causal, seed, offset)
    return forward, backward


def efficient(q, k, v, grad_o, causal):
    def forward():
        return ATEN._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)

    def backward(state):
        o, lse, seed, offset = state
        return ATEN._scaled_dot_product_efficient_attention_backward(
            grad_o, q, k, v, None, o, lse, seed, offset, 0.0, [True, True, True, False], causal)[:3]
    return forward, backward


def flash_attention_4(q, k, v, grad_o, causal):
    """FlashAttention-4 of PyPI (flash-attn-4), whose kernels for Hopper are compiled when they are first called. It
    takes (b, s, h, d)."""
    from flash_attn.cute import interface
    operands = [x.transpose(1, 2) for x in (q, k, v)]
    above = grad_o.transpose(1, 2)

    def forward():
        return interface._flash_attn_fwd(*operands, causal=causal, return_lse=True)

    def backward(state):
        gradients = interface._flash_attn_bwd(*operands, state[0], above, state[1], causal=causal)
        return [x.transpose(1, 2) for x in gradients[:3]]
    return forward, backward


def flash_attention_3(library):
    """FlashAttention-3 of a library (fa3.py), by its two names: `fa3`, and `fa3_det`, whose bits are the same each time."""
    def rival(deterministic, q, k, v, grad_o, causal):
        operands = [x.transpose(1, 2) for x in (q, k, v)]
        o, lse, forward = library.forward(*operands, causal)
        gradients, backward = library.backward(*operands, o, lse, grad_o.transpose(1, 2), causal, deterministic)

        def run_backward(_):
            backward()
            return [x.transpose(1, 2) for x in gradients]
        return forward, run_backward
    return {"fa3": functools.partial(rival, False), "fa3_det": functools.partial(rival, True)}


def cpu(q, k, v, grad_o, causal):
    """What scaled_dot_product_attention and its autograd run on a CPU."""
    def forward():
        return ATEN._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)

    def backward(state):
        return ATEN._scaled_dot_product_flash_attention_for_cpu_backward(grad_o, q, k, v, *state, 0.0, causal)
    return forward, backward


RIVALS = {"cudnn": cudnn, "flash": flash, "efficient": efficient, "fa4": flash_attention_4, "cpu": cpu}
ORDERS = ("falchion", "any_order")


def first_line(error):
    return str(error).strip().split("\n")[0][:200]


def add_rivals(names, q, k, v, grad_o, causal, cell, rivals=RIVALS):
    """Adds the calls of all that can run this problem, and their gradients."""
    for name in names:
        if name not in rivals:
            cell["refused"][name] = "it has no backward pass that this script calls by itself"
            continue
        try:
            forward, backward = rivals[name](q, k, v, grad_o, causal)
            state = forward()
            gradients = backward(state)
            if q.is_cuda:
                torch.cuda.synchronize()
        except Exception as error:  # A compiler may throw anything, and a back end refuses by a RuntimeError.
            cell["refused"][name] = first_line(error)
            continue
        cell["calls"][name] = lambda backward=backward, state=state: backward(state)
        cell["both"][name] = lambda forward=forward, backward=backward: backward(forward())
        cell["gradients"][name] = gradients


def add_ours(fal, backend, q, k, v, grad_o, causal, cell, threads=0, orders=ORDERS):
    """Adds our two calls: `falchion`, whose bits are the same each time, and `any_order`. A CPU has one order alone."""
    o = torch.full_like(q, math.nan)
    lse = torch.full(q.shape[:3], math.nan, dtype=torch.float32, device=q.device)
    forward = fal.plan(q, k, v, o, causal=causal, backend=backend, lse=lse, threads=threads)
    forward()
    for name in orders:
        gradients = [torch.full_like(x, math.nan) for x in (q, k, v)]
        call = fal.backward_plan(q, k, v, o, lse, grad_o, gradients, causal=causal, backend=backend, threads=threads,
                                 any_order=int(name == "any_order"))
        call()

        def both(call=call):
            forward()
            call()
        cell["calls"][name], cell["both"][name], cell["gradients"][name] = call, both, gradients
        cell["plans"][name] = call.describe


def exact_gradients(q, k, v, grad_o, causal, b, head, rows=1024):
    """Returns grad_q, grad_k and grad_v of one head in float64, from the definition, in blocks of query rows."""
    q, k, v, grad_o = (x[b, head].double() for x in (q, k, v, grad_o))
    scale, keys = 1 / math.sqrt(q.shape[1]), torch.arange(k.shape[0], device=q.device)
    out = [torch.zeros_like(x) for x in (q, k, v)]
    for at in range(0, q.shape[0], rows):
        mine, above = q[at:at + rows], grad_o[at:at + rows]
        s = mine @ k.T * scale
        if causal:
            queries = torch.arange(at, at + mine.shape[0], device=q.device)
            s.masked_fill_(keys[None, :] > queries[:, None] + (k.shape[0] - q.shape[0]), -math.inf)
        p = torch.softmax(s, 1)
        of_p = above @ v.T
        of_s = p * (of_p - (p * of_p).sum(1, keepdim=True)) * scale
        out[0][at:at + rows] = of_s @ k
        out[1] += of_s.T @ mine
        out[2] += p.T @ above
    return out


def errors(q, k, v, grad_o, causal, gradients, heads=None):
    """Returns for each gradient name -> largest error over `heads`, and the unit of the output. heads are pairs of a
    sequence and a head; without them they are the first and the last."""
    found = [dict.fromkeys(gradients, 0.0) for _ in range(3)]
    largest = [0.0] * 3
    for b, head in heads or ((0, 0), (q.shape[0] - 1, q.shape[1] - 1)):
        for n, exact in enumerate(exact_gradients(q, k, v, grad_o, causal, b, head)):
            largest[n] = max(largest[n], exact.abs().max().item())
            for name, of in gradients.items():
                error = (of[n][b, head].double() - exact).abs().max().item()
                found[n][name] = error if math.isnan(error) else max(found[n][name], error)
    return found, [torch.finfo(q.dtype).eps * x for x in largest]


def verdict(found, units, judge, ours=ORDERS):
    """Returns "ok", or what is wrong with the first gradient of ours that is. judge is that of the forward pass."""
    for gradient, errors_of, unit in zip(("grad_q", "grad_k", "grad_v"), found, units):
        rivals = {name: e for name, e in errors_of.items() if name not in ours}
        for name in ours:
            if name in errors_of:
                said = judge({"falchion": errors_of[name], **rivals}, unit)
                if said != "ok":
                    return f"{name} {gradient} {said}"
    return "ok"


def cell(bench, q, k, v, grad_o, causal, mode, judge):
    """Times one problem: the backward pass alone, and forward and backward one behind the other."""
    out = {"calls": {}, "both": {}, "gradients": {}, "refused": {}, "plans": {}}
    add_ours(bench.fal, bench.options.backend, q, k, v, grad_o, causal, out)
    add_rivals(bench.options.rivals_backward, q, k, v, grad_o, causal, out, bench.backward_rivals)
    torch.cuda.synchronize()
    found, units = errors(q, k, v, grad_o, causal, out["gradients"])
    samples, clocks = bench.interleaved(out["calls"], mode, bench.options.rounds)
    both, _ = bench.interleaved(out["both"], mode, bench.options.rounds)
    b, h, s, d = q.shape
    return {"samples": samples, "both": both, "errors": {name: max(e[name] for e in found) for name in samples},
            "check": verdict(found, units, judge), "refused": out["refused"], "plan": out["plans"]["falchion"],
            "plan_any_order": out["plans"]["any_order"], "clocks": clocks,
            "flops": 10.0 * b * h * s * s * d * (0.5 if causal else 1)}
