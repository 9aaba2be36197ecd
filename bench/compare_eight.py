#!/usr/bin/env python3
"""Times attention of 8 bits beside FlashAttention-3's e4m3, cuDNN's and our bf16, in one process.

    bench/compare_eight.py --lib libfalchion.so [--fa3 libfa3.so] [--cudnn] [--json result.json] [--cells 32768,128,16 ...]

It needs torch with CUDA and libfalchion.so. --fa3 is a library with FlashAttention-3 (fa3.py), whose e4m3 has head dim
128. --cudnn needs the package nvidia-cudnn-frontend; its O is e4m3. A cell is keys and queries, head dim, heads; the batch is
such that there are 16384 queries. Rates are in TFLOP/s, from the median of calls, after 0.2 s of work ("sustained") and with
pauses ("burst"). Operands are quantised before the clock starts. Who does not take a cell is left out, with its reason.
"""
import argparse
import statistics
import sys
import time

import torch

import result_file
from accuracy_eight import FORMS, Engine
from fa3 import Fa3

OURS = {"bf16": "bf16", "e4m3": "e4m3, a head", "i8": "i8, 1 x 128", "i8, v bf16": "i8, 1 x 128, v bf16"}
TOKENS = 16384


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cell = lambda text: tuple(int(x) for x in text.split(","))
    parser.add_argument("--lib", required=True, help="libfalchion.so")
    parser.add_argument("--fa3", help="a library with FlashAttention-3's C functions (fa3.py)")
    parser.add_argument("--cudnn", action="store_true", help="cuDNN's e4m3 too")
    parser.add_argument("--json", help="where to write the results")
    parser.add_argument("--cells", type=cell, nargs="+", metavar="S,D,H",
                        default=[(32768, 128, 16), (4096, 128, 16), (1024, 128, 16), (8192, 64, 32), (8192, 256, 8)])
    return parser.parse_args()


def cudnn_call(q, k, v, causal):
    """Returns a function that enqueues cuDNN's forward pass of e4m3, all scales 1 but that of P."""
    import cudnn
    e4m3, f32 = cudnn.data_type.FP8_E4M3, cudnn.data_type.FLOAT
    graph = cudnn.pygraph(io_data_type=e4m3, intermediate_data_type=f32, compute_data_type=f32)
    operands = [x.to(torch.float8_e4m3fn).transpose(1, 2) for x in (q, k, v)]
    o = torch.empty(q.shape, dtype=torch.float8_e4m3fn, device="cuda").transpose(1, 2)
    number = lambda x: torch.full((1, 1, 1, 1), float(x), device="cuda")
    scales = {"descale_q": number(1), "descale_k": number(1), "descale_v": number(1), "descale_s": number(1 / 256),
              "scale_s": number(256), "scale_o": number(1)}
    largest = [number(0), number(0)]
    nodes = [graph.tensor(dim=list(x.shape), stride=list(x.stride()), data_type=e4m3) for x in operands]
    of_scales = {name: graph.tensor(dim=[1] * 4, stride=[1] * 4, data_type=f32) for name in scales}
    out, _, *of_largest = graph.sdpa_fp8(**dict(zip("qkv", nodes)), **of_scales, is_inference=True,
                                         attn_scale=q.shape[3] ** -.5, use_causal_mask=causal)
    out.set_output(True).set_dim(list(o.shape)).set_stride(list(o.stride())).set_data_type(e4m3)
    for node in of_largest:
        node.set_output(True).set_dim([1] * 4).set_stride([1] * 4).set_data_type(f32)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    graph.build_plans()
    workspace = torch.empty(max(1, graph.get_workspace_size()), device="cuda", dtype=torch.uint8)
    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
    pack = dict(zip(nodes, operands)) | {out: o} | dict(zip(of_largest, largest)) | {of_scales[x]: scales[x] for x in scales}
    return lambda: graph.execute(pack, workspace, handle=handle)


def fa3_call(library, q, k, v, causal):
    """All scales are 1."""
    return library.forward(*(x.to(torch.float8_e4m3fn) for x in (q, k, v)), causal)[2]


def our_call(engine, form, q, k, v, causal):
    operands, scales = engine.operands(form, q, k, v)
    o, call = engine.attention_call(*operands, causal, scales, FORMS[form][3] or 0)
    # A call keeps pointers alone.
    return lambda keep=(operands, scales, o): call()


def median_ms(call, times=4):
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)]
    for begin, end in events:
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in events)


def times_of(calls, sustained, rounds=3):
    """Name: the ms of a call, measured in turns."""
    begin = time.time()
    while sustained and time.time() - begin < .2:
        for call in calls.values():
            call()
        torch.cuda.synchronize()
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            if not sustained:
                time.sleep(.05)
            call()
            times[name].append(median_ms(call))
    return {name: statistics.median(some) for name, some in times.items()}


def measure(engine, makers, cell, causal):
    s, d, h = cell
    b = max(1, TOKENS // s)
    q, k, v = (torch.randn(b, s, h, d, device="cuda") for _ in range(3))
    calls = {}
    for name, make in makers.items():
        try:
            call = make(q, k, v, causal)
            call()
            torch.cuda.synchronize()
            calls[name] = call
        except Exception as error:  # each library has its own kinds
            print(f"{name} leaves out {cell}: {str(error).splitlines()[0][:150]}", file=sys.stderr)
    flops = 4 * b * h * s * s * d * (.5 if causal else 1)
    row = {"s": s, "d": d, "h": h, "causal": causal}
    for mode in ("sustained", "burst"):
        row[mode] = {name: round(flops / ms / 1e9) for name, ms in times_of(calls, mode == "sustained").items()}
    return row


def main():
    options = parse()
    torch.manual_seed(1)
    engine = Engine(options.lib, "cuda")
    makers = {name: lambda *x, form=form: our_call(engine, form, *x) for name, form in OURS.items()}
    if options.fa3:
        library = Fa3(options.fa3)
        makers["FlashAttention-3, e4m3"] = lambda *x: fa3_call(library, *x)
    if options.cudnn:
        makers["cuDNN, e4m3"] = cudnn_call
    print("| keys, head dim, heads | " + " | ".join(makers) + " |\n" + "|---" * (1 + len(makers)) + "|")
    rows = []
    for cell in options.cells:
        for causal in (False, True):
            rows.append(measure(engine, makers, cell, causal))
            rates = [str(rows[-1]["sustained"].get(name, "")) for name in makers]
            print(f"| {', '.join(map(str, cell))}{', causal' if causal else ''} | " + " | ".join(rates) + " |", flush=True)
    if options.json:
        result_file.write(options.json, result_file.facts(torch.cuda.get_device_name(), result_file.gpu_driver()) | {"rows": rows})


if __name__ == "__main__":
    main()
