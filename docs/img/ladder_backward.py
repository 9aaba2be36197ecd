#!/usr/bin/env python3
"""docs/img/ladder_backward.py: draws the pictures of the backward ladder in docs/ladder.md, beside this file.

    docs/img/ladder_backward.py [RESULT.json]     RESULT.json: falchion ladder backward --json, for the bars
"""
import json
import pathlib
import sys

sys.dont_write_bytecode = True  # no folder of compiled files among the pictures
from ladder import BLUE, GREEN, GREY, INK, ORANGE, PALE, RED, SKY, YELLOW, Picture, times


def box(p, x, y, w, h, words, fill, colour=INK, size=14):
    p.rect(x, y, w, h, fill, stroke=INK)
    p.text(x + w / 2, y + h / 2 + 5, words, size, "middle", colour)


def flow():
    """Draws the five products: what each takes, and what is made of it."""
    p = Picture(760, 470, "The five products of the backward pass and what passes between them")
    p.text(20, 26, "Five products (blue). Orange is s × s and never leaves the chip from step 02 on.", 15)
    for x, name in ((60, "Q"), (170, "K"), (400, "dO"), (510, "V"), (640, "O")):
        box(p, x, 46, 60, 30, name, PALE)
    box(p, 70, 116, 150, 32, "1  S = Q Kᵀ", BLUE, "#fff")
    box(p, 410, 116, 150, 32, "2  dP = dO Vᵀ", BLUE, "#fff")
    box(p, 590, 116, 150, 32, "D = Σ dO O, a row", YELLOW, size=13)
    for x0, x1 in ((90, 115), (200, 175), (430, 455), (540, 515)):
        p.arrow(x0, 76, x1, 114)
    p.arrow(452, 76, 620, 114)
    p.arrow(670, 76, 670, 114)
    box(p, 60, 196, 170, 32, "P = exp(scale S − lse)", ORANGE, size=13)
    p.arrow(145, 148, 145, 194)
    p.text(153, 176, "mask.keep", 12, fill=GREY)
    box(p, 400, 196, 170, 32, "dS = P (dP − D)", ORANGE, size=13)
    p.arrow(485, 148, 485, 194)
    p.arrow(645, 148, 545, 194)
    p.arrow(230, 212, 398, 212)
    p.text(314, 204, "P", 12, "middle", GREY)
    box(p, 70, 320, 150, 32, "3  dV += Pᵀ dO", BLUE, "#fff")
    box(p, 320, 320, 150, 32, "4  dK += dSᵀ Q", BLUE, "#fff")
    box(p, 550, 320, 150, 32, "5  dQ += dS K", BLUE, "#fff")
    p.arrow(145, 228, 145, 318)
    p.text(153, 278, "Pᵀ: the sum runs over queries", 12, fill=GREY)
    p.arrow(455, 228, 405, 318)
    p.text(372, 262, "dSᵀ: over queries", 12, "middle", GREY)
    p.arrow(515, 228, 615, 318)
    p.text(590, 278, "dS: over keys", 12, fill=GREY)
    for x, words in ((145, "stays with its keys"), (395, "stays with its keys"), (625, "one part from each block of keys")):
        p.arrow(x, 352, x, 392)
        p.text(x, 410, words, 12, "middle", GREY)
    p.text(20, 450, "1 is computed in the forward pass too, and is done again here: that is cheaper than to store P.", 13)
    p.save("ladder_backward_flow.svg")


