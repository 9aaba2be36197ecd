#!/usr/bin/env python3
"""Prints what changed between two result files: of `falchion bench --json FILE`, compare_torch.py, compare_torch_cpu.py,
compare_gemm.py or device.sh (whose tests and checks are compared too).

    bench/compare.py before.json after.json [--match TEXT] [--threshold 3] [--fail]

Times are medians. A change counts as faster or slower when it is above the threshold (percent) and above the spread of
both files; with --fail any slower line makes the exit code 1.
"""
import argparse
import json
import math
import sys


def load(path):
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(f"{path}: {error}")


def parts(data):
    """Returns the results in a file. A file of device.sh holds several."""
    return [part for part in (data.get("sections") or {}).values() if part] if "sections" in data else [data]


def medians(path):
    """Returns run name -> (median ms, spread in percent, flop/s or bytes/s), cell -> ratio to the fastest rival, and
    all results."""
    data = load(path)
    scale = {"s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
    out, ratios = {}, {}
    for part in parts(data):
        for row in part.get("benchmarks", []):
            if row.get("run_type") == "aggregate" and row.get("aggregate_name") == "median":
                ms = row["real_time"] * scale[row.get("time_unit", "ns")]
                spread = 100 * row["spread"] if "spread" in row else 100 * row.get("stddev_ms", 0.0) / ms
                out[row["run_name"]] = (ms, spread, row.get("flops", row.get("bytes_per_second", 0.0)))
        for row in part.get("rows", []):  # These are the rows of compare_torch.py and its like.
            for who, ms in row["ms"].items():
                name = f"{who}/{row['section']}/{row['name']}"
                out[name] = (ms, 100 * row["spread"][who], row["rate"][who] * 1e12)
            for who, ms in row.get("both_ms", {}).items():  # Both passes together have 1.4 times the backward flop.
                out[f"{who}/{row['section']}+forward/{row['name']}"] = (ms, 0.0, 1.4 * row["work"] / ms * 1e3)
            if row.get("ratio"):
                ratios[f"{row['section']}/{row['name']}"] = row["ratio"]
    if not out and not data.get("tests"):
        sys.exit(f"{path}: no median in it; give the JSON of `falchion bench --json FILE`")
    return out, ratios, data


def compare_outcomes(before, after):
    """Prints the tests and checks of device.sh that ended in another way than before. Returns how many got worse."""
    worse = 0
    for kind, key in (("tests", lambda t: t["name"]), ("sanitizer", lambda c: f"{c['tool']} {c['name']}")):
        old = {key(x): x["outcome"] for x in before.get(kind, [])}
        new = {key(x): x["outcome"] for x in after.get(kind, [])}
        for name in sorted(new):
            if name in old and old[name] != new[name]:
                worse += new[name] in ("failed", "FAILED")
                print(f"{name}: {old[name]} -> {new[name]}")
    return worse


def compare_ratios(before, after):
    """Compares ratios to the fastest rival of the same run, which do not depend on how fast the machine was that
    day."""
    names = [n for n in before if n in after]
    if not names:
        return
    width = max(map(len, names))
    print(f"\n{'ratio to the fastest rival':<{width}}  {'before':>8}  {'after':>8}  {'change':>8}")
    for name in names:
        print(f"{name:<{width}}  {before[name]:>8.3f}  {after[name]:>8.3f}  {100 * (after[name] / before[name] - 1):>+7.1f}%")
    mean = lambda x: math.exp(sum(math.log(x[n]) for n in names) / len(names))
    print(f"{'geometric mean':<{width}}  {mean(before):>8.3f}  {mean(after):>8.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--match", default="", help="only names with this in them")
    parser.add_argument("--threshold", type=float, default=3.0, help="percent")
    parser.add_argument("--fail", action="store_true", help="exit code 1 when something got slower")
    options = parser.parse_args()
    before, ratios_before, all_before = medians(options.before)
    after, ratios_after, all_after = medians(options.after)
    for label, data in (("before", all_before), ("after", all_after)):
        print(f"{label:<7}{data.get('date', '?')}  {data.get('device', '?')}  commit {data.get('commit') or '?'}")
    if all_before.get("device") != all_after.get("device"):
        print("NOTE: two different devices: the deltas compare machines, not code")
    failed = compare_outcomes(all_before, all_after)
    names = [n for n in before if n in after and options.match in n]
    if not names and not before and not after:
        return 1 if options.fail and failed else 0
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
    matching = lambda ratios: {n: r for n, r in ratios.items() if options.match in n}
    compare_ratios(matching(ratios_before), matching(ratios_after))
    return 1 if options.fail and (slower or failed) else 0


if __name__ == "__main__":
    sys.exit(main())
