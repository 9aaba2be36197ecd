#!/usr/bin/env python3
"""docs/img/ladder.py: draws the pictures of docs/ladder.md, beside this file.

    docs/img/ladder.py [RESULT.json]     RESULT.json: falchion ladder attention --json, for the bars of ladder_times.svg

Colours: Okabe and Ito's, which every kind of colour blindness tells apart; nothing is said by colour alone.
"""
import json
import math
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
BLUE, ORANGE, GREEN, YELLOW, RED, SKY = "#0072B2", "#E69F00", "#009E73", "#F0E442", "#D55E00", "#56B4E9"
INK, GREY, PALE = "#222", "#777", "#e9e9e9"


class Picture:
    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.parts = width, height, title, []

    def add(self, text):
        self.parts.append(text)

    def rect(self, x, y, w, h, fill, stroke="#fff", more=""):
        self.add(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="{fill}" stroke="{stroke}" {more}/>')

    def text(self, x, y, words, size=13, anchor="start", fill=INK, more=""):
        words = str(words).replace("&", "&amp;").replace("<", "&lt;")
        self.add(f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{fill}" {more}>{words}</text>')

    def arrow(self, x0, y0, x1, y1, colour=INK, width=1.6):
        self.add(f'<path d="M{x0:g} {y0:g}L{x1:g} {y1:g}" stroke="{colour}" stroke-width="{width}" fill="none" '
                 f'marker-end="url(#head)"/>')

    def document(self):
        head = ('<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>')
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" font-family="system-ui,sans-serif" fill="{INK}" role="img">\n'
            f'<title>{self.title}</title>\n{head}\n<rect width="{self.width}" height="{self.height}" fill="#fff"/>\n'
            f'{body}\n</svg>\n')

    def save(self, name):
        (HERE / name).write_text(self.document())


def traffic():
    """Draws step 01 against step 02: what crosses to and from memory."""
    p = Picture(760, 270, "Naive attention writes S to memory three times over; a tiled kernel never does")
    p.text(20, 28, "01 naive: S (2.1 GB) goes through memory between three kernels", 15)
    p.rect(20, 100, 720, 34, PALE)
    p.text(380, 122, "global memory, 4.8 TB/s", 13, "middle", GREY)
    for x, name in ((90, "S = Q Kᵀ"), (320, "softmax"), (550, "O = P V")):
        p.rect(x, 44, 120, 34, SKY)
        p.text(x + 60, 66, name, 14, "middle")
    for x, up, words in ((110, 1, "Q K"), (185, 0, "S"), (345, 1, "S"), (415, 0, "P"), (570, 1, "P V"), (645, 0, "O")):
        p.arrow(x, 100 if up else 78, x, 80 if up else 98)
        p.text(x + 5, 94, words, 12)
    p.text(20, 172, "02 on: a tile of S lives and dies beside the multipliers", 15)
    p.rect(20, 226, 720, 34, PALE)
    p.text(380, 248, "global memory", 13, "middle", GREY)
    p.rect(200, 186, 360, 26, GREEN)
    p.text(380, 204, "S = Q Kᵀ → softmax.update → O += P V", 14, "middle", "#fff")
    for x, up, words in ((230, 1, "Q"), (330, 1, "K V, tile by tile"), (520, 0, "O")):
        p.arrow(x, 226 if up else 212, x, 214 if up else 224)
        p.text(x + 6, 223, words, 11)
    p.save("ladder_traffic.svg")


def loops():
    """Draws step 02 against step 03: the order in which the tiles of S are visited."""
    p = Picture(760, 350, "FlashAttention-1 walks down the columns of S, FlashAttention-2 along its rows")
    n, cell = 6, 36
    colours = [BLUE, ORANGE, GREEN, SKY, RED, YELLOW]
    for left, title in ((70, "02 FlashAttention-1"), (450, "03 FlashAttention-2")):
        first = left == 70
        p.text(left, 26, title, 15)
        p.text(left + n * cell / 2, 52, "keys →", 12, "middle", GREY)
        p.text(left - 12, 70 + n * cell / 2, "queries →", 12, "middle", GREY,
               f'transform="rotate(-90 {left - 12} {70 + n * cell / 2})"')
        for row in range(n):
            for column in range(n):
                p.rect(left + column * cell, 60 + row * cell, cell, cell, colours[0] if first else colours[row], more='fill-opacity=".35"')
        for i in range(n):
            middle = i * cell + cell / 2
            if first:
                p.arrow(left + middle, 66, left + middle, 54 + n * cell)
                p.text(left + middle, 78 + n * cell, i + 1, 12, "middle")
            else:
                p.arrow(left + 6, 60 + middle, left - 6 + n * cell, 60 + middle)
                p.text(left + n * cell + 8, 64 + middle, f"block {i + 1}", 12)
    p.text(70, 318, "One block of threads a head, column after column:", 12)
    p.text(70, 334, "O, l, m of every row pass through memory each time.", 12)
    p.text(450, 318, "A block of threads a row of tiles, all at once:", 12)
    p.text(450, 334, "O, l, m stay in registers until the row is done.", 12)
    p.save("ladder_loops.svg")


def banks():
    """Draws step 04 against step 05: where the 16-byte pieces of eight rows lie in the 32 banks."""
    p = Picture(760, 366, "Row after row, one column of eight rows lies in one set of banks; swizzled, in eight")
    cell = 36
    for left, title, swizzled in ((50, "04: row after row", False), (430, "05: piece c of row r lies at c xor r", True)):
        p.text(left, 26, title, 15)
        for c in range(8):
            p.text(left + c * cell + cell / 2, 52, f"{4 * c}–{4 * c + 3}", 10, "middle", GREY)
        for r in range(8):
            p.text(left - 10, 60 + r * cell + 23, r, 12, "end", GREY)
            for place in range(8):
                piece = place ^ r if swizzled else place
                wanted = piece == 2
                x, y = left + place * cell, 60 + r * cell
                p.rect(x, y, cell, cell, ORANGE if wanted else PALE)
                p.text(x + cell / 2, y + 23, piece, 13, "middle", INK if wanted else GREY,
                       'font-weight="700"' if wanted else "")
    p.text(50, 40, "banks", 10, "start", GREY)
    p.text(430, 40, "banks", 10, "start", GREY)
    p.save("ladder_banks.svg")


def pipeline():
    """Draws step 05 against step 06: who waits for whom."""
    p = Picture(760, 280, "With one tile loads and products alternate; with two they run side by side")
    unit = 62

    def bar(lane, start, length, colour, words, top):
        p.rect(110 + start * unit, top + lane * 34, length * unit, 28, colour)
        p.text(110 + (start + length / 2) * unit, top + lane * 34 + 19, words, 12, "middle", "#fff" if colour == BLUE else INK)

    p.text(20, 28, "05: one tile in shared memory", 15)
    for lane, name in ((0, "memory"), (1, "tensor cores")):
        p.text(20, 61 + lane * 34, name, 12, fill=GREY)
    for i in range(4):
        bar(0, 2.5 * i, 1, ORANGE, f"load {i + 1}", 42)
        bar(1, 2.5 * i + 1, 1.5, BLUE, f"tile {i + 1}", 42)
    p.text(20, 158, "06: two tiles: cp.async brings the next one meanwhile", 15)
    for lane, name in ((0, "memory"), (1, "tensor cores")):
        p.text(20, 191 + lane * 34, name, 12, fill=GREY)
    bar(0, 0, 1, ORANGE, "load 1", 172)
    for i in range(4):
        if i < 3:
            bar(0, 1 + 1.5 * i, 1, ORANGE, f"load {i + 2}", 172)
        bar(1, 1 + 1.5 * i, 1.5, BLUE, f"tile {i + 1}", 172)
    p.arrow(110, 256, 740, 256, GREY)
    p.text(740, 272, "time", 12, "end", GREY)
    p.save("ladder_pipeline.svg")


def turns():
    """Draws steps 07, 08 and 09: what the two consumers do, and when the tensor cores rest. One product alone takes
    0.8."""
    p = Picture(760, 430, "Side by side, in turns, and with the softmax under a running product")
    unit, left = 57, 130

    def bar(x, length, y, colour, words):
        if x >= 11 or length <= 0:
            return
        length = min(length, 11 - x)
        p.rect(left + x * unit, y, length * unit, 20, colour)
        if length > 0.5:
            p.text(left + (x + length / 2) * unit, y + 14, words, 11, "middle", "#fff" if colour == BLUE else INK)

    def consumer(y, number, products, softmax):
        p.text(20, y + 25, f"consumer {number}", 12, fill=GREY)
        for x, length, words in products:
            bar(x, length, y, BLUE, words)
        for x, length in softmax:
            bar(x, length, y + 22, ORANGE, "softmax")

    p.text(20, 28, "07: nothing keeps the two apart", 15)
    for number in (0, 1):
        consumer(42 + 52 * number, number,
                 [(5.2 * i + x, 1.6, words) for i in range(3) for x, words in ((0, "S"), (3.6, "O"))],
                 [(5.2 * i + 1.6, 2) for i in range(3)])
    p.text(20, 168, "08: O of the tile before and S of this one, in turns", 15)
    for number in (0, 1):
        start = [3.6 * i + 1.8 * number for i in range(4)]
        consumer(182 + 52 * number, number, [(x + y, 0.8, words) for x in start for y, words in ((0, "O"), (0.8, "S"))],
                 [(x + 1.6, 2) for x in start])
    p.text(20, 308, "09: S first, softmax under O", 15)
    for number in (0, 1):
        start = [3.2 * i + 1.6 * number for i in range(4)]
        consumer(322 + 52 * number, number, [(x + y, 0.8, words) for x in start for y, words in ((0, "S"), (0.8, "O"))],
                 [(x + 0.8, 2) for x in start])
    p.text(740, 424, "time →", 12, "end", GREY)
    p.save("ladder_turns.svg")


def times(result, name="ladder_times.svg"):
    """Draws bars of the measured times, on a logarithmic scale. The library's own kernels are green."""
    steps = [s for s in result["steps"] if not s["not_built"]]
    p = Picture(760, 80 + 34 * len(steps), f"Time of each step on {result['device']}")
    problem = result["problem"]
    p.text(20, 28, f"{result['device']}, b {problem['b']} h {problem['h_q']} s {problem['s_q']} d {problem['d_qk']}, "
           f"{problem['dtype']}: microseconds, logarithmic", 15)
    low = 10 ** math.floor(math.log10(min(s["seconds"] for s in steps)))
    high = max(s["seconds"] for s in steps)
    scale = 440 / math.log10(high / low)
    decade = low
    while decade <= high:
        x = 140 + scale * math.log10(decade / low)
        p.add(f'<path d="M{x:g} 46V{52 + 34 * len(steps)}" stroke="{PALE}"/>')
        p.text(x, 68 + 34 * len(steps), f"{decade * 1e6:,.0f}", 11, "middle", GREY)
        decade *= 10
    for i, s in enumerate(steps):
        y = 50 + 34 * i
        p.text(130, y + 19, s["step"], 13, "end")
        width = scale * math.log10(s["seconds"] / low)
        p.rect(140, y, width, 28, GREEN if s["file"].startswith("src/") else BLUE)
        gain = f", {steps[i - 1]['seconds'] / s['seconds']:.1f} x" if i else ""
        p.text(148 + width, y + 19, f"{s['seconds'] * 1e6:,.0f}{gain}", 13)
    p.save(name)


def main():
    traffic()
    loops()
    banks()
    pipeline()
    turns()
    if len(sys.argv) > 1:
        times(json.loads(pathlib.Path(sys.argv[1]).read_text()))


if __name__ == "__main__":
    main()
