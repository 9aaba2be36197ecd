#!/usr/bin/env python3
# make_cases.py COUNT [SEED]: prints random questions to a layout algebra. The same seed gives the same questions.
import random
import sys

EXTENTS = [1, 2, 2, 2, 3, 4, 4, 6, 8, 16]


def text(tuple_, static):
    if isinstance(tuple_, int):
        return ("_" if random.random() < static else "") + str(tuple_)
    return "(" + ",".join(text(mode, static) for mode in tuple_) + ")"


def shape(depth=2, rank=3):
    if depth == 0 or random.random() < 0.5:
        return random.choice(EXTENTS)
    return [shape(depth - 1, rank) for _ in range(random.randint(1, rank))]


def leaves(tuple_):
    return 1 if isinstance(tuple_, int) else sum(map(leaves, tuple_))


def product(tuple_):
    if isinstance(tuple_, int):
        return tuple_
    out = 1
    for mode in tuple_:
        out *= product(mode)
    return out


def flat(tuple_):
    return [tuple_] if isinstance(tuple_, int) else [leaf for mode in tuple_ for leaf in flat(mode)]


def fill(tuple_, values):
    return values.pop(0) if isinstance(tuple_, int) else [fill(mode, values) for mode in tuple_]


def stride(tuple_, gaps):
    """Draws strides that are compact in a random order, with gaps and zeros here and there. Most operations accept such
    layouts."""
    extents = flat(tuple_)
    order = list(range(len(extents)))
    if random.random() < 0.6:
        random.shuffle(order)
    out, current = [0] * len(extents), 1
    for i in order:
        if random.random() < gaps:
            current *= random.choice([2, 2, 3])
        out[i] = 0 if random.random() < gaps / 3 else current
        current *= extents[i]
    return fill(tuple_, out)


def layout(static, gaps=0.15, **how):
    extents = shape(**how)
    while product(extents) > 512:
        extents = shape(**how)
    return text(extents, static) + ":" + text(stride(extents, gaps), static)


def coordinate(tuple_):
    if isinstance(tuple_, int):
        return "_" if random.random() < 0.5 else str(random.randrange(tuple_))
    if random.random() < 0.3:
        return "_" if random.random() < 0.5 else str(random.randrange(product(tuple_)))
    return "(" + ",".join(coordinate(mode) for mode in tuple_) + ")"


def tiler(static, modes):
    return "<" + ",".join(layout(static, depth=1, rank=2) for _ in range(modes)) + ">"


def case(static):
    kind = random.choice(
        ["coalesce", "coalesce_by_mode", "composition", "composition", "composition", "complement", "complement",
         "logical_divide", "divide", "logical_product", "product", "blocked", "inverse", "inverse", "tile_to_shape",
         "ordered", "recast", "slice", "local_tile", "values", "tiler"])
    if kind in ("coalesce", "coalesce_by_mode"):
        return [kind, layout(static)]
    if kind == "composition":
        return [kind, layout(static), layout(static)]
    if kind == "complement":
        return [kind, layout(static, gaps=0.3), text(random.choice([24, 64, 128, 96, [4, 8, 6]]), static)]
    if kind == "logical_divide" or kind == "logical_product":
        return [kind, layout(static), layout(static, depth=1)]
    if kind in ("divide", "product"):
        two = text([shape(1, 2), shape(1, 2)], static).replace("()", "_1")
        return [random.choice(["zipped_", "tiled_", "flat_", "logical_"]) + kind, two + random.choice(["", ":R"]),
                tiler(static, random.randint(1, 2))]
    if kind == "blocked":
        return [random.choice(["blocked_product", "raked_product"]), layout(static, depth=1), layout(static, depth=1)]
    if kind == "inverse":
        return [random.choice(["right_inverse", "left_inverse"]), layout(static if static > 0 else 1, gaps=0.2)]
    if kind == "tile_to_shape":
        a, b = random.choice(EXTENTS), random.choice(EXTENTS)
        big = [a * random.choice([1, 2, 3, 4]), b * random.choice([1, 2, 4])]
        atom = text([a, b], static) + ":" + text(stride([a, b], 0), static)
        out = [kind, atom, text(big, static)]
        return out + ([random.choice(["(_2,_1)", "(_1,_2)"])] if random.random() < 0.5 else [])
    if kind == "ordered":
        extents = [shape(1, 2) for _ in range(3)]
        order = [1, 2, 3]
        random.shuffle(order)
        return ["make_ordered_layout", text(extents, static), text(order, 1)]
    if kind == "recast":
        a, b = random.choice([8, 16, 32]), random.choice([8, 16, 32])
        swizzle = random.choice(["", "Sw<2,3,3> o _0 o "])
        return [kind, swizzle + layout(1, gaps=0), str(a), str(b)]
    if kind == "slice":
        extents = [shape(1, 3), shape(1, 3), shape(1, 2)]
        return [kind, text(extents, static) + ":" + text(stride(extents, 0.1), static),
                "(" + ",".join(coordinate(mode) for mode in extents) + ")"]
    if kind == "local_tile":
        a, b = random.choice(EXTENTS), random.choice(EXTENTS)
        big = [a * random.choice([1, 2, 4]), b * random.choice([1, 2, 3])]
        return [kind, text(big, static) + ":" + text(stride(big, 0), static), text([a, b], 1),
                random.choice(["(0,0)", "(_,0)", "(0,_)", "0"])]
    if kind == "tiler":
        two = text([shape(1, 2), shape(1, 2)], static)
        return ["composition_tiler", two, tiler(static, random.randint(1, 2))]
    return [kind, random.choice(["", "Sw<2,3,3> o _0 o ", "Sw<3,2,-3> o 8 o "]) + layout(static)]


def main():
    random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    for _ in range(int(sys.argv[1])):
        print("# " + "\t".join(case(random.choice([0, 1, 1, 0.5]))))


main()
