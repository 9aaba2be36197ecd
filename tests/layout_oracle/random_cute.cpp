// tests/layout_oracle/random_cute.cpp: asks CuTe itself about random layouts. A static layout is a type, and ten
// thousand types would take hours to compile. So only the nestings are types here, and each `D` in them is an integer
// that is drawn when the program runs. The lines are those of cases.txt with CuTe's answer behind each. One compiler
// gives the same lines every time.
#include <cstdio>
#include <cute/tensor.hpp>
#include <random>
#include <type_traits>
#include <vector>

using namespace cute;

namespace {

using D = int;

// The numbers of this generator are the same on every machine. What a std:: distribution makes of them is not.
std::mt19937 bits(20251121);
int below(int n) { return static_cast<int>(bits() % static_cast<unsigned>(n)); }
bool chance(int percent) { return below(100) < percent; }

template <class T, class F>
void each_leaf(T&& tree, F const& f) {
  if constexpr (is_tuple<std::remove_cv_t<std::remove_reference_t<T>>>::value) {
    for_each(make_seq<tuple_size<std::remove_cv_t<std::remove_reference_t<T>>>::value>{},
             [&](auto i) { each_leaf(get<decltype(i)::value>(tree), f); });
  } else {
    f(tree);
  }
}

/// Draws strides that are compact in a random order, with gaps. Now and then a stride is 0, is negative, or is
/// unrelated to the others.
std::vector<int> draw_strides(std::vector<int> const& extents) {
  std::vector<int> strides(extents.size(), 0), left;
  for (std::size_t i = 0; i < extents.size(); ++i) left.push_back(static_cast<int>(i));
  for (int current = 1; !left.empty();) {
    int const at = chance(50) ? 0 : below(static_cast<int>(left.size()));
    auto const i = static_cast<std::size_t>(left[static_cast<std::size_t>(at)]);
    left.erase(left.begin() + at);
    if (chance(20)) current *= 1 + below(4);
    strides[i] = chance(90) ? current : chance(50) ? 0 : below(40) - 8;
    current *= extents[i];
  }
  return strides;
}

constexpr int kMostOffsets = 192;

template <class L>
constexpr bool kIsMatrix = rank_v<L> == 2;
template <class L>
constexpr bool kHasModes = (rank_v<L>) > 1;
template <class L>
constexpr bool kHasStaticStrides = is_static<decltype(L{}.stride())>::value;

template <class Shape, class Stride>
auto draw(Shape shape, Stride stride) {
  std::vector<int> extents;
  int product = 0;
  do {
    extents.clear();
    product = 1;
    each_leaf(shape, [&](auto& extent) {
      if constexpr (std::is_same_v<std::remove_reference_t<decltype(extent)>, D>)
        extent = rank_v<Shape> == 1 && depth_v<Shape> < 2 ? 1 + below(kMostOffsets) : 1 + below(8);
      extents.push_back(static_cast<int>(extent));
      product *= static_cast<int>(extent);
    });
  } while (product > kMostOffsets);
  auto const strides = draw_strides(extents);
  std::size_t at = 0;
  each_leaf(stride, [&](auto& step) {
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(step)>, D>) step = strides[at];
    ++at;
  });
  return make_layout(shape, stride);
}

/// Whether all strides are positive, because only such layouts have a complement. A static stride is allowed to be 0,
/// because complement() filters it out.
template <class L>
bool goes_forwards(L const& a) {
  bool all = true;
  each_leaf(a.stride(), [&](auto const& step) { all = all && (is_static<decltype(step)>::value || int(step) > 0); });
  return all;
}

// ---- Lines ----------------------------------------------------------------------------------------------------------

void show(char const* text) { fputs(text, stdout); }
template <class T>
void show(T const& value) {
  print(value);
}
/// To CuTe a tiler <A,B> is a tuple of layouts, and CuTe does not print the angle brackets.
template <class A, class B>
struct Tile2 {
  A a;
  B b;
};
template <class A, class B>
void show(Tile2<A, B> const& tile) {
  printf("<");
  print(tile.a);
  printf(",");
  print(tile.b);
  printf(">");
}

