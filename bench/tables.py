#!/usr/bin/env python3
"""bench/tables.py: writes what docs/performance.md and the README say of results of bench/results.

    bench/tables.py [--check]     --check writes nothing, and fails where a table or a figure is not what the results say

In docs/performance.md a table stands between <!-- table NAME --> and <!-- end -->. In the README the figures of the rows
forward, backward and decode are looked for.
"""
import json
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "h200"
RIVALS = {"fa3": "FlashAttention-3", "cudnn": "cuDNN"}
MODES = ("burst", "sustained")
MASKS = ((False, "full"), (True, "causal"))


def rows_of(name, commit="2026-11-27-8e0f7bb"):
    return json.loads((RESULTS / f"{commit}-{name}.json").read_text())["rows"]


def decodes():
    """Each with its time in us: ours, cudnn, fa3."""
    return [r for r in rows_of("decode", "2026-11-28-1856cfb") if r["operation"] == "decode"]


def bytes_of(row):
    """K and V, of head dim 128 in bf16."""
    return 2 * 2 * 128 * row["b"] * row["s"] * row["hk"]


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def ratio(x):
    """Two digits behind the point; three where two would hide on which side of 1 it lies."""
    return f"{x:.2f}" if f"{x:.2f}" != "1.00" else f"{x:.3f}"


def ratios(rows, mode, ours, rival):
    return [r[mode][ours] / r[mode][rival] for r in rows if rival in r[mode]]


def range_of(values, rival=""):
    return f"{ratio(mean(values))}{rival and f' x {rival}'} ({ratio(min(values))} to {ratio(max(values))})"


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + ["| " + " | ".join(r) + " |" for r in rows])


def forward():
    rows = [r for r in rows_of("forward_decode") if r["kind"] == "fwd"]
    lines = []
    for d in (64, 128, 256):
        for causal, mask in MASKS:
            here = [r for r in rows if r["d"] == d and r["causal"] == causal]
            longest = max(here, key=lambda r: r["s"])
            lines.append([f"{d}, {mask}", f"{longest['burst']['ours']:.0f}, {longest['sustained']['ours']:.0f}"] +
                         [", ".join(ratio(mean(ratios(here, mode, "ours", rival))) for mode in MODES) for rival in ("fa3", "cudnn", "fa2")])
    lines.append(["all 36", ""] + ["; ".join(range_of(ratios(rows, mode, "ours", rival)) for mode in MODES)
                                   for rival in ("fa3", "cudnn", "fa2")])
    return table(["head dim, band", "TFLOP/s at s 16384", "over FlashAttention-3", "over cuDNN 9.19", "over FlashAttention-2"], lines)


def backward():
    rows, lines = [r for r in rows_of("backward")], []
    for d in (64, 128, 256):
        for causal, mask in MASKS:
            here = [r for r in rows if r["d"] == d and r["causal"] == causal and r["h"] == r["hk"]]
            longest = max(here, key=lambda r: r["s"])
            lines.append([f"{d}, {mask}", str(len(here)), f"{longest['burst']['ours']:.0f}, {longest['burst']['any_order']:.0f} (s {longest['s']})"] +
                         [", ".join(ratio(mean(ratios(here, "burst", ours, rival))) for ours in ("ours", "any_order"))
                          for rival in ("fa3", "cudnn", "flash")])
    return table(["head dim, band", "shapes", "TFLOP/s: same bits, any order", "over FlashAttention-3", "over cuDNN 9.19",
                  "over FlashAttention-2"], lines)


def decode():
    return table(["sequences, keys, heads", "us", "TB/s", "over cuDNN 9.19", "over FlashAttention-3"],
                 [[f"{r['b']}, {r['s']}, {r['hq']}/{r['hk']}", f"{r['us']['ours']:.2f}", f"{bytes_of(r) / r['us']['ours'] / 1e6:.2f}",
                   *(ratio(r["us"][rival] / r["us"]["ours"]) for rival in ("cudnn", "fa3"))] for r in decodes()])


def small():
    rows = [r for r in rows_of("forward_decode") if r["kind"] == "small"]
    return table(["b, heads, s, d", "Falchion, us", "cuDNN 9.19", "FlashAttention-2", "FlashAttention-3"],
                 [[f"{r['b']}, {r['h']}, {r['s']}, {r['d']}"] + [f"{r[name]:.1f}" for name in ("ours", "cudnn", "fa2", "fa3")] for r in rows])


def groups():
    rows = [r for r in rows_of("forward_decode") if r["kind"] == "gqa"]
    return table(["b, s, heads", "TFLOP/s: burst, sustained", "over FlashAttention-3", "over cuDNN 9.19"],
                 [[f"{r['b']}, {r['s']}, {r['hq']}/{r['hk']}", ", ".join(f"{r[m]['ours']:.0f}" for m in MODES)] +
                  [", ".join(ratio(r[m]["ours"] / r[m][rival]) for m in MODES) for rival in ("fa3", "cudnn")] for r in rows])


def figures():
    """What the first screen of the README says, in bursts."""
    forwards = [r for r in rows_of("forward_decode") if r["kind"] == "fwd"]
    backwards = rows_of("backward")
    over_cudnn = lambda b: [r["us"]["cudnn"] / r["us"]["ours"] for r in decodes() if r["b"] == b]
    one, many = over_cudnn(1), over_cudnn(64)
    of = lambda rows, ours, rival: range_of(ratios(rows, "burst", ours, rival), RIVALS[rival])
    highest = f"{max(r['burst']['ours'] for r in forwards):.0f} TFLOP/s"
    same_bits = [ratio(mean(ratios(backwards, "burst", "ours", rival))) for rival in ("cudnn", "fa3")]
    return {"forward": [of(forwards, "ours", "fa3"), of(forwards, "ours", "cudnn"), highest, f"{len(forwards)} shapes"],
            "backward": [of(backwards, "any_order", "cudnn"), of(backwards, "any_order", "fa3"), *same_bits, f"{len(backwards)} shapes"],
            "decode": [ratio(mean(many)), f"{ratio(min(one))} to {ratio(max(one))}"]}


def main():
    check, bad = sys.argv[1:] == ["--check"], []
    page = ROOT / "docs" / "performance.md"
    old = text = page.read_text()
    for make in (forward, groups, backward, decode, small):
        begin, end = f"<!-- table {make.__name__} -->\n", "\n<!-- end -->"
        if text.count(begin) != 1:
            sys.exit(f"docs/performance.md has no place for the table {make.__name__}")
        before, rest = text.split(begin)
        text = before + begin + make() + end + rest.split(end, 1)[1]
    if not check:
        page.write_text(text)
    elif text != old:
        bad.append("docs/performance.md is not what bench/tables.py writes")
    readme = (ROOT / "README.md").read_text()
    for row, expected in figures().items():
        line = re.search(rf"^\| {row} \|.*$", readme, re.MULTILINE)
        bad += [f"README.md: the row {row} does not say {words}" for words in expected if not line or words not in line[0].replace("**", "")]
    print("\n".join(bad) or "the tables and the README say what the results do")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
