#!/usr/bin/env python3
# pycute_test.py EVALUATE [FOLDER]: checks that 10,000 random layouts, and what operations make of them, equal pycute's,
# offset by offset. FOLDER is a place where pycute may be, besides Python's own path. It exits with 77 (skipped) where
# pycute is not found.
import ast
import random
import subprocess
import sys

sys.path += sys.argv[2:]
try:
    import pycute
except ImportError:
    print("pycute is missing: pip install --no-deps nvidia-cutlass==4.2.0.0")
    sys.exit(77)

COUNT, SEED, MOST_OFFSETS = 10000, 20250117, 96
EXTENTS = [1, 2, 2, 3, 4, 4, 5, 6, 8]


def random_shape(depth):
    if depth == 0 or random.random() < 0.4:
        return random.choice(EXTENTS)
    return tuple(random_shape(depth - 1) for _ in range(random.randint(1, 3)))


def random_stride(shape):
    """Draws a layout that is compact in a random order, with some gaps, some zeros and some unrelated strides."""
    extents = pycute.flatten(shape)
    order = list(range(len(extents)))
    random.shuffle(order)
    strides, current = [0] * len(extents), 1
    for i in order:
        current *= random.choice([1, 1, 1, 1, 2, 3])
        strides[i] = current if random.random() < 0.9 else random.choice([0, 1, 7])
        current *= extents[i]

    def like(tree):
        return strides.pop(0) if isinstance(tree, int) else tuple(like(mode) for mode in tree)

    return like(shape)


def random_layout(depth):
    while True:
        shape = random_shape(depth)
        if pycute.product(shape) <= MOST_OFFSETS:
            return pycute.Layout(shape, random_stride(shape))


def text(tree):
    return f"_{tree}" if isinstance(tree, int) else "(" + ",".join(map(text, tree)) + ")"


def layout_text(layout):
    return text(layout.shape) + ":" + text(layout.stride)


def offsets(layout):
    """Evaluates a layout from its modes alone, without pycute's evaluation and without ours."""
    out = [0]
    for extent, stride in zip(pycute.flatten(layout.shape), pycute.flatten(layout.stride)):
        out = [offset + i * stride for i in range(extent) for offset in out]
    return out


def read(printed):
    shape, stride = (ast.literal_eval(part.replace("_", "")) for part in printed.split(":"))
    return pycute.Layout(shape, stride)


def inside(a):
    """Returns a layout whose offsets are coordinates of a. Beyond these CuTe goes on with the last mode, even if its
    extent is 1."""
    while True:
        b = random_layout(1)
        if pycute.cosize(b) <= a.size():
            return b


def undone(a, inverse):
    """All that both promise of a left inverse is that on the offsets of a it leads back to them."""
    return [a(inverse(a(i))) for i in range(a.size())]


# Each question has an operation, its arguments behind the layout, and a function that asks pycute.
def questions(a):
    b, small = inside(a), random_layout(1)
    target = random.choice([24, 64, 96, 210])
    out = [
        ("coalesce", [], lambda: pycute.coalesce(a)),
        ("composition", [layout_text(b)], lambda: pycute.composition(a, b)),
        ("complement", [f"_{target}"], lambda: pycute.complement(a, target)),
        ("logical_divide", [layout_text(b)], lambda: pycute.logical_divide(a, b)),
        ("logical_product", [layout_text(small)], lambda: pycute.logical_product(a, small)),
    ]
    if len(set(offsets(a))) == a.size():  # Of other layouts pycute and CuTe have different inverses.
        out.append(("right_inverse", [], lambda: pycute.right_inverse(a)))
        out.append(("left_inverse", [], lambda: pycute.left_inverse(a)))
    return out


def main():
    random.seed(SEED)
    lines, layouts, expected = [], [], []
    for _ in range(COUNT):
        a = random_layout(2)
        layouts += [a, a]
        lines.append(f"# values\t{layout_text(a)}")
        expected.append([a(i) for i in range(a.size())])
        name, more, ask = random.choice(questions(a))
        lines.append("\t".join([f"# {name}", layout_text(a), *more]))
        try:
            answer = ask()
            if name != "left_inverse":
                expected.append(offsets(answer))
            else:  # pycute's answer is wrong where its complement overlaps, so it counts as refused
                expected.append(offsets(a) if undone(a, answer) == offsets(a) else None)
        except (AssertionError, ZeroDivisionError, IndexError):
            expected.append(None)
    answers = subprocess.run([sys.argv[1]], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    answers = answers.stdout.splitlines()[1::2]
    assert len(answers) == len(lines), f"{len(answers)} answers to {len(lines)} questions"
    agreed, refused, failed = {}, {}, 0
    for line, a, want, answer in zip(lines, layouts, expected, answers):
        name = line[2:].split("\t")[0]
        if want is None or answer.startswith("error"):
            who = "both" if want is None and answer.startswith("error") else "pycute" if want is None else "ours"
            refused[name, who] = refused.get((name, who), 0) + 1
            continue
        if name == "values":
            got = [int(word) for word in answer.split()]
        else:
            got = undone(a, read(answer)) if name == "left_inverse" else offsets(read(answer))
        if got == want:
            agreed[name] = agreed.get(name, 0) + 1
        else:
            failed += 1
            if failed <= 20:
                print(f"{line}\n  ours   {answer}\n  offsets {got}\n  pycute  {want}")
    print(f"{sum(agreed.values())} agree:", agreed)
    print(f"{sum(refused.values())} refused:", refused)
    if failed or agreed.get("values", 0) != COUNT or len(agreed) < 8 or min(agreed.values()) < COUNT // 20:
        print(f"{failed} differ")
        sys.exit(1)


main()
