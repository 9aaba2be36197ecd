#!/usr/bin/env python3
"""How far attention of 8 bits is off, form by form, and who gets inputs right that are made to find faults.

    bench/accuracy_eight.py --lib libfalchion.so --json result.json             # on a CPU: the definition (ref) in 8 bits
    bench/accuracy_eight.py --lib libfalchion.so --device cuda --fa3 libfa3.so  # on a GPU, beside FlashAttention-3's e4m3
    bench/accuracy_eight.py --tables result.json                               # the tables of docs/eight_bits.md

It needs torch and libfalchion.so. The first table compares with the definition in double of the operands before they were
quantised: rel is the root of the mean square of the error over that of the definition, cos is 1 - the cosine of the angle
between the two, max is the largest error over the root of the mean square. The second table is O over the exact O of the
very operands, so it shows what a kernel does: the sums of both over all elements, and rel. --fa3 is a library with fa3_fwd,
FlashAttention-3's forward pass for head dim 128.
"""
import argparse
import ctypes
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import result_file

# Name: type of q and k, of v, rows of q and of k that share a scale (0: all of the head), rotated, smooth.
FORMS = {
    "e4m3, a head": ("e4m3", "e4m3", 0, 0, False, False),
    "e4m3, a head, rotated": ("e4m3", "e4m3", 0, 0, True, False),
    "e4m3, a head, rotated, smooth": ("e4m3", "e4m3", 0, 0, True, True),
    "i8, 1 x 128": ("i8", "e4m3", 1, 128, False, False),
    "i8, 1 x 128, rotated, smooth": ("i8", "e4m3", 1, 128, True, True),
    "i8, 1 x 128, v bf16": ("i8", "bf16", 1, 128, False, False),
    "i8, 1 x 128, rotated, smooth, v bf16": ("i8", "bf16", 1, 128, True, True),
    "bf16": ("bf16", "bf16", None, None, False, False),
}
HARD_FORMS = ("e4m3, a head", "i8, 1 x 128, rotated, smooth", "bf16")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(x) for x in text.split(",")]
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--lib", help="libfalchion.so")
    what.add_argument("--tables", help="a result file, whose tables are printed")
    parser.add_argument("--fa3", help="a library with FlashAttention-3's C functions (fa3.py)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", help="where to write the results")
    parser.add_argument("--s", type=int, default=2048, help="tokens of the random inputs")
    parser.add_argument("--keys", type=numbers, default=[2048, 8192, 32768, 131072], help="of the inputs that find faults")
    parser.add_argument("--rows", type=int, default=64, help="queries of these")
    parser.add_argument("--tensors", default=HERE.parent / "examples" / "smollm2" / "smollm2_qkv.safetensors", type=pathlib.Path)
    return parser.parse_args()


