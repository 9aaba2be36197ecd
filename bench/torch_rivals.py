"""What compare_torch.py times: Falchion and PyTorch's attention back ends on the same tensors of the GPU. Needs torch."""
import math
import statistics
import subprocess
import threading
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import result_file
import torch_backward
from fa3 import Fa3

SDPA = torch.nn.functional.scaled_dot_product_attention
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION}
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
GROUP = 4  # So many calls lie between two events.
BURST_PAUSE = 0.12  # In seconds, before each group, so that the clock is back at its top.
LOAD = 0.25  # This is the load before the sustained groups, in seconds.


class Clocks:
    """Reads SM clock, memory clock, power and temperature in the background."""

    def __init__(self):
        self.samples, self.process = [], None
        query = "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu"
        try:
            self.process = subprocess.Popen(["nvidia-smi", query, "--format=csv,noheader,nounits", "-lms", "200"],
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            threading.Thread(target=self.read, daemon=True).start()
        except OSError:
            pass

    def read(self):
        for line in self.process.stdout:
            try:
                self.samples.append((time.monotonic(), [float(x) for x in line.split(",")]))
            except ValueError:
                pass

    def since(self, start):
        """Returns the medians since then, or nothing when there was no sample."""
        inside = [values for at, values in list(self.samples) if at >= start]
        if not inside:
            return {}
        keys = ("sm_mhz", "memory_mhz", "watt", "celsius")
        return dict(zip(keys, (statistics.median(column) for column in zip(*inside))))

    def stop(self):
        if self.process:
            self.process.terminate()


def group_ms(call, repeats=GROUP, cold=False):
    """Returns the milliseconds of one call, from events around a group of them. The device is kept busy until all of
    them are queued, by a sleep (cold) or by two more calls. Otherwise the time of short calls would be that of the
    host."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if cold:
        torch.cuda._sleep(2_000_000)  # The number counts cycles, which make about 1 ms.
    else:
        call(), call()
    start.record()
    for _ in range(repeats):
        call()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / repeats


def in_graph(call, repeats):
    """Captures the calls as one CUDA graph, so that the host's overhead is not what is timed."""
    call()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            call()
    return graph.replay


def tensor(b, h, s, d, dtype):
    """Returns a tensor (b, h, s, d) that lies as (b, s, h, d) in memory."""
    return torch.randn(b, s, h, d, dtype=torch.float32, device="cuda").to(dtype).transpose(1, 2)


def reference(q, k, v, causal, b, head, rows):
    """Returns rows of one head in float64."""
    group = q.shape[1] // k.shape[1]
    s = q[b, head, rows].double() @ k[b, head // group].double().T / math.sqrt(q.shape[3])
    if causal:
        keys = torch.arange(k.shape[2], device=q.device)
        s.masked_fill_(keys[None, :] > rows[:, None] + (k.shape[2] - q.shape[2]), -math.inf)
    return torch.softmax(s, 1) @ v[b, head // group].double()


def errors(q, k, v, causal, results):
    """Returns name -> largest error on a sample of rows of the first and the last head."""
    rows = torch.linspace(0, q.shape[2] - 1, min(q.shape[2], 48), device=q.device).long()
    out = dict.fromkeys(results, 0.0)
    largest = 0.0
    for b, head in ((0, 0), (q.shape[0] - 1, q.shape[1] - 1)):
        exact = reference(q, k, v, causal, b, head, rows)
        largest = max(largest, exact.abs().max().item())
        for name, o in results.items():
            error = (o[b, head, rows].double() - exact).abs().max().item()
            out[name] = error if math.isnan(error) else max(out[name], error)
    return out, torch.finfo(q.dtype).eps * largest


def judge(found, unit):
    """Falchion's error may be at most twice the best rival's, plus one unit of the output."""
    best = min((e for name, e in found.items() if name != "falchion"), default=math.inf)
    ok = found["falchion"] <= 2 * best + unit if math.isfinite(best) else found["falchion"] <= 8 * unit
    return "ok" if ok else f"WRONG: error {found['falchion']:.2e}, rival {best:.2e}, unit {unit:.2e}"


class Bench:
    def __init__(self, falchion, options, fa3=None):
        """fa3: the path of a library with FlashAttention-3, which is a rival then."""
        self.fal, self.options, self.clocks = falchion, options, Clocks()
        self.prepared, self.backward_rivals = dict(COMPILED_RIVALS), dict(torch_backward.RIVALS)
        if fa3:
            library = Fa3(fa3)
            self.prepared["fa3"] = lambda *problem: flash_attention_3(library, *problem)
            self.backward_rivals.update(torch_backward.flash_attention_3(library))
        torch.manual_seed(1)

    def context(self):
        properties = torch.cuda.get_device_properties(0)
        power = result_file.output_of("nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader").split("\n")[0]
        return {"device": properties.name, "driver": result_file.gpu_driver(), "sms": properties.multi_processor_count,
                "power_limit": power,
                "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "cuda": torch.version.cuda,
                "falchion_version": self.fal.version(), "build_info": self.fal.build_info()}

    def calls(self, q, k, v, causal):
        """Returns name -> call, for all that can run this problem, and their results."""
        o = torch.full_like(q, math.nan)
        ours = self.fal.plan(q, k, v, o, causal=causal, backend=self.options.backend)
        calls, results, refused = {"falchion": ours}, {"falchion": o}, {}
        gqa = q.shape[1] != k.shape[1]
        for name in self.options.rivals:
            if name in self.prepared:
                continue

            def call(backend=BACKENDS[name]):
                with sdpa_kernel(backend):
                    return SDPA(q, k, v, is_causal=causal, enable_gqa=gqa)
            try:
                results[name] = call()
                torch.cuda.synchronize()
                calls[name] = call
            except RuntimeError as error:
                refused[name] = str(error).strip().split("\n")[0][:200]
        for name, prepare in self.prepared.items():
            if name not in self.options.rivals:
                continue
            try:
                calls[name] = prepare(q, k, v, causal)
                results[name] = calls[name]()
            except Exception as error:  # A compiler may throw anything.
                refused[name] = str(error).strip().split("\n")[0][:200]
                calls.pop(name, None)
        ours()
        torch.cuda.synchronize()
        return calls, results, refused, ours.describe

    def interleaved(self, calls, mode, rounds, repeats=GROUP):
        """Returns name -> samples in ms. The order changes with each round."""
        for call in calls.values():
            group_ms(call, repeats)
        samples = {name: [] for name in calls}
        names = list(calls)
        start = time.monotonic()
        if mode == "sustained":
            while time.monotonic() - start < LOAD:
                group_ms(calls[names[0]], repeats)
        for i in range(rounds):
            for name in names[i % len(names):] + names[:i % len(names)]:
                if mode == "burst":
                    time.sleep(BURST_PAUSE)
                samples[name].append(group_ms(calls[name], repeats, cold=mode == "burst"))
        return samples, self.clocks.since(start)

    def prefill(self, dtype, s, d, causal, mode):
        """Times problems of 16k tokens with hidden size 2048."""
        b, h = max(1, self.options.tokens // s), 2048 // d
        return self.gqa(dtype, b, s, h, h, d, causal, mode)

    def gqa(self, dtype, b, s, h, h_k, d, causal, mode):
        """Times one problem with h heads of q and h_k of k and v."""
        q = tensor(b, h, s, d, DTYPES[dtype])
        k, v = (tensor(b, h_k, s, d, DTYPES[dtype]) for _ in range(2))
        calls, results, refused, describe = self.calls(q, k, v, causal)
        found, unit = errors(q, k, v, causal, results)
        del results
        samples, clocks = self.interleaved(calls, mode, self.options.rounds)
        return {"samples": samples, "errors": found, "check": judge(found, unit), "refused": refused, "plan": describe,
                "clocks": clocks, "flops": 4.0 * b * h * s * s * d * (0.5 if causal else 1), "b": b, "h_q": h, "h_k": h_k}

    def varlen(self, dtype, lengths, d, causal):
        """Times packed sequences, beside one dense batch where they all have the same length."""
        h, total = 2048 // d, sum(lengths)
        starts = [0]
        for n in lengths:
            starts.append(starts[-1] + n)
        cu = torch.tensor(starts, dtype=torch.int32, device="cuda")
        q, k, v = (torch.randn(total, h, d, device="cuda").to(DTYPES[dtype]) for _ in range(3))
        o = torch.full_like(q, math.nan)
        packed = self.fal.plan(q, k, v, o, causal=causal, cu_seqlens=cu, longest=max(lengths),
                               backend=self.options.backend)
        packed()
        calls, found, unit = {"falchion": packed}, {"falchion": 0.0}, 0.0
        for first, n in ((0, lengths[0]), (starts[-2], lengths[-1])):
            one = [x[first:first + n].transpose(0, 1).unsqueeze(0) for x in (q, k, v, o)]
            e, u = errors(*one[:3], causal, {"falchion": one[3]})
            error = e["falchion"]  # max() would drop a NaN, which is what an element that was never written holds.
            found["falchion"] = error if math.isnan(error) else max(error, found["falchion"])
            unit = max(unit, u)
            if math.isnan(error):
                break
        if len(set(lengths)) == 1:
            dense = [x.view(len(lengths), lengths[0], h, d).transpose(1, 2) for x in (q, k, v)]
            calls["dense"] = self.fal.plan(*dense, torch.empty_like(dense[0]), causal=causal, backend=self.options.backend)
        samples, clocks = self.interleaved(calls, "burst", self.options.rounds)
        return {"samples": samples, "errors": found, "check": judge(found, unit), "plan": packed.describe, "clocks": clocks,
                "flops": 4.0 * h * d * sum(n * n for n in lengths) * (0.5 if causal else 1), "b": len(lengths)}

    def decode(self, dtype, b, s):
        """Times one query for each sequence. It runs graphs of calls that walk over copies of K and V larger than the
        L2."""
        h_q, h_k, d = 32, 8, 128
        kv_bytes = 2 * 2 * b * h_k * s * d
        copies = max(1, min(32, math.ceil((400 << 20) / kv_bytes)))
        q = tensor(b, h_q, 1, d, DTYPES[dtype])
        caches = [tuple(tensor(b, h_k, s, d, DTYPES[dtype]) for _ in range(2)) for _ in range(copies)]
        each = [self.calls(q, k, v, False) for k, v in caches]
        found, unit = errors(q, *caches[0], False, each[0][1])
        names = [n for n in each[0][0] if all(n in calls for calls, *_ in each)]
        refused, graphs = dict(each[0][2]), {}
        repeats = max(1, min(8, 64 // copies))
        for name in names:
            def walk(name=name):
                for calls, *_ in each:
                    calls[name]()
            try:
                graphs[name] = in_graph(walk, repeats)
            except RuntimeError as error:
                torch.cuda.synchronize()
                refused[name] = "graph: " + str(error).strip().split("\n")[0][:200]
        if "falchion" not in graphs:
            raise RuntimeError(refused["falchion"])
        samples, clocks = self.interleaved(graphs, "burst" if self.options.pause_decode else "warm", self.options.rounds, 1)
        samples = {name: [ms / (copies * repeats) for ms in list_] for name, list_ in samples.items()}
        return {"samples": samples, "errors": found, "check": judge(found, unit), "refused": refused, "plan": each[0][3],
                "clocks": clocks, "bytes": float(kv_bytes + 4 * b * h_q * d), "copies": copies, "h_q": h_q, "h_k": h_k}

    def backward(self, dtype, s, d, causal, mode):
        """Times the backward pass of a prefill, and both passes together."""
        b, h = self.options.tokens // s, 2048 // d
        q, k, v, grad_o = (tensor(b, h, s, d, DTYPES[dtype]) for _ in range(4))
        return {**torch_backward.cell(self, q, k, v, grad_o, causal, mode, judge), "b": b, "h_q": h}

    def chunked(self, dtype, s_q, s_k, h, d, mode):
        """Times one sequence without a band: few query rows against many keys."""
        q = tensor(1, h, s_q, d, DTYPES[dtype])
        k, v = (tensor(1, h, s_k, d, DTYPES[dtype]) for _ in range(2))
        calls, results, refused, describe = self.calls(q, k, v, False)
        found, unit = errors(q, k, v, False, results)
        samples, clocks = self.interleaved(calls, mode, self.options.rounds)
        return {"samples": samples, "errors": found, "check": judge(found, unit), "refused": refused, "plan": describe,
                "clocks": clocks, "flops": 4.0 * h * s_q * s_k * d}

    def small(self, dtype, b, h, s, d):
        """Times a graph of 64 calls. It shows what is left of a launch when nothing waits for the host."""
        repeats = 64
        q, k, v = (tensor(b, h, s, d, DTYPES[dtype]) for _ in range(3))
        calls, results, refused, describe = self.calls(q, k, v, False)
        found, unit = errors(q, k, v, False, results)
        graphs = {name: in_graph(call, repeats) for name, call in calls.items()}
        samples, clocks = self.interleaved(graphs, "warm", 3 * self.options.rounds, 1)
        samples = {name: [ms / repeats for ms in list_] for name, list_ in samples.items()}
        return {"samples": samples, "errors": found, "check": judge(found, unit), "refused": refused, "plan": describe,
                "clocks": clocks, "flops": 4.0 * b * h * s * s * d}

    def stop(self):
        self.clocks.stop()


COMPILED = {}


def flex(q, k, v, causal):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    if "flex" not in COMPILED:
        torch._dynamo.config.recompile_limit = 1000  # Each cell of the grid is a shape of its own.
        COMPILED["flex"] = torch.compile(flex_attention, dynamic=False)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], k.shape[2], device="cuda") if causal else None
    gqa = q.shape[1] != k.shape[1]
    return lambda: COMPILED["flex"](q, k, v, block_mask=mask, enable_gqa=gqa)


def flash_attention_4(q, k, v, causal):
    """FlashAttention-4 of PyPI (flash-attn-4), whose kernels for Hopper are compiled when they are first called. It
    takes (b, s, h, d)."""
    from flash_attn.cute import flash_attn_func
    operands = [x.transpose(1, 2) for x in (q, k, v)]

    def call():
        o = flash_attn_func(*operands, causal=causal)
        return (o[0] if isinstance(o, tuple) else o).transpose(1, 2)
    return call


def flash_attention_3(library, q, k, v, causal):
    """A single query runs with the number of splits that is fastest."""
    operands = [x.transpose(1, 2) for x in (q, k, v)]
    if q.shape[2] > 1 or q.shape[3] != 128:
        o, _, call = library.forward(*operands, causal)
    else:
        tried = [library.decode(*operands, splits) for splits in library.splits(*operands[:2])]
        o, call = min(tried, key=lambda one: group_ms(one[1]))

    def run():
        call()
        return o.transpose(1, 2)
    return run


COMPILED_RIVALS = {"flex": flex, "fa4": flash_attention_4}
