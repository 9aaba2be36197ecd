#!/usr/bin/env python3
# cute_cases.py cases.txt cases.cpp: turns the cases of cases.txt into a program that asks CuTe.
import re
import sys

PRELUDE = """// Made by cute_cases.py.
#include <cstdio>
#include <numeric>
#include <vector>
#include <cute/tensor.hpp>
#include <cute/atom/copy_atom.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/pointer_flagged.hpp>
#include <cute/swizzle_layout.hpp>
using namespace cute;

template <class T> void show(T const& value) { print(value); printf("\\n"); }
template <class L> void by_mode(L const& a) {
  if constexpr (rank_v<L> == 1 && is_tuple<remove_cvref_t<decltype(a.shape())>>::value) show(coalesce(a, make_tuple(Int<1>{})));
  else show(coalesce(a, repeat<rank_v<L>>(Int<1>{})));
}
template <class L> void values(L const& a) {
  for (int i = 0; i < int(size(a)); ++i) printf("%d ", int(a(i)));
  printf("\\n");
}
template <class L, class O> void placed(L const& a, O const& offset) { print(a); printf(" @ %d\\n", int(offset)); }
template <class L, class C> void cut(C const& coord, L const& a) {
  auto [layout, offset] = slice_and_offset(coord, a);
  placed(layout, offset);
}
template <class T> void placed(T const& tensor) { placed(tensor.layout(), *tensor.data()); }
template <class L> auto counting(L const& a) { return make_tensor(counting_iterator<int>{0}, a); }
template <class... T> void shows(T const&... values) {
  bool first = true;
  ((first ? void(first = false) : void(printf(" ")), print(values)), ...);
  printf("\\n");
}
template <class Op> void mma_atom() {
  using Traits = MMA_Traits<Op>;
  shows(typename Traits::ALayout{}, typename Traits::BLayout{}, typename Traits::CLayout{});
}
template <class Op, class Atoms, class Tile> void tiled_mma(Atoms const& atoms, Tile const& tile) {
  auto tiled = make_tiled_mma(Op{}, atoms, tile);
  shows(tiled.get_thr_layout_vmnk(), tiled.get_layoutA_TV(), tiled.get_layoutB_TV(), tiled.get_layoutC_TV());
}
template <class Op> void copy_atom() {
  using Traits = Copy_Traits<Op>;
  shows(typename Traits::SrcLayout{}, typename Traits::DstLayout{}, typename Traits::RefLayout{});
}
template <class Op, int Bits, class T, class V> auto make_copy(T const& threads, V const& values) {
  return make_tiled_copy(Copy_Atom<Op, uint_bit_t<Bits>>{}, threads, values);
}
template <class C> void tiled_copy(C const&) { shows(typename C::Tiler_MN{}, typename C::TiledLayout_TV{}); }
template <class L> void iota_tensor(L const& a) {
  std::vector<int> data(cosize(a));
  std::iota(data.begin(), data.end(), 0);
  print_tensor(make_tensor(data.data(), a));
}
"""


class Reader:
    """Reads as much of the grammar of src/layout/parse.cpp as the cases need, and gives C++."""

    def __init__(self, text):
        self.words = re.findall(r"Sw<-?\d+,-?\d+,-?\d+>|smem_ptr\[\d+b\]\(unset\)|_?-?\d+|[_(),:<>oR]", text)
        self.text = text

    def peek(self):
        return self.words[0] if self.words else ""

    def take(self, word=None):
        assert self.words and word in (None, self.words[0]), self.text
        return self.words.pop(0)

    def tuple(self, make):
        if self.peek() != "(":
            word = self.take()
            return "_" if word == "_" else f"Int<{word[1:]}>{{}}" if word[0] == "_" else word
        self.take("(")
        modes = [self.tuple(make)]
        while self.peek() == ",":
            self.take()
            modes.append(self.tuple(make))
        self.take(")")
        return f"{make}({', '.join(modes)})"

    def layout(self):
        shape = self.tuple("make_shape")
        if self.peek() != ":":
            return f"make_layout({shape})"
        self.take()
        if self.peek() == "R":
            self.take()
            return f"make_layout({shape}, LayoutRight{{}})"
        return f"make_layout({shape}, {self.tuple('make_stride')})"

    def composed(self):
        if not self.peek().startswith("Sw"):
            return self.layout()
        swizzle = self.take().replace("Sw", "Swizzle") + "{}"
        self.take("o")
        offset = self.take()
        flag = re.match(r"smem_ptr\[(\d+)b", offset)
        if flag:
            offset = f"smem_ptr_flag_bits<{flag[1]}>{{}}"
        elif offset[0] == "_":
            offset = f"Int<{offset[1:]}>{{}}"
        self.take("o")
        return f"make_composed_layout({swizzle}, {offset}, {self.layout()})"

    def tiler(self):
        if self.peek() != "<":
            if ":" not in self.text:
                return self.tuple("make_shape")
            return self.layout()
        self.take()
        modes = []
        while True:
            shape = self.tuple("make_shape")
            if self.peek() == ":":
                self.take()
                shape = f"make_layout({shape}, {self.tuple('make_stride')})"
            modes.append(shape)
            if self.peek() != ",":
                break
            self.take()
        self.take(">")
        return f"make_tile({', '.join(modes)})"


