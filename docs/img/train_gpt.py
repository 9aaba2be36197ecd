#!/usr/bin/env python3
"""docs/img/train_gpt.py: draws train_gpt.svg, beside this file, from the losses of examples/train_gpt.

    docs/img/train_gpt.py RESULT.json                                  draws what was measured
    docs/img/train_gpt.py RESULT.json --run build/cpu/train_gpt        trains first, which takes some ten minutes

It trains three times: with the CPU's kernels of attention, with attention's definition in double, and with the definition
once more, but one of the weights begins one unit in its last place away. The last shows how far rounding alone carries.
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

BLUE, ORANGE = "#0072B2", "#E69F00"  # Okabe and Ito's, as in ladder.py
INK, GREY, PALE = "#222", "#777", "#e9e9e9"
RUNS = {"cpu": ["--backend", "cpu"], "ref": ["--backend", "ref"], "ref_nudged": ["--backend", "ref", "--nudge"]}
LEFT, WIDTH = 70, 660  # of both plots


def device():
    lines = (line for line in open("/proc/cpuinfo") if line.startswith("model name"))
    return next(lines, "unknown: unknown").split(":", 1)[1].strip()


def train(program, result):
    curves, build = {}, ""
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in RUNS.items():
            file = pathlib.Path(folder) / f"{name}.json"
            subprocess.run([program, *arguments, "--json", file], check=True)
            curves[name] = json.loads(file.read_text())
            build = curves[name].pop("build_info")
    result_file.write(result, {**result_file.facts(device(), result_file.cpu_driver(build)), "context": {"build_info": build},
                               "results": [{"name": name, **curve} for name, curve in curves.items()]})


def line(xs, ys, colour, width):
    points = " ".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"/>'


def text(x, y, words, size=13, anchor="start", fill=INK):
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{words}</text>'


def draw(result):
    losses = {row["name"]: row["losses"] for row in result["results"]}
    steps = len(losses["ref"])
    xs = [LEFT + WIDTH * step / (steps - 1) for step in range(steps)]
    parts = [text(LEFT - 50, 28, "The loss of a small GPT, nats a byte: two curves, one upon the other", 15)]

    top, height, highest = 44, 210, math.ceil(max(losses["ref"]))
    at = lambda loss: top + height * (1 - loss / highest)
    for loss in range(highest + 1):
        parts += [f'<path d="M{LEFT} {at(loss):g}H{LEFT + WIDTH}" stroke="{PALE}"/>', text(LEFT - 8, at(loss) + 4, loss, 11, "end", GREY)]
    parts += [line(xs, map(at, losses["cpu"]), ORANGE, 5), line(xs, map(at, losses["ref"]), INK, 1.2)]
    parts += [f'<path d="M470 66H500" stroke="{ORANGE}" stroke-width="5"/>', text(508, 70, "attention by the CPU's kernels"),
              f'<path d="M470 88H500" stroke="{INK}" stroke-width="1.2"/>', text(508, 92, "by the definition in double")]

    parts.append(text(LEFT - 50, 296, "How far two curves are apart, on a logarithmic scale", 15))
    top = 312
    apart = {name: [abs(a - b) for a, b in zip(losses[name], losses["ref"])] for name in ("cpu", "ref_nudged")}
    low, high = -9, math.ceil(math.log10(max(map(max, apart.values()))))
    at = lambda difference: top + height * (1 - (math.log10(max(difference, 10 ** low)) - low) / (high - low))
    for power in range(low, high + 1):
        label = f'10<tspan dy="-5" font-size="8">{power}</tspan>'
        parts += [f'<path d="M{LEFT} {at(10 ** power):g}H{LEFT + WIDTH}" stroke="{PALE}"/>', text(LEFT - 8, at(10 ** power) + 4, label, 11, "end", GREY)]
    parts += [line(xs, map(at, apart["ref_nudged"]), BLUE, 1.2), line(xs, map(at, apart["cpu"]), ORANGE, 1.8)]
    parts += [f'<path d="M300 478H330" stroke="{ORANGE}" stroke-width="1.8"/>', text(338, 482, "kernels and definition"),
              f'<path d="M300 500H330" stroke="{BLUE}" stroke-width="1.2"/>',
              text(338, 504, "definition, and definition with one weight changed by one unit")]
    for step in range(0, steps + 1, max(1, steps // 6)):
        parts.append(text(LEFT + WIDTH * step / (steps - 1), top + height + 18, step, 11, "middle", GREY))
    parts.append(text(LEFT + WIDTH, top + height + 34, "steps", 11, "end", GREY))
    body = "\n".join(parts)
    (HERE / "train_gpt.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 566" width="760" height="566" '
        f'font-family="system-ui,sans-serif" fill="{INK}" role="img">\n'
        f"<title>The loss of a GPT with Falchion's kernels and with attention's definition, and their difference</title>\n"
        f'<rect width="760" height="566" fill="#fff"/>\n{body}\n</svg>\n')


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