template <class... Arguments>
void ask(char const* operation, Arguments const&... arguments) {
  printf("# %s", operation);
  ((printf("\t"), show(arguments)), ...);
  printf("\n");
}
template <class T>
void answer(T const& value) {
  print(value);
  printf("\n");
}
template <class L>
void answer_values(L const& a) {
  for (int i = 0; i < int(size(a)); ++i) printf("%d ", int(a(i)));
  printf("\n");
}
template <class L, class O>
void answer_placed(L const& a, O const& offset) {
  print(a);
  printf(" @ %d\n", int(offset));
}

// ---- Questions ------------------------------------------------------------------------------------------------------

template <class L>
void ask_facts(L const& a) {
  ask("facts", a);
  printf("%d %d %d %d \n", int(size(a)), int(cosize(a)), int(rank(a)), int(depth(a)));
  ask("values", a);
  answer_values(a);
}

template <class L>
void ask_alone(L const& a) {
  ask("coalesce", a);
  answer(coalesce(a));
  ask("flatten", a);
  answer(flatten(a));
  ask("filter_zeros", a);
  answer(filter_zeros(a));
  ask("right_inverse", a);
  answer(right_inverse(a));
  if constexpr (kHasModes<L>) {
    ask("coalesce_by_mode", a);
    answer(coalesce(a, repeat<rank_v<L>>(Int<1>{})));
  }
  if constexpr (kHasStaticStrides<L>) {
    ask("left_inverse", a);
    answer(left_inverse(a));
  }
  ask("recast", a, "8", "16");
  answer(recast_layout<uint8_t, uint16_t>(a));
}

template <class L>
void ask_coordinates(L const& a) {
  int const index = below(int(size(a)));
  auto const coord = idx2crd(index, a.shape());
  ask("idx2crd", index, a.shape());
  answer(coord);
  ask("crd2idx", coord, a.shape());
  answer(crd2idx(coord, a.shape()));
  if constexpr (kHasModes<L>) {
    auto const last = append<rank_v<L>>(make_coord(_), below(int(size<1>(a))));
    auto const [kept, offset] = slice_and_offset(last, a);
    ask("slice", a, last);
    answer_placed(kept, offset);
  }
}

template <class L>
void ask_swizzled(L const& a) {
  int const offset = 8 * below(8);
  if (chance(50)) {
    auto const b = make_composed_layout(Swizzle<2, 1, 3>{}, offset, a);
    ask("values", b);
    answer_values(b);
  } else {
    auto const b = make_composed_layout(Swizzle<3, 0, -3>{}, Int<0>{}, a);
    ask("values", b);
    answer_values(b);
  }
}

template <class L>
void ask_compositions(L const& a) {
  auto const one = make_layout(1 + below(16), 1 + below(16));
  auto const two = make_layout(make_shape(1 + below(8), 1 + below(8)), make_stride(1 + below(8), 1 + below(32)));
  ask("composition", a, one);
  answer(composition(a, one));
  ask("composition", a, two);
  answer(composition(a, two));
  ask("composition", two, a.shape());
  answer(composition(two, make_layout(a.shape())));
  ask("logical_divide", a, one);
  answer(logical_divide(a, one));
  if constexpr (kHasModes<L>) {
    auto const by_mode = make_tile(one, make_layout(1 + below(4), Int<1>{}));
    Tile2<decltype(one), decltype(get<1>(by_mode))> const shown{one, get<1>(by_mode)};
    ask("composition_tiler", a, shown);
    answer(composition(a, by_mode));
    auto const tile = make_shape(1 + below(6), 1 + below(6));
    ask("zipped_divide", a, tile);
    answer(zipped_divide(a, tile));
    if (chance(50)) {
      ask("tiled_divide", a, shown);
      answer(tiled_divide(a, by_mode));
    } else {
      ask("flat_divide", a, tile);
      answer(flat_divide(a, tile));
    }
  }
}

