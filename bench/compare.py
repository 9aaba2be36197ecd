#!/usr/bin/env python3
"""Prints what changed between two result files: `falchion bench --json FILE` or compare_torch_cpu.py --json FILE.

    bench/compare.py before.json after.json [--match TEXT] [--threshold 3] [--fail]

Times are medians. A change counts as faster or slower when it is above the threshold (percent) and above the spread of
both files; with --fail any slower line makes the exit code 1.
"""
import argparse
import json
import math
import sys


def medians(path):
    """run name -> (median ms, spread in percent, flop/s or bytes/s)"""
    try:
        with open(path) as file:
            data = json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(f"{path}: {error}")
    scale = {"s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
    out = {}
    for row in data.get("benchmarks", []):
        if row.get("run_type") == "aggregate" and row.get("aggregate_name") == "median":
            ms = row["real_time"] * scale[row.get("time_unit", "ns")]
            spread = 100 * row["spread"] if "spread" in row else 100 * row.get("stddev_ms", 0.0) / ms
            out[row["run_name"]] = (ms, spread, row.get("flops", row.get("bytes_per_second", 0.0)))
    if not out:
        sys.exit(f"{path}: no median in it; give the JSON of `falchion bench --json FILE`")
    return out, data.get("context", {})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--match", default="", help="only names with this in them")
    parser.add_argument("--threshold", type=float, default=3.0, help="percent")
    parser.add_argument("--fail", action="store_true", help="exit code 1 when something got slower")
    options = parser.parse_args()
    before, context_before = medians(options.before)
    after, context_after = medians(options.after)
    for label, context in (("before", context_before), ("after", context_after)):
        print(f"{label:<7}{context.get('date', '?')}  {context.get('device', '?')}  commit {context.get('commit') or '?'}")
    if context_before.get("device") != context_after.get("device"):
        print("NOTE: two different devices: the deltas compare machines, not code")
    names = [n for n in before if n in after and options.match in n]
    if not names:
        sys.exit("the files have no benchmark in common")
    width = max(map(len, names))
    print(f"\n{'benchmark':<{width}}  {'before ms':>10}  {'after ms':>10}  {'time':>8}  {'rate after':>12}")
    ratios, slower = [], 0
    for name in names:
        (old, spread_old, _), (new, spread_new, rate) = before[name], after[name]
        change = 100 * (new / old - 1)
        ratios.append(new / old)
        matters = abs(change) > max(options.threshold, spread_old, spread_new)
        verdict = ("slower" if change > 0 else "faster") if matters else ""
        slower += verdict == "slower"
        print(f"{name:<{width}}  {old:>10.3f}  {new:>10.3f}  {change:>+7.1f}%  {rate / 1e9:>8.1f} G/s  {verdict}".rstrip())
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"\n{len(names)} in common, geometric mean of the times {100 * (mean - 1):+.1f} %, {slower} slower; "
          f"only before: {len(before.keys() - after.keys())}, only after: {len(after.keys() - before.keys())}")
    return 1 if options.fail and slower else 0


if __name__ == "__main__":
    sys.exit(main())
