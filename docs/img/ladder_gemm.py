#!/usr/bin/env python3
"""docs/img/ladder_gemm.py: draws the pictures of the ladder of matrix products in docs/ladder.md, beside this file.

    docs/img/ladder_gemm.py [RESULT.json]     RESULT.json: falchion ladder gemm --json, for the bars
"""
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from ladder import BLUE, GREEN, GREY, INK, ORANGE, PALE, SKY, YELLOW, Picture


def matrices(p, x, y, rows, columns, depth, tile_rows, tile_columns, tile_depth):
    """Draws A on the left of C and B above it, with one tile of C and what it is made from."""
    p.rect(x, y + depth + 8, depth, rows, PALE, GREY)
    p.rect(x + depth + 8, y, columns, depth, PALE, GREY)
    p.rect(x + depth + 8, y + depth + 8, columns, rows, PALE, GREY)
    p.rect(x, y + depth + 8 + tile_rows, depth, tile_rows, SKY)
    p.rect(x + depth + 8 + tile_columns, y, tile_columns, depth, ORANGE)
    p.rect(x + depth + 8 + tile_columns, y + depth + 8 + tile_rows, tile_columns, tile_rows, GREEN)
    p.rect(x + 2 * tile_depth, y + depth + 8 + tile_rows, tile_depth, tile_rows, BLUE)
    p.rect(x + depth + 8 + tile_columns, y + 2 * tile_depth, tile_columns, tile_depth, YELLOW)


def tiles():
    """Draws the three levels of tiles: of a block, of a warp, of a thread."""
    p = Picture(760, 318, "A tile of C on three levels: a block's, a warp's and a thread's")
    p.text(20, 28, "A tile of C decides how often a number is used once it has been fetched", 15)
    levels = ((20, "a block: 128 x 128", "128 multiplications for each", "number from the L2", 40, 40, 12),
              (270, "a warp: 32 x 64", "96 numbers from shared memory", "for 2048 multiplications", 20, 40, 4),
              (520, "a thread: 8 x 8", "16 numbers in registers", "for 64 multiplications", 16, 16, 4))
    for x, name, first, second, rows, columns, depth in levels:
        matrices(p, x, 50, 130, 130, 70, rows, columns, depth)
        p.text(x, 276, name, 13)
        p.text(x, 292, first, 12, fill=GREY)
        p.text(x, 307, second, 12, fill=GREY)
    p.text(27, 68, "A", 13)
    p.text(108, 68, "B", 13)
    p.text(200, 246, "C", 13)
    p.save("ladder_gemm_tiles.svg")


def waves():
    """Draws 6.06 waves of tiles on 8 workers: whole tiles, and the last two waves cut along k."""
    p = Picture(760, 290, "The last wave of tiles: nearly idle, or cut along k")
    workers, height, width = 8, 12, 62
    for top, name in ((40, "whole tiles: the last wave has one"), (178, "the last two waves laid in a row and cut")):
        p.text(20, top - 10, name, 15)
        for w in range(workers):
            y = top + w * (height + 1)
            if top < 100:
                for t in range(6 + (w == 0)):
                    p.rect(20 + t * width, y, width, height, GREEN)
                continue
            share = 9 / workers  # of 5 + 1.125 waves
            x, at = 20.0, w * share
            while at < (w + 1) * share - 1e-9:
                part = min(math.floor(at + 1e-9) + 1, (w + 1) * share) - at
                begins = abs(at - round(at)) < 1e-9
                p.rect(x, y, part * width, height, GREEN if begins else ORANGE)
                x, at = x + part * width, at + part
            for t in range(5):
                p.rect(x + t * width, y, width, height, GREEN)
    p.arrow(20 + 7 * width, 92, 20 + 6 * width + 8, 92, GREY)
    p.text(28 + 7 * width, 96, "idle", 12, fill=GREY)
    p.text(40 + 6.3 * width, 230, "orange: parts that do not begin their tile.", 12, fill=GREY)
    p.text(40 + 6.3 * width, 246, "Their sums go through memory.", 12, fill=GREY)
    p.save("ladder_gemm_waves.svg")


def shares():
    """Draws the three ways to share k, and where the sums of the parts meet."""
    p = Picture(760, 250, "Three ways to share k: warps of a block, blocks of a cluster, blocks all over the device")
    ways = ((20, "sliced-K", "the 8 warps of a block take turns", "shared memory of the block", YELLOW, 8, 4),
            (270, "split-K in a cluster", "4 blocks of a cluster", "shared memory of all four", YELLOW, 4, 1),
            (520, "split-K through memory", "64 blocks, wherever they are", "memory, and a second kernel", PALE, 16, 1))
    colours = (BLUE, ORANGE, GREEN, SKY)
    for x, name, who, where, fill, parts, turns in ways:
        p.text(x, 28, name, 15)
        p.text(x, 46, who, 12, fill=GREY)
        for i in range(parts * turns):
            width = 220 / (parts * turns)
            p.rect(x + i * width, 56, width, 26, colours[i % parts % 4])
        p.text(x, 98, "k", 13)
        for i in range(parts):
            width = 220 / parts
            p.rect(x + i * width + 1, 128, width - 2, 26, colours[i % 4])
            p.arrow(x + (i + 0.5) * width, 156, x + (i + 0.5) * width, 184, GREY, 1)
        p.text(x, 122, "the sums of a tile, once for each", 12, fill=GREY)
        p.rect(x, 188, 220, 26, fill)
        p.text(x + 110, 205, where, 12, "middle")
        p.text(x, 232, "added up in a fixed order", 12, fill=GREY)
    p.save("ladder_gemm_shares.svg")


def times(result):
    """Draws bars of the measured rates, with the share of the rival."""
    steps = [s for s in result["steps"] if not s["not_built"]]
    p = Picture(760, 80 + 30 * len(steps), f"Rate of each step on {result['device']}")
    problem = result["problem"]
    p.text(20, 28, f"{result['device']}, {problem['m']} x {problem['n']} x {problem['k']}: TFLOP/s, logarithmic, and the "
           f"share of {result.get('rival', '')}", 15)
    low, high = 0.1, max(s["flops_per_second"] for s in steps) / 1e12
    scale = 440 / math.log10(high / low)
    for decade in (0.1, 1, 10, 100):
        x = 140 + scale * math.log10(decade / low)
        p.add(f'<path d="M{x:g} 46V{52 + 30 * len(steps)}" stroke="{PALE}"/>')
        p.text(x, 68 + 30 * len(steps), f"{decade:g}", 11, "middle", GREY)
    for i, s in enumerate(steps):
        y, rate = 50 + 30 * i, s["flops_per_second"] / 1e12
        p.text(130, y + 17, s["step"], 13, "end")
        width = scale * math.log10(rate / low)
        fill = GREEN if s["step"].startswith("library") else SKY if s["title"].endswith("f32") else BLUE
        p.rect(140, y, width, 24, fill)
        share = f", {100 * s['of_rival']:.0f} %" if "of_rival" in s else ""
        p.text(148 + width, y + 17, f"{rate:.3g}{share}", 13, fill=INK)
    p.save("ladder_gemm_times.svg")


def main():
    tiles()
    waves()
    shares()
    if len(sys.argv) > 1:
        times(json.loads(pathlib.Path(sys.argv[1]).read_text()))


if __name__ == "__main__":
    main()