/// These operations need a complement of the layout itself. If its strides are dynamic, CuTe has one only where the
/// layout has one mode.
template <class L>
void ask_complements(L const& a) {
  if constexpr (rank_v<decltype(coalesce(a))> == 1 || kHasStaticStrides<L>) {
    if (!goes_forwards(a)) return;
    int const target = 1 + below(600);
    auto const tile = make_layout(1 + below(6), 1 + below(4));
    ask("complement", a, target);
    answer(complement(a, target));
    auto const targets = make_shape(1 + below(40), 1 + below(40));
    ask("complement", a, targets);
    answer(complement(a, targets));
    ask("logical_product", a, tile);
    answer(logical_product(a, tile));
    if constexpr (kIsMatrix<L>) {
      auto const tiles = make_layout(make_shape(1 + below(4), 1 + below(4)));
      ask("blocked_product", a, tiles);
      answer(blocked_product(a, tiles));
      ask("raked_product", a, tiles);
      answer(raked_product(a, tiles));
      auto const shape = make_shape(1 + below(64), 1 + below(64));
      ask("tile_to_shape", a, shape);
      answer(tile_to_shape(a, shape));
    }
  }
}

template <class L>
void ask_parts(L const& a) {
  if constexpr (kIsMatrix<L>) {
    auto const tensor = make_tensor(counting_iterator<int>{0}, a);
    auto const tile = make_shape(1 + below(4), 1 + below(4));
    auto const coord = make_coord(below(3), _);
    auto const part = local_tile(tensor, tile, coord);
    ask("local_tile", a, tile, coord);
    answer_placed(part.layout(), *part.data());
    auto const threads = make_layout(make_shape(1 + below(4), 1 + below(4)));
    int const thread = below(int(size(threads)));
    auto const mine = local_partition(tensor, threads, thread);
    ask("local_partition", a, threads, thread);
    answer_placed(mine.layout(), *mine.data());
  }
}

/// Asks about `count` layouts of one nesting: the offsets of each, and what some operations make of it.
template <class Shape, class Stride>
void nesting(int count) {
  for (int i = 0; i < count; ++i) {
    auto const a = draw(Shape{}, Stride{});
    ask_facts(a);
    switch (below(6)) {
      case 0: ask_alone(a); break;
      case 1: ask_coordinates(a); break;
      case 2: ask_swizzled(a); break;
      case 3: ask_compositions(a); break;
      case 4: ask_complements(a); break;
      default: ask_parts(a);
    }
  }
}

template <class... T>
using Of = cute::tuple<T...>;

}  // namespace

int main() {
  nesting<D, D>(400);
  nesting<Of<D>, Of<D>>(400);
  nesting<Of<D, D>, Of<D, D>>(1200);
  nesting<Of<D, D, D>, Of<D, D, D>>(1500);
  nesting<Of<D, D, D, D>, Of<D, D, D, D>>(1500);
  nesting<Of<Of<D, D>, D>, Of<Of<D, D>, D>>(1500);
  nesting<Of<D, Of<D, D>>, Of<D, Of<D, D>>>(1500);
  nesting<Of<Of<D, D>, Of<D, D>>, Of<Of<D, D>, Of<D, D>>>(1500);
  nesting<Of<Of<Of<D, D>, D>, D>, Of<Of<Of<D, D>, D>, D>>(1500);
  nesting<Of<Of<D>, Of<D, Of<D, D>>>, Of<Of<D>, Of<D, Of<D, D>>>>(1500);
  nesting<Of<D, Of<D, Of<D, Of<D>>>>, Of<D, Of<D, Of<D, Of<D>>>>>(1500);
  // In these some integers are known at compile time. They test which integers of a result stay static.
  nesting<Of<D, D>, Of<D, _1>>(700);
  nesting<Of<D, D>, Of<_1, _64>>(200);
  nesting<Of<D, D, D>, Of<_16, _1, _256>>(500);
  nesting<Of<Of<D, D>, D>, Of<Of<_1, _64>, _8>>(500);
  nesting<Of<_8, Of<D, _2>>, Of<D, Of<_1, D>>>(500);
  nesting<Of<Of<_2, _2>, D>, Of<Of<_1, _2>, D>>(500);
  nesting<Of<_4, Of<_2, _4>>, Of<D, Of<D, D>>>(500);
  nesting<Of<_1, D, D>, Of<_0, D, _1>>(500);
}