class Engine:
    """Falchion's calls on tensors (b, s, h, d) of torch."""

    def __init__(self, path, device):
        import torch
        import falchion_ctypes as fc
        self.torch, self.fc, self.device = torch, fc, device
        self.fal = fc.Falchion(path)
        self.types = {"e4m3": torch.float8_e4m3fn, "i8": torch.int8, "bf16": torch.bfloat16}

    def view(self, x):
        return self.fc.view(x.transpose(1, 2))

    def call(self, function, operands, problem, backend):
        """Returns a function that enqueues the call."""
        fc = self.fc
        target = fc.Target(size=ctypes.sizeof(fc.Target), backend=fc.BACKENDS[backend])
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream) if self.device == "cuda" else None
        return lambda: self.fal.check(function(ctypes.byref(operands), ctypes.byref(problem), ctypes.byref(target), stream))

    def run(self, call):
        call()
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def quantise(self, x, dtype, rows, rotate=False, smooth=False):
        """Returns numbers and scales (b, blocks, h, 1)."""
        fc, torch = self.fc, self.torch
        b, s, h, d = x.shape
        problem = self.fal.lib.fal_quantise_init()
        problem.dtype, problem.dtype_y = self.view(x).dtype, fc.DTYPES[str(self.types[dtype])]
        problem.b, problem.s, problem.h, problem.d, problem.rows = b, s, h, d, rows
        problem.rotate, problem.smooth = rotate, smooth
        y = torch.empty(x.shape, dtype=self.types[dtype], device=x.device)
        blocks = -(-s // rows) if rows else 1
        scale, mean = torch.empty(b, blocks, h, 1, device=x.device), torch.empty(b, 1, h, d, device=x.device)
        operands = fc.S["fal_quantise_operands"](size=ctypes.sizeof(fc.S["fal_quantise_operands"]), x=self.view(x), y=self.view(y),
                                                 scale=self.view(scale))
        if smooth:
            operands.mean = self.view(mean)
        self.run(self.call(self.fal.lib.fal_quantise_run, operands, problem, "best" if self.device == "cuda" else "ref"))
        return y, scale

    def attention_call(self, q, k, v, causal=False, scales=(None, None, None), k_rows=0, cpu="cpu"):
        """Returns o and the function that enqueues the call. scales: of q, k and v, each (b, blocks, h, 1) or None. cpu: the
        back end where there is no GPU."""
        fc, torch = self.fc, self.torch
        problem = self.fal.lib.fal_attention_init()
        problem.dtype, problem.dtype_v = self.view(q).dtype, self.view(v).dtype
        (problem.b, problem.s_q, problem.h_q, problem.d_qk), (_, problem.s_k, problem.h_k, problem.d_v) = q.shape, v.shape
        problem.k_scale_rows = k_rows
        if causal:
            problem.band = fc.Band(fc.UNBOUNDED, 0, fc.BOTTOM_RIGHT, 0)
        o = torch.empty(*q.shape[:3], v.shape[3], dtype=torch.bfloat16, device=q.device)
        operands = fc.Operands(size=ctypes.sizeof(fc.Operands), q=self.view(q), k=self.view(k), v=self.view(v), o=self.view(o))
        for name, x in zip(("q_scale", "k_scale", "v_scale"), scales):
            if x is not None:
                setattr(problem, name, 1)
                setattr(operands, name, self.view(x))
        return o, self.call(self.fal.lib.fal_attention_run, operands, problem, "best" if self.device == "cuda" else cpu)

    def attention(self, q, k, v, causal=False, scales=(None, None, None), k_rows=0):
        """Returns o. On a CPU 8 bits run by the definition."""
        o, call = self.attention_call(q, k, v, causal, scales, k_rows, cpu="ref" if q.element_size() == 1 else "cpu")
        self.run(call)
        return o

    def operands(self, name, q, k, v):
        """Returns q, k and v in a form, and the scales of each."""
        of_q, of_v, rows_q, rows_k, rotate, smooth = FORMS[name]
        if of_q == "bf16":
            return [x.bfloat16() for x in (q, k, v)], (None, None, None)
        pairs = (self.quantise(q, of_q, rows_q, rotate), self.quantise(k, of_q, rows_k, rotate, smooth),
                 self.quantise(v, of_v, 0) if of_v != "bf16" else (v.bfloat16(), None))
        return [x for x, _ in pairs], [scale for _, scale in pairs]

    def form(self, name, q, k, v, causal):
        """O of a form, and the operands that it has multiplied, as numbers."""
        (q, k, v), scales = self.operands(name, q, k, v)
        rows_q, rows_k = FORMS[name][2:4]
        o = self.attention(q, k, v, causal, scales, rows_k or 0)
        spread = lambda x, scale, rows: x.double() if scale is None else x.double() * (
            scale.repeat_interleave(rows, 1)[:, :x.shape[1]] if rows else scale).double()
        return o, (spread(q, scales[0], rows_q), spread(k, scales[1], rows_k), spread(v, scales[2], 0))


def exact(q, k, v, causal=False):
    """The definition in double. Several query heads may share one of k and v."""
    import torch
    q, k, v = (x.double() for x in (q, k, v))
    o = torch.empty(*q.shape[:3], v.shape[3], dtype=torch.float64, device=q.device)
    per = q.shape[2] // k.shape[2]
    for b in range(q.shape[0]):
        for h in range(q.shape[2]):
            scores = q[b, :, h] @ k[b, :, h // per].T * q.shape[3] ** -.5
            if causal:
                at = torch.arange(len(scores), device=q.device)[:, None] + k.shape[1] - len(scores)
                scores.masked_fill_(torch.arange(k.shape[1], device=q.device) > at, -float("inf"))
            o[b, :, h] = torch.softmax(scores, -1) @ v[b, :, h // per]
    return o


def errors(o, wanted):
    o = o.double()
    error, size = (o - wanted).square().mean().sqrt(), wanted.square().mean().sqrt()
    cosine = (o * wanted).sum() / (o.norm() * wanted.norm())
    return {"rel": (error / size).item(), "cos": max(0., 1 - cosine.item()), "max": ((o - wanted).abs().max() / size).item()}


def inputs(options, device):
    """Name: (q, k, v, causal) in f32."""
    import torch
    from safetensors.torch import load_file
    normal = lambda: torch.randn(1, options.s, 2, 128)
    wild = lambda: normal() + 10 * normal() * (torch.rand(1, options.s, 2, 128) < .001)
    out = {"normal": (normal(), normal(), normal(), False), "outliers": (wild(), wild(), wild(), False)}
    if options.tensors.is_file():
        real = load_file(options.tensors)
        for layer in ("00", "14", "29"):
            out[f"L{int(layer)}"] = (*(real[f"layer{layer}.{x}"].float() for x in "qkv"), True)
    return {name: (*(x.to(device) for x in of[:3]), of[3]) for name, of in out.items()}


def hard_inputs(options, device):
    """(name, keys): (q, k, v) in f32, which find faults."""
    import torch
    rows = options.rows
    make = lambda s: torch.randn(1, s, 1, 128)
    out = {}
    for s in options.keys:
        flat = (make(rows) * .01, make(s) * .01)
        out["V = 1", s] = (*flat, torch.ones(1, s, 1, 128))
        out["V of mean 1", s] = (*flat, make(s) + 1)
        q, k = make(rows) * .05 + 1, make(s) * .05
        k[:, 0] = q.mean(1) * .8
        out["strong first key", s] = (q, k, make(s) + 1)
        out["strong last key", s] = (q, k.flip(1), make(s) + 1)
    s = options.keys[0]
    sign = make(s).sign()[..., :1]
    out["scores of +-200", s] = (torch.ones(1, rows, 1, 128), sign * 200 / 128 ** .5 * torch.ones(1, s, 1, 128), make(s) + 1)
    return {name: tuple(x.to(device) for x in of) for name, of in out.items()}


def fa3_run(path):
    """Returns a function that gives the O of FlashAttention-3's e4m3, with scale 1, and the numbers that it has multiplied."""
    import torch
    from fa3 import Fa3
    library = Fa3(path)

    def run(*operands):
        operands = [x.to(torch.float8_e4m3fn).contiguous() for x in operands]
        o, _, call = library.forward(*operands, False)
        call()
        torch.cuda.synchronize()
        return o, tuple(x.float() for x in operands)
    return run


def specials(engine, options):
    """A scale of 0, and a NaN code in a key that is masked."""
    import torch
    make = lambda s: torch.randn(1, s, 1, 128, device=engine.device)
    s = options.keys[0]
    q, k, v = make(64).to(torch.float8_e4m3fn), make(s).to(torch.float8_e4m3fn), (make(s) + 1).to(torch.float8_e4m3fn)
    zero = torch.zeros(1, 1, 1, 1, device=engine.device)
    mean = v.double().mean(1, keepdim=True).expand(1, 64, 1, 128)
    rows = [{"input": "a scale of 0", "keys": s, "form": "e4m3, a head", **errors(engine.attention(q, k, v, scales=(zero, None, None)), mean)}]
    bytes_k, bytes_v = k.clone().view(torch.uint8), v.clone().view(torch.uint8)
    bytes_k[:, -1], bytes_v[:, -1] = 0x7f, 0xff
    o = engine.attention(q, bytes_k.view(torch.float8_e4m3fn), bytes_v.view(torch.float8_e4m3fn), causal=True)
    wanted = exact(q, k, v, causal=True)
    seen = bool(o[:, -1].isnan().all())
    rows.append({"input": "NaN in a masked key", "keys": s, "form": "e4m3, a head", "last_row_is_nan": seen,
                 **errors(o[:, :-1], wanted[:, :-1])})
    return rows


def print_tables(result):
    columns = lambda rows, key: list(dict.fromkeys(row[key] for row in rows))
    rows, hard = result["rows"], result["hard"]
    for figure, title in (("rel", "relative root mean square"), ("cos", "1 - cosine"), ("max", "largest / root mean square")):
        print(f"| {title} | " + " | ".join(columns(rows, "input")) + " |\n" + "|---" * (1 + len(columns(rows, "input"))) + "|")
        shown = (lambda x: f"{x:.1e}") if figure == "cos" else (lambda x: f"{x:.3f}")
        for form in columns(rows, "form"):
            print(f"| {form} | " + " | ".join(shown(row[figure]) for row in rows if row["form"] == form) + " |")
        print()
    forms = columns(hard, "form")
    print("| O over the exact O; relative root mean square | " + " | ".join(forms) + " |\n" + "|---" * (1 + len(forms)) + "|")
    for name, keys in dict.fromkeys((row["input"], row["keys"]) for row in hard):
        cells = {row["form"]: row for row in hard if (row["input"], row["keys"]) == (name, keys)}
        text = lambda row: "" if row is None else (f"{row['share']:.4f}; " if "share" in row else "") + f"{row['rel']:.4f}"
        print(f"| {name}, {keys} keys | " + " | ".join(text(cells.get(form)) for form in forms) + " |")


def main():
    options = parse()
    if options.tables:
        print_tables(json.loads(pathlib.Path(options.tables).read_text()))
        return 0
    import torch
    torch.manual_seed(0)
    engine = Engine(options.lib, options.device)
    rows, hard = [], []
    print(f"{'form':<38}{'input':<10}{'rel':>9}{'1 - cos':>11}{'max':>9}")
    for name, (q, k, v, causal) in inputs(options, options.device).items():
        wanted = exact(q, k, v, causal)
        for form in FORMS:
            row = {"form": form, "input": name, **errors(engine.form(form, q, k, v, causal)[0], wanted)}
            rows.append(row)
            print(f"{form:<38}{name:<10}{row['rel']:>9.4f}{row['cos']:>11.2e}{row['max']:>9.3f}", flush=True)
    print(f"\n{'input':<22}{'keys':>8}  {'form':<32}{'O / exact':>10}{'rel':>9}")
    runs = {form: lambda q, k, v, form=form: engine.form(form, q, k, v, False) for form in HARD_FORMS}
    if options.fa3:
        runs["FlashAttention-3, e4m3"] = fa3_run(options.fa3)
    for (name, keys), of in hard_inputs(options, options.device).items():
        for form, run in runs.items():
            o, operands = run(*of)
            wanted = exact(*operands)
            hard.append({"input": name, "keys": keys, "form": form, "share": (o.double().sum() / wanted.sum()).item(),
                         "rel": errors(o, wanted)["rel"]})
    hard += specials(engine, options)
    for row in hard:
        print(f"{row['input']:<22}{row['keys']:>8}  {row['form']:<32}{row.get('share', 1):>10.4f}{row['rel']:>9.4f}")
    if options.json:
        gpu = options.device == "cuda"
        device = torch.cuda.get_device_name() if gpu else result_file.output_of("sh", "-c", "lscpu | sed -n 's/Model name: *//p'")
        driver = result_file.gpu_driver() if gpu else result_file.cpu_driver(engine.fal.build_info())
        result_file.write(options.json, {**result_file.facts(device, driver), "rows": rows, "hard": hard})
    return 0


if __name__ == "__main__":
    sys.exit(main())