def keys_outside():
    """Draws who owns what when the outer loop goes over keys, and where dQ goes."""
    p = Picture(760, 360, "Keys outside: each block keeps dK and dV of its keys, and each adds a part to dQ of every row")
    n, cell, left, top = 6, 38, 110, 70
    colours = [BLUE, ORANGE, GREEN, SKY, RED, YELLOW]
    p.text(20, 26, "A block of threads has a column of tiles, and walks down it", 15)
    p.text(left + n * cell / 2, 50, "keys →", 12, "middle", GREY)
    p.text(left - 16, top + n * cell / 2, "queries →", 12, "middle", GREY,
           f'transform="rotate(-90 {left - 16} {top + n * cell / 2})"')
    for column in range(n):
        x = left + column * cell
        for row in range(n):
            p.rect(x, top + row * cell, cell, cell, colours[column], more='fill-opacity=".35"')
        p.arrow(x + cell / 2, top + 6, x + cell / 2, top + n * cell - 4)
        p.rect(x + 2, top + n * cell + 8, cell - 4, 24, colours[column], more='fill-opacity=".8"')
    p.text(left + n * cell / 2, top + n * cell + 50, "dK, dV: one owner each, in its registers", 12, "middle")
    for row in range(n):
        y = top + row * cell + cell / 2
        p.arrow(left + n * cell + 4, y, left + n * cell + 62, y, RED)
        p.rect(left + n * cell + 66, y - 13, 92, 26, PALE)
        p.text(left + n * cell + 112, y + 5, f"dQ, tile {row + 1}", 12, "middle")
    words = ("dQ of a row has a part from", "every block: it is added to", "sums in f32 in the L2.", "",
             "With queries outside it", "would be the other way", "round: dQ would stay in", "registers, and dK and dV",
             "would go to memory.")
    for i, line in enumerate(words):
        p.text(520, 100 + 18 * i, line, 13)
    p.save("ladder_backward_keys.svg")


def transposed():
    """Draws which products want P and dS as they come, with queries or with keys as rows of the scores."""
    p = Picture(760, 330, "With keys as rows of the scores, P and dS are the first factor of dV and dK where they lie")

    def tile(x, y, w, h, words, fill, colour=INK):
        p.rect(x, y, w, h, fill, stroke=INK)
        p.text(x + w / 2, y + h / 2 + 5, words, 13, "middle", colour)

    for left, title, made, result, through in (
            (30, "03 to 05: S = Q Kᵀ, rows are queries", "P, dS", "Pᵀ, dSᵀ", True),
            (400, "06: Sᵀ = K Qᵀ, rows are keys", "Pᵀ, dSᵀ", "Pᵀ, dSᵀ", False)):
        p.text(left, 26, title, 15)
        tile(left, 60, 130, 70 if not through else 46, made, ORANGE)
        p.text(left, 52, "registers of a warp", 11, fill=GREY)
        if through:
            p.arrow(left + 65, 106, left + 65, 148)
            tile(left, 150, 130, 46, "P and dS", PALE)
            p.text(left + 140, 178, "shared memory", 12, fill=GREY)
            p.arrow(left + 65, 196, left + 65, 238)
            p.text(left + 73, 222, "ldmatrix.trans", 12, fill=GREY)
            p.rect(left, 240, 300, 46, BLUE, stroke=INK)
            p.text(left + 150, 268, "dV += Pᵀ dO,  dK += dSᵀ Q,  dQ = dS K", 13, "middle", "#fff")
        else:
            p.arrow(left + 65, 130, left + 65, 238)
            p.text(left + 73, 190, "as they lie", 12, fill=GREY)
            p.rect(left, 240, 190, 46, BLUE, stroke=INK)
            p.text(left + 95, 268, "dV += Pᵀ dO,  dK += dSᵀ Q", 13, "middle", "#fff")
            p.arrow(left + 130, 95, left + 228, 95)
            p.text(left + 136, 88, "stmatrix.trans", 11, fill=GREY)
            tile(left + 230, 72, 100, 46, "dS", PALE)
            p.text(left + 230, 134, "shared memory", 12, fill=GREY)
            p.arrow(left + 280, 140, left + 280, 238)
            tile(left + 230, 240, 100, 46, "dQ = dS K", BLUE, "#fff")
    p.text(30, 316, "wgmma takes its first factor from registers or shared memory, the second from shared memory alone.", 13)
    p.save("ladder_backward_transposed.svg")


def main():
    flow()
    keys_outside()
    transposed()
    if len(sys.argv) > 1:
        times(json.loads(pathlib.Path(sys.argv[1]).read_text()), "ladder_backward_times.svg")


if __name__ == "__main__":
    main()
