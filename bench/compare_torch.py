#!/usr/bin/env python3
"""Times Falchion beside PyTorch's attention on a GPU, with the same tensors, interleaved, in one run.

    bench/compare_torch.py --lib libfalchion.so --json result.json [--quick] [--sections prefill,gqa,varlen,chunked,small,decode,backward]

It needs torch (2.5 or newer) with CUDA and libfalchion.so, and no compiler. In the mode burst it pauses before each group
of calls, so that each group runs at the chip's top clock. In the mode sustained it runs groups back to back, as a training
step does. With --fa3 FlashAttention-3 is a rival, and in backward its deterministic form, fa3_det, too. TFLOP/s count
4 b h s_q s_k d, and half of that when causal. ratio is the time of the fastest rival divided by Falchion's, so above 1
Falchion is faster. The section backward runs only when it is named, and counts 2.5 times the flop. There falchion gives the
same bits each time, and any_order need not, as the rivals' defaults do not. both is the time of forward and backward
together, with its own ratio. With --budget, cells that would begin too late are left out and named.
"""
import argparse
import math
import os
import pathlib
import random
import statistics
import sys
import time

import result_file

RIVALS = ("flash", "cudnn", "efficient", "flex", "fa4", "fa3")
OTHER_NAMES = {"fa2": "flash"}  # PyTorch's back end flash is FlashAttention-2.
OURS = ("falchion", "any_order")
SECTIONS = ("prefill", "gqa", "varlen", "chunked", "small", "decode", "backward")
MEANS = ("ratio_any_order", "both_ratio")  # Of the section backward, besides the ratio that each section has.


class FakeBench:
    """Takes the place of a GPU with invented numbers, to show the tables and the JSON where there is none."""

    def __init__(self, options):
        self.options, self.random = options, random.Random(1)

    def context(self):
        return {"device": "fake", "driver": "none (invented numbers)", "sms": 132, "torch": "none", "falchion_version": "fake",
                "build_info": ""}

    def result(self, work, names):
        samples = {n: [self.random.uniform(0.9, 1.1) for _ in range(self.options.rounds)] for n in names}
        return {"samples": samples, "errors": {n: 1e-3 for n in names}, "check": "ok", "refused": {}, "plan": "fake",
                "clocks": {"sm_mhz": 1980.0}, **work}

    def prefill(self, dtype, s, d, causal, mode):
        return self.result({"flops": 1e11}, ["falchion", *self.options.rivals])

    def gqa(self, dtype, b, s, h, h_k, d, causal, mode):
        return self.result({"flops": 1e11}, ["falchion", *self.options.rivals])

    def varlen(self, dtype, lengths, d, causal):
        return self.result({"flops": 1e11}, ["falchion"] + (["dense"] if len(set(lengths)) == 1 else []))

    def decode(self, dtype, b, s):
        return self.result({"bytes": 1e9}, ["falchion", *self.options.rivals])

    def chunked(self, dtype, s_q, s_k, h, d, mode):
        return self.result({"flops": 1e11}, ["falchion", *self.options.rivals])

    def small(self, dtype, b, h, s, d):
        return self.result({"flops": 1e9}, ["falchion", *self.options.rivals])

    def backward(self, dtype, s, d, causal, mode):
        names = [*OURS, *self.options.rivals_backward]
        both = {n: [self.random.uniform(1.3, 1.5) for _ in range(self.options.rounds)] for n in names}
        return {**self.result({"flops": 2.5e11}, names), "both": both, "plan_any_order": "fake"}

    def stop(self):
        pass


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def random_lengths(tokens, mean, seed=7):
    """Draws lengths that are uniform in [1, 2 mean], and cuts them so that their sum is tokens."""
    draw, out = random.Random(seed), []
    while sum(out) < tokens:
        out.append(min(draw.randint(1, 2 * mean), tokens - sum(out)))
    return out


