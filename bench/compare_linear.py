#!/usr/bin/env python3
"""Times linear attention beside a copy of the same bytes, in one run, to show how near it is to the memory's roof.

    bench/compare_linear.py --lib libfalchion.so --json result.json [--recorded other.json] [--rounds 7] [--shapes 1,4,8192,64]
                            [--dtype f32] [--options feature_map=1 normalise=1]

It needs torch with CUDA and libfalchion.so. Times are the median GPU time of a call. The roof counts 4 tensors in the
forward pass (q, k, v are read and o is written) and 7 in the backward pass, at the speed of a copy of 512 MB, which is
measured here. The L2 is as the call before has left it. Errors are those from the same recurrence in chunks in double, as
the RMS of the difference divided by the RMS of the result. --recorded names rows {B, H, L, D, op, fwd: {ms}, bwd: {ms}}
that were measured elsewhere, with a cold L2. The fastest of each shape is shown: for f32 of those whose op begins with
ft_, for bf16 of the others. --options are fields of LinearAttention; then no error is shown.
"""
import argparse
import json
import statistics

import torch

import result_file
from falchion_ctypes import Falchion

SHAPES = ((8, 16, 2048, 64), (4, 16, 8192, 64), (1, 16, 32768, 64), (4, 16, 8192, 128), (1, 4, 8192, 64), (1, 1, 65536, 64),
          (2, 8, 4096, 64))
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def group(call, times=5):
    """Returns the ms of one call, from a few in a row. The sleep before them hides the time that launching takes on the
    host."""
    begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
    torch.cuda._sleep(2_000_000)
    begin.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / times


def copy_speed():
    source = torch.empty(1 << 29, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    # This is in bytes per microsecond.
    return 2 * source.numel() / min(group(lambda: target.copy_(source)) for _ in range(3)) / 1e3


def reference(q, k, v, scale, chunk=256):
    """Computes o from tensors (b, h, s, d) in chunks, by operations that torch can differentiate."""
    s, outputs, state = q.shape[2], [], torch.zeros(*q.shape[:2], q.shape[3], v.shape[3], dtype=q.dtype, device=q.device)
    for at in range(0, s, chunk):
        a, b, c = (x[:, :, at:at + chunk] for x in (q, k, v))
        outputs.append(((a @ b.transpose(-1, -2)).tril() @ c + a @ state) * scale)
        state = state + b.transpose(-1, -2) @ c
    return torch.cat(outputs, 2)


def error(x, wanted):
    return ((x.double() - wanted).norm() / wanted.norm()).item()


def cell(fal, shape, dtype, options, rounds, roof, recorded):
    b, h, s, d = shape
    q, k, v, grad_o = (torch.randn(b, s, h, d, device="cuda", dtype=dtype).transpose(1, 2) for _ in range(4))
    o = torch.full_like(v, float("nan"))
    grads = [torch.full_like(x, float("nan")) for x in (q, k, v)]
    calls = {"forward": fal.linear_plan(q, k, v, o, **options),
             "backward": fal.linear_plan(q, k, v, grads=(grad_o, *grads), **options)}
    few = [x[:1, :1].double().requires_grad_() for x in (q, k, v)]
    wanted = reference(*few, d ** -0.5)
    wanted_grads = torch.autograd.grad((wanted * grad_o[:1, :1].double()).sum(), few)
    result = {"shape": shape}
    for name, tensors in (("forward", 4), ("backward", 7)):
        call = calls[name]
        call()
        torch.cuda.synchronize()
        us = statistics.median(group(call) for _ in range(rounds)) * 1e3
        floor = tensors * q.numel() * q.element_size() / roof
        if name == "forward":
            errors = [error(o[:1, :1], wanted)]
        else:
            errors = [error(x[:1, :1], y) for x, y in zip(grads, wanted_grads)]
        if options:
            errors = []
        result[name] = {"us": us, "roof_us": floor, "share": floor / us, "errors": errors, "plan": call.describe}
        key = "fwd" if name == "forward" else "bwd"
        of_shape = [row[key]["ms"] * 1e3 for row in recorded
                    if [row["B"], row["H"], row["L"], row["D"]] == list(shape) and key in row
                    and row["op"].startswith("ft_") == (dtype == torch.float32)]
        if of_shape:
            result[name]["recorded_us"] = min(of_shape)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", required=True)
    parser.add_argument("--json")
    parser.add_argument("--recorded")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shapes", nargs="*", help="b,h,l,d")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--options", nargs="*", default=[], help="field=integer, of those that need no operand")
    options = parser.parse_args()
    fal = Falchion(options.lib)
    dtype, fields = DTYPES[options.dtype], {name: int(value) for name, value in (x.split("=") for x in options.options)}
    recorded = json.load(open(options.recorded))["rows"] if options.recorded else []
    shapes = [tuple(map(int, x.split(","))) for x in options.shapes] if options.shapes else SHAPES
    roof = copy_speed()
    print(f"{torch.cuda.get_device_name()}, copy {roof / 1e6:.2f} TB/s\n")
    print(f"{'b, h, l, d':20} {'pass':9} {'us':>8} {'roof us':>8} {'share':>6} {'error':>8} {'recorded':>9} {'ratio':>6}  plan")
    results = []
    for shape in shapes:
        result = cell(fal, shape, dtype, fields, options.rounds, roof, recorded)
        results.append(result)
        for name in ("forward", "backward"):
            x = result[name]
            other = f"{x['recorded_us']:8.1f} {x['recorded_us'] / x['us']:6.2f}x" if "recorded_us" in x else f"{'-':>8} {'-':>7}"
            print(f"{', '.join(map(str, shape)):20} {name:9} {x['us']:8.1f} {x['roof_us']:8.1f} {x['share']:6.1%} "
                  f"{max(x['errors'], default=float('nan')):8.1e}  {other}  {x['plan']}", flush=True)
    if options.json:
        head = result_file.facts(torch.cuda.get_device_name(), result_file.gpu_driver())
        result_file.write(options.json, {**head, "torch": torch.__version__, "copy_TBps": roof / 1e6, "dtype": options.dtype,
                                         "options": fields, "build_info": fal.build_info(), "results": results})


if __name__ == "__main__":
    main()
