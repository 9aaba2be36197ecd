#!/usr/bin/env python3
"""docs/img/speed.py: draws the chart of the README, the speed of attention's forward pass over the length, beside this file.

    docs/img/speed.py [--check]     --check writes nothing, and fails where speed.svg is not what bench/results says
"""
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from ladder import BLUE, GREEN, GREY, HERE, INK, ORANGE, PALE, RED, Picture

RESULT = HERE.parents[1] / "bench" / "results" / "h200" / "2026-11-27-8e0f7bb-forward_decode.json"
# The name in the result, in the chart, its colour, and its mark: nothing is said by colour alone.
SERIES = (("ours", "Falchion", RED, "disc"), ("fa3", "FlashAttention-3", BLUE, "square"),
          ("cudnn", "cuDNN 9.19", GREEN, "diamond"), ("fa2", "FlashAttention-2", ORANGE, "triangle"))
MOST, HEIGHT, WIDTH, TOP = 900, 250, 300, 70  # TFLOP/s; pixels
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


def mark(p, kind, x, y, fill):
    shapes = {"disc": f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="{fill}"/>',
              "square": f'<path d="M{x - 4:g} {y - 4:g}h8v8h-8z" fill="{fill}"/>',
              "diamond": f'<path d="M{x:g} {y - 5:g}l5 5l-5 5l-5 -5z" fill="{fill}"/>',
              "triangle": f'<path d="M{x:g} {y - 5:g}l5 9h-10z" fill="{fill}"/>'}
    p.add(shapes[kind])


def panel(p, rows, left, causal):
    """Draws one half of the chart: all four at head dim 128."""
    here = {r["s"]: r["burst"] for r in rows if r["kind"] == "fwd" and r["d"] == 128 and r["causal"] == causal}
    across = lambda s: left + WIDTH * math.log2(s / LENGTHS[0]) / math.log2(LENGTHS[-1] / LENGTHS[0])
    up = lambda rate: TOP + HEIGHT * (1 - rate / MOST)
    p.text(left, TOP - 14, "causal" if causal else "every key seen", 14)
    for rate in range(0, MOST + 1, 300):
        p.add(f'<path d="M{left} {up(rate):g}h{WIDTH}" stroke="{PALE}"/>')
        p.text(left - 8, up(rate) + 4, rate, 11, "end", GREY)
    for s in LENGTHS:
        p.text(across(s), TOP + HEIGHT + 18, s, 11, "middle", GREY)
    for name, _, colour, shape in reversed(SERIES):
        points = [(across(s), up(here[s][name])) for s in LENGTHS]
        width = 3 if name == "ours" else 1.8
        p.add(f'<path d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}" stroke="{colour}" stroke-width="{width}" fill="none"/>')
        for x, y in points:
            mark(p, shape, round(x, 1), round(y, 1), colour)
        p.text(left + WIDTH + 9, points[-1][1] + 4, round(here[LENGTHS[-1]][name]), 12, fill=INK)


def chart(result):
    p = Picture(760, 384, f"Speed of attention's forward pass on one {result['device']}, over the length")
    p.text(20, 26, f"Forward, bf16, head dim 128, 16384 tokens of 16 heads, {result['device']}: TFLOP/s over the length s", 15)
    rows = result["rows"]
    panel(p, rows, 50, False)
    panel(p, rows, 420, True)
    for i, (_, words, colour, shape) in enumerate(SERIES):
        mark(p, shape, 56 + 178 * i, TOP + HEIGHT + 44, colour)
        p.text(68 + 178 * i, TOP + HEIGHT + 48, words, 13)
    return p


def main():
    p = chart(json.loads(RESULT.read_text()))
    if sys.argv[1:] != ["--check"]:
        return p.save("speed.svg")
    if (HERE / "speed.svg").read_text() != p.document():
        sys.exit("docs/img/speed.svg is not what docs/img/speed.py draws")


if __name__ == "__main__":
    main()