def grid(options):
    """Yields (section, name, arguments) of each cell. Within a section the most telling cells come first."""
    quick = options.quick
    for section in options.sections:
        if section in ("prefill", "backward"):
            for mode in options.modes:
                for d in options.d or ((128,) if quick else (128, 64, 256)):
                    for s in options.s or ((1024, 4096, 16384) if quick else (4096, 16384, 1024, 8192, 2048, 512)):
                        for causal in (False, True):
                            what = "causal" if causal else "full"
                            yield section, f"{mode}/{options.dtype}/d:{d}/s:{s}/{what}", (options.dtype, s, d, causal, mode)
        elif section == "gqa":
            for mode in options.modes:
                for b, s, h, h_k in ((4, 4096, 32, 8),) if quick else ((4, 4096, 32, 8), (1, 16384, 64, 8), (16, 1024, 32, 8)):
                    name = f"{mode}/{options.dtype}/d:128/b:{b}/s:{s}/h:{h}/h_k:{h_k}/causal"
                    yield section, name, (options.dtype, b, s, h, h_k, 128, True, mode)
        elif section == "varlen":
            tokens = options.tokens
            shapes = [(f"{tokens // s}x{s}", [s] * (tokens // s)) for s in ((1024,) if quick else (512, 1024, 4096, 16384)) if s <= tokens]
            shapes += [(f"random_mean_{m}", random_lengths(tokens, m)) for m in ((1024,) if quick else (256, 1024, 4096))]
            for label, lengths in shapes:
                for causal in (False, True):
                    what = "causal" if causal else "full"
                    yield section, f"{options.dtype}/d:128/{label}/{what}", (options.dtype, lengths, 128, causal)
        elif section == "chunked":  # A chunk of a prompt sees all keys before it.
            for mode in options.modes:
                for h in (8,) if quick else (8, 16, 64):
                    yield section, f"{mode}/{options.dtype}/d:128/h:{h}/s_q:512/s_k:65536", (options.dtype, 512, 65536, h, 128, mode)
        elif section == "small":  # These cells run in a CUDA graph.
            for b, h, s, d in ((1, 12, 128, 64), (1, 16, 512, 64), (8, 12, 197, 64), (1, 16, 512, 128), (1, 8, 2048, 128)):
                yield section, f"{options.dtype}/b:{b}/h:{h}/s:{s}/d:{d}", (options.dtype, b, h, s, d)
        elif section == "decode":
            for b in (1, 16) if quick else (1, 4, 16, 64):
                for s in (8192, 131072) if quick else (1024, 4096, 8192, 32768, 131072):
                    if b * s > 2 * 1024 * 1024:
                        continue
                    yield section, f"bf16/b:{b}/s_k:{s}", ("bf16", b, s)


def row_of(section, name, result):
    """Returns medians, rates and the ratio to the fastest rival."""
    medians = lambda samples: {n: statistics.median(x) for n, x in samples.items()}
    ms = medians(result["samples"])
    spread = {n: (max(x) - min(x)) / 2 / statistics.median(x) for n, x in result["samples"].items()}
    rivals = {n: t for n, t in ms.items() if n not in OURS}
    work, unit, scale = (result["flops"], "TFLOP/s", 1e9) if "flops" in result else (result["bytes"], "TB/s", 1e9)
    fastest = min(rivals, key=rivals.get) if rivals else None
    row = {"section": section, "name": name, "ms": ms, "spread": spread, "rate": {n: work / t / scale for n, t in ms.items()},
            "unit": unit, "fastest_rival": fastest, "ratio": rivals[fastest] / ms["falchion"] if fastest else None,
            "ratios": {n: t / ms["falchion"] for n, t in rivals.items()}, "errors": result["errors"],
            "check": result["check"], "refused": result.get("refused", {}), "plan": result["plan"],
            "clocks": result["clocks"], "work": work}
    if "both" in result:
        both = medians(result["both"])
        of_rivals = [t for n, t in both.items() if n not in OURS]
        row.update({"ratio_any_order": rivals[fastest] / ms["any_order"] if fastest else None, "both_ms": both,
                    "both_ratio": min(of_rivals) / both["falchion"] if of_rivals else None,
                    "plan_any_order": result["plan_any_order"]})
    return row


def show(row, columns):
    """Prints one line of the table. Decode is given in microseconds and TB/s, and small problems in microseconds."""
    decode = row["section"] in ("decode", "small")
    cells = []
    for name in columns:
        if name not in row["ms"]:
            cells.append(f"{'-':>16}")
        elif decode:
            cells.append(f"{row['ms'][name] * 1e3:>8.1f}us{row['rate'][name]:>6.2f}")
        else:
            cells.append(f"{row['ms'][name]:>8.3f}ms{row['rate'][name]:>6.0f}")
    ratio = f"{row['ratio']:6.3f}x" if row["ratio"] else "      -"
    clock = f"{row['clocks'].get('sm_mhz', 0):>6.0f}"
    if "both_ms" in row:
        both = f"{row['both_ratio']:6.3f}x" if row["both_ratio"] else "      -"
        cells.append(f"{row['both_ms']['falchion']:>8.3f}ms {both}")
    print(f"{row['name']:<44}{''.join(cells)}  {ratio}{clock}  {row['check'] if row['check'] != 'ok' else ''}".rstrip(), flush=True)


def summary(rows):
    """Prints geometric means and lowest cells by section and, for prefill, by mode and kind."""
    groups = {}
    for row in rows:
        if not row["ratio"]:
            continue
        key = row["section"]
        if key == "gqa":
            key = f"{key} {row['name'].split('/')[0]}"
        if key in ("prefill", "backward"):
            mode, kind = row["name"].split("/")[0], row["name"].rsplit("/", 1)[1]
            d = row["name"].split("/")[2].replace(":", " ")
            groups.setdefault(f"{key} {mode} {d} {kind}", []).append(row)
            key = f"{key} {mode}"
        groups.setdefault(key, []).append(row)
    out = {}
    print(f"\n{'ratio to the fastest rival':<30}{'cells':>6}{'geo mean':>10}{'lowest':>8}   lowest cell")
    for key in sorted(groups):
        lowest = min(groups[key], key=lambda r: r["ratio"])
        out[key] = {"cells": len(groups[key]), "geometric_mean": geometric_mean([r["ratio"] for r in groups[key]]),
                    "lowest": lowest["ratio"], "lowest_cell": lowest["name"]}
        for extra in MEANS:
            if values := [r[extra] for r in groups[key] if r.get(extra)]:
                out[key][extra] = geometric_mean(values)
        for name in sorted({n for r in groups[key] for n in r["ratios"]}):
            out[key][f"over_{name}"] = geometric_mean([r["ratios"][name] for r in groups[key] if name in r["ratios"]])
        means = {n.removeprefix("over_"): v for n, v in out[key].items() if n in MEANS or n.startswith("over_")}
        print(f"{key:<30}{len(groups[key]):>6}{out[key]['geometric_mean']:>10.3f}{lowest['ratio']:>8.3f}   {lowest['name']}"
              f"   ({', '.join(f'{n} {v:.3f}' for n, v in means.items())})")
    return out


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: tuple(int(x) for x in text.split(","))
    words = lambda text: tuple(text.split(","))
    parser.add_argument("--lib", help="libfalchion.so")
    parser.add_argument("--json", help="where to write the results")
    parser.add_argument("--quick", action="store_true", help="a smaller grid")
    parser.add_argument("--sections", type=words, default=SECTIONS[:-1],
                        help=f"of {', '.join(SECTIONS)}; without it all but backward")
    parser.add_argument("--backend", choices=("best", "sm80", "sm90"), default="best", help="of Falchion")
    parser.add_argument("--modes", type=words, default=("burst", "sustained"))
    parser.add_argument("--rivals", type=words, default=("flash", "cudnn", "efficient"),
                        help=f"of {', '.join(RIVALS)}; fa2 is another name of flash")
    parser.add_argument("--fa3", help="a library with FlashAttention-3's C functions (fa3.py), which is a rival then")
    parser.add_argument("--flex", action="store_true", help="FlexAttention too; it is compiled first, which takes a while")
    parser.add_argument("--dtype", choices=("bf16", "f16"), default="bf16")
    parser.add_argument("--d", type=numbers, help="head dims; heads are 2048 / d")
    parser.add_argument("--s", type=numbers, help="lengths")
    parser.add_argument("--tokens", type=int, default=16384, help="b * s of prefill and varlen")
    parser.add_argument("--rounds", type=int, default=5, help="groups of each; the median counts")
    parser.add_argument("--pause-decode", action="store_true", help="decode in bursts too")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds; later cells are left out")
    parser.add_argument("--fake", action="store_true", help="invented numbers, to see tables and JSON without a GPU")
    options = parser.parse_args(arguments)
    options.rivals = tuple(OTHER_NAMES.get(name, name) for name in options.rivals)
    if options.flex:
        options.rivals += ("flex",)
    if options.fa3 and "fa3" not in options.rivals:
        options.rivals += ("fa3",)
    unknown = set(options.rivals) - set(RIVALS)
    if unknown:
        parser.error(f"no such rival: {', '.join(sorted(unknown))}; there are {', '.join(RIVALS)}")
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no such section: {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    if "fa3" in options.rivals and not (options.fa3 and (options.fake or os.path.exists(options.fa3))):
        parser.error(f"no library with FlashAttention-3 at {options.fa3}; --fa3 names it")
    options.rivals_backward = options.rivals + (("fa3_det",) if "fa3" in options.rivals else ())
    if not options.fake and not (options.lib and os.path.exists(options.lib)):
        parser.error(f"no libfalchion.so at {options.lib}; build it (./dev device-build) and give --lib")
    return options


def open_bench(options):
    if options.fake:
        return FakeBench(options)
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    import torch
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU here")
    from falchion_ctypes import Falchion
    from torch_rivals import Bench
    return Bench(Falchion(options.lib), options, options.fa3)


def write(options, bench, rows, skipped, failed, means):
    context = bench.context()
    head = result_file.facts(context.pop("device"), context.pop("driver"))
    context.update({"rounds": options.rounds, "quick": options.quick, "modes": options.modes, "dtype": options.dtype,
                    "summary": means, "skipped": skipped, "failed": failed,
                    "ratio": "median of the fastest rival over Falchion's, same tensors, interleaved"})
    result_file.write(options.json, {**head, "context": context, "rows": rows})


def main():
    options = parse()
    bench, start = open_bench(options), time.monotonic()
    columns = ("falchion", *options.rivals)
    context = bench.context()
    print(f"{context['device']}, driver {context['driver']}, torch {context['torch']}, falchion {context['falchion_version']}")
    rows, skipped, failed, section_now = [], [], [], None
    for section, name, arguments in grid(options):
        if time.monotonic() - start > options.budget:
            skipped.append(f"{section}/{name}")
            continue
        if section != section_now:
            section_now = section
            names = {"varlen": ("falchion", "dense"), "backward": (*OURS, *options.rivals_backward)}.get(section, columns)
            last = f"{'both':>10}{'ratio':>8}" if section == "backward" else ""
            print(f"\n{section:<44}{''.join(f'{n:>16}' for n in names)}{last}   ratio   MHz", flush=True)
        try:
            row = row_of(section, name, getattr(bench, section)(*arguments))
        except Exception as error:  # One broken cell does not end the run.
            failed.append({"cell": f"{section}/{name}", "why": str(error).strip()[:400]})
            print(f"{name:<44}failed: {str(error).strip()[:160]}", flush=True)
            continue
        rows.append(row)
        show(row, names)
    means = summary(rows)
    if skipped:
        print(f"left out for time: {len(skipped)} cells, the first {skipped[0]}")
    if options.json:
        write(options, bench, rows, skipped, failed, means)
    bench.stop()
    wrong = [r["name"] for r in rows if r["check"] != "ok"]
    if wrong:
        print(f"wrong results: {', '.join(wrong)}")
    return 1 if wrong or failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
