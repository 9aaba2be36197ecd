#!/usr/bin/env python3
"""docs/img/train_gpt.py: draws train_gpt.svg, beside this file, from the losses of examples/train_gpt.

    docs/img/train_gpt.py RESULT.json                                  draws what was measured
    docs/img/train_gpt.py RESULT.json --run build/cpu/train_gpt        trains first, which takes some ten minutes

It trains four times: with attention's definition in double, with the CPU's kernels of attention in f32 and in bf16, and
with those in f32 once more, but one of the weights begins one unit in its last place away. The last shows how far one
rounding carries by itself.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "bench"))
import result_file

BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"  # Okabe and Ito's, as in ladder.py
INK, GREY, PALE = "#222", "#777", "#e9e9e9"
# What is run, and with which run its losses are compared.
RUNS = {"ref": (["--backend", "ref"], None), "cpu": ([], "ref"), "cpu_bf16": (["--dtype", "bf16"], "ref"), "cpu_nudged": (["--nudge"], "cpu")}
LEFT, WIDTH = 70, 660  # of both plots


def device():
    lines = (line for line in open("/proc/cpuinfo") if line.startswith("model name"))
    return next(lines, "unknown: unknown").split(":", 1)[1].strip()


def train(program, result):
    curves = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (arguments, _) in RUNS.items():
            file = pathlib.Path(folder) / f"{name}.json"
            subprocess.run([program, *arguments, "--json", file], check=True)
            curves[name] = json.loads(file.read_text())
    write(result, curves)


def write(result, curves):
    """Writes the losses of the definition, and how far the others are from what they are compared with: a file keeps
    seven digits of a number, which would not tell two losses apart."""
    build, rows = curves["ref"]["build_info"], []
    for name, (_, other) in RUNS.items():
        row = {"name": name, "plans": curves[name]["plans"]}
        if other is None:
            row["losses"] = curves[name]["losses"]
        else:
            row["minus"] = other
            row["difference"] = [a - b for a, b in zip(curves[name]["losses"], curves[other]["losses"])]
        rows.append(row)
    context = {"weights": curves["ref"]["weights"], "build_info": build}
    result_file.write(result, {**result_file.facts(device(), result_file.cpu_driver(build)), "context": context, "results": rows})


def line(xs, ys, colour, width):
    points = " ".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"/>'


def text(x, y, words, size=13, anchor="start", fill=INK):
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{words}</text>'


def draw(result):
    rows = {row["name"]: row for row in result["results"]}
    exact, apart = rows["ref"]["losses"], {name: row["difference"] for name, row in rows.items() if name != "ref"}
    steps = len(exact)
    xs = [LEFT + WIDTH * step / (steps - 1) for step in range(steps)]
    parts = [text(LEFT - 50, 28, "The loss of a small GPT, nats a byte: two curves, one upon the other", 15)]

    top, height, highest = 44, 210, math.ceil(max(exact))
    at = lambda loss: top + height * (1 - loss / highest)
    for loss in range(highest + 1):
        parts += [f'<path d="M{LEFT} {at(loss):g}H{LEFT + WIDTH}" stroke="{PALE}"/>', text(LEFT - 8, at(loss) + 4, loss, 11, "end", GREY)]
    parts += [line(xs, [at(a + b) for a, b in zip(exact, apart["cpu"])], ORANGE, 5), line(xs, map(at, exact), INK, 1.2)]
    parts += [f'<path d="M470 66H500" stroke="{ORANGE}" stroke-width="5"/>', text(508, 70, "attention by the CPU's kernels, f32"),
              f'<path d="M470 88H500" stroke="{INK}" stroke-width="1.2"/>', text(508, 92, "by the definition in double")]

    parts.append(text(LEFT - 50, 296, "How far two curves are apart, on a logarithmic scale", 15))
    top = 312
    low, high = -9, math.ceil(math.log10(max(abs(x) for curve in apart.values() for x in curve)))
    at = lambda x: top + height * (1 - (math.log10(max(abs(x), 10 ** low)) - low) / (high - low))
    for power in range(low, high + 1):
        label = "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        parts += [f'<path d="M{LEFT} {at(10 ** power):g}H{LEFT + WIDTH}" stroke="{PALE}"/>', text(LEFT - 8, at(10 ** power) + 4, label, 11, "end", GREY)]
    shown = (("cpu_bf16", GREEN, 1.2, "kernels in bf16, and definition"), ("cpu", ORANGE, 1.8, "kernels in f32, and definition"),
             ("cpu_nudged", BLUE, 1.2, "kernels in f32 with one weight one unit away, and without"))
    for n, (name, colour, width, words) in enumerate(shown):
        y = top + height + 42 + 20 * n
        parts += [line(xs, map(at, apart[name]), colour, width), text(LEFT + 38, y + 4, words),
                  f'<path d="M{LEFT} {y}h30" stroke="{colour}" stroke-width="{width}"/>']
    for step in range(0, steps + 1, max(1, steps // 6)):
        parts.append(text(LEFT + WIDTH * step / (steps - 1), top + height + 18, step, 11, "middle", GREY))
    parts.append(text(LEFT + WIDTH, top + height + 36, "steps", 11, "end", GREY))
    body = "\n".join(parts)
    (HERE / "train_gpt.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 614" width="760" height="614" '
        f'font-family="system-ui,sans-serif" fill="{INK}" role="img">\n'
        f"<title>The loss of a GPT with Falchion's kernels and with attention's definition, and their difference</title>\n"
        f'<rect width="760" height="614" fill="#fff"/>\n{body}\n</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("--run", help="the program train_gpt")
    options = parser.parse_args()
    if options.run:
        train(options.run, options.result)
    draw(json.loads(options.result.read_text()))


if __name__ == "__main__":
    main()
