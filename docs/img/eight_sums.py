#!/usr/bin/env python3
"""docs/img/eight_sums.py: draws eight_sums.svg beside this file: what long sums of 8-bit products lose on Hopper.

It needs numpy and no GPU. The tensor core is a model of what was measured (docs/design/sm90_fp8.md): of 32 products and the
sum so far, each is cut off, towards 0, below 2^-13 of the largest power of two in any of them, and then they are added. Scores are all the
same, so P is 256; V is normal with mean 1, rounded to e4m3. The figures are printed too.
"""
import numpy as np

from ladder import BLUE, GREEN, GREY, INK, ORANGE, PALE, RED, Picture

KEYS = [2**n for n in range(10, 18)]
P, COLUMNS = 256., 64
SUMS = {128: BLUE, 512: GREEN, 1024: ORANGE, None: RED}  # keys of a sum; None: all


def e4m3(x):
    unit = 2. ** (np.maximum(np.floor(np.log2(np.maximum(np.abs(x), 2.**-9))), -6) - 3)
    return np.round(x / unit) * unit


def multiply(total, products):
    """total + the 32 products, as the tensor core has it."""
    largest = np.maximum(np.abs(products).max(0), np.abs(total))
    unit = 2. ** (np.floor(np.log2(np.maximum(largest, 2.**-100))) - 13)
    return (np.trunc(products / unit).sum(0) + np.trunc(total / unit)) * unit


def shares(v, keys_of_sum):
    """O over the exact O after each of KEYS."""
    o, total, out = np.zeros(COLUMNS), np.zeros(COLUMNS), []
    for key in range(0, len(v), 32):
        total = multiply(total, P * v[key:key + 32])
        done = key + 32
        if keys_of_sum and done % keys_of_sum == 0:
            o, total = np.float32(o + total), np.zeros(COLUMNS)
        if done in KEYS:
            out.append((o + total).sum() / (P * v[:done].sum()))
    return out


def main():
    v = e4m3(np.random.default_rng(0).standard_normal((KEYS[-1], COLUMNS)) + 1)
    p = Picture(760, 400, "What O loses where the products of P and V of 8 bits are summed over many keys")
    left, top, width, height = 80, 50, 520, 280
    x_of = lambda keys: left + width * np.log2(keys / KEYS[0]) / np.log2(KEYS[-1] / KEYS[0])
    y_of = lambda lost: top + height * (0 - np.log10(np.clip(lost, 1e-4, 1))) / 4
    p.text(20, 28, "Equal scores, V of mean 1: how much of O is lost", 15)
    for power in range(0, 5):
        y = top + height * power / 4
        p.rect(left, y, width, 1, PALE, "none")
        p.text(left - 8, y + 4, f"{100 * 10.**-power:g} %", 12, "end", GREY)
    for keys in KEYS:
        p.text(x_of(keys), top + height + 20, f"{keys >> 10}k", 12, "middle", GREY)
    p.text(left + width / 2, top + height + 44, "keys", 13, "middle")
    for keys_of_sum, colour in SUMS.items():
        found = shares(v, keys_of_sum)
        name = f"{keys_of_sum} keys" if keys_of_sum else "all keys"
        print(f"{name:<10}" + " ".join(f"{share:.5f}" for share in found))
        points = [(x_of(k), y_of(abs(1 - share))) for k, share in zip(KEYS, found)]
        p.add(f'<path d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}" stroke="{colour}" stroke-width="2.5" fill="none"/>')
        p.text(left + width + 8, points[-1][1] + 4, f"a sum of {name}", 13, fill=INK)
    p.save("eight_sums.svg")


if __name__ == "__main__":
    main()