def arguments(words, kinds):
    return [getattr(Reader(word), kind)(*more) for word, (kind, *more) in zip(words, kinds)]


def op(name):
    """Returns CuTe's type of an atom. Those of wgmma are named MMA_ in a namespace, and take the majors of A and B."""
    if not name.startswith("SM90_64"):
        return name
    majors = "" if name.endswith("_TN") else "GMMA::Major::K, GMMA::Major::K"
    return f"SM90::GMMA::MMA_{name[5:]}<{majors}>"


L, C, T, S = ("layout",), ("composed",), ("tiler",), ("tuple", "make_tuple")
ONE = ["coalesce", "filter_zeros", "flatten", "right_inverse", "left_inverse", "size", "cosize"]
TWO = {f"{kind}_{what}": (L, T) for kind in ("logical", "zipped", "tiled", "flat") for what in ("divide", "product")}
CASES = {
    **{name: ((L,), f"show({name}({{0}}))") for name in ONE},
    **{name: (kinds, f"show({name}({{0}}, {{1}}))") for name, kinds in TWO.items()},
    "print": ((C,), "show({0})"),
    "print_layout": ((C,), "print_layout({0})"),
    "print_tensor": ((C,), "iota_tensor({0})"),
    "values": ((C,), "values({0})"),
    "make_layout": ((S,), "show(make_layout({0}))"),
    "make_layout_right": ((S,), "show(make_layout({0}, LayoutRight{{}}))"),
    "make_ordered_layout": ((S, S), "show(make_ordered_layout({0}, {1}))"),
    "coalesce_by_mode": ((L,), "by_mode({0})"),
    "composition": ((L, L), "show(composition({0}, {1}))"),
    "composition_tiler": ((L, T), "show(composition({0}, {1}))"),
    "complement": ((L, S), "show(complement({0}, {1}))"),
    "blocked_product": ((L, L), "show(blocked_product({0}, {1}))"),
    "raked_product": ((L, L), "show(raked_product({0}, {1}))"),
    "tile_to_shape": ((C, S, S), "show(tile_to_shape({0}, {1}{2}))"),
    "recast": ((C,), "show(recast_layout<uint_bit_t<{1}>, uint_bit_t<{2}>>({0}))"),
    "slice": ((C, S), "cut({1}, {0})"),
    "local_tile": ((C, S, S), "placed(local_tile(counting({0}), {1}, {2}))"),
    "local_partition": ((C, L, S), "placed(local_partition(counting({0}), {1}, {2}))"),
    "mma_atom": ((), "mma_atom<{0}>()"),
    "tiled_mma": ((), "tiled_mma<{0}>(make_layout({1}), make_tile({2}))"),
    "copy_atom": ((), "copy_atom<{0}>()"),
    "tiled_copy": ((), "tiled_copy(make_copy<{0}, {1}>({2}, {3}))"),
    "partition_S": ((), "placed(make_copy<{0}, {1}>({2}, {3}).get_slice({5}).partition_S(counting({4})))"),
    "partition_D": ((), "placed(make_copy<{0}, {1}>({2}, {3}).get_slice({5}).partition_D(counting({4})))"),
    "idx2crd": ((S, S), "show(idx2crd({0}, {1}))"),
    "crd2idx": ((S, S), "show(crd2idx({0}, {1}))"),
}


def main():
    out = [PRELUDE]
    lines = [line.rstrip("\n") for line in open(sys.argv[1]) if line.startswith("# ")]
    for i, line in enumerate(lines):
        name, *words = line[2:].split("\t")
        kinds, template = CASES[name]
        arg = arguments(words, kinds)
        if name == "tile_to_shape":
            arg = arg[:2] + ["".join(f", {order}" for order in arg[2:])]
        if name == "recast":
            arg += words[1:]
        if not kinds:  # In this case the first word names an atom, and its arguments follow.
            arg = [op(words[0])] + words[1:]
            if name == "tiled_mma":
                sizes = re.findall(r"\d+", words[2])
                arg[1:] = [Reader(words[1]).tuple("make_shape"), ", ".join(f"Int<{size}>{{}}" for size in sizes)]
            elif len(words) > 1:
                arg[2:4] = [Reader(word).layout() for word in words[2:4]]
                arg[4:5] = [Reader(word).composed() for word in words[4:5]]
        quoted = line.replace("\\", "\\\\").replace("\t", "\\t").replace('"', '\\"')
        out.append(f'static void case_{i}() {{ puts("{quoted}"); {template.format(*arg)}; }}')
    calls = "".join(f"  case_{i}();\n" for i in range(len(lines)))
    out.append(f"int main() {{\n{calls}}}\n")
    with open(sys.argv[2], "w") as file:
        file.write("\n".join(out))


main()
