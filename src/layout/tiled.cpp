// src/layout/tiled.cpp: atoms tiled over threads and values, and what one thread gets: CuTe's TiledMMA and TiledCopy.
#include "layout/atoms.hpp"
#include "layout/checked.hpp"

namespace falchion::layout {
namespace {

Layout leaf(std::int64_t shape, std::int64_t stride = 1) {
  return {IntTuple(Int{shape}), IntTuple(Int{shape == 1 && stride == 1 ? 0 : stride})};
}
Layout pair(const Layout& first, const Layout& second) { return make_layout(std::vector<Layout>{first, second}); }
Tiler by_mode(const Layout& first, const Layout& second) { return {true, {first, second}, {}}; }
Tiler whole(const Layout& layout) { return {false, {layout}, {}}; }

// ---- The tiled mma --------------------------------------------------------------------------------------------------

constexpr std::size_t kV = 0, kM = 1, kN = 2, kK = 3;  // the modes of thr_layout_vmnk

/// One operand: which of M, N, K are its rows and columns, and the atom's layout of it.
struct Side {
  std::size_t rows, columns;
  std::int64_t atom_rows, atom_columns, tile_rows, tile_columns;
  const Layout& tv;
};
Side side_of(const TiledMma& mma, Operand operand) {
  const MmaAtom& atom = *mma.atom;
  switch (operand) {
    case Operand::a: return {kM, kK, atom.m, atom.k, mma.m, mma.k, atom.a};
    case Operand::b: return {kN, kK, atom.n, atom.k, mma.n, mma.k, atom.b};
    default: return {kM, kN, atom.m, atom.n, mma.m, mma.n, atom.c};
  }
}

/// thrfrg_A, _B, _C: (rows, columns) -> ((ThrV,(ThrRows,ThrColumns)),(FrgV,(RestRows,RestColumns))).
Layout threads_and_fragments(const TiledMma& mma, const Side& side, const Layout& tensor) {
  const Layout permuted = divide(DivideKind::logical, tensor, by_mode(leaf(side.tile_rows), leaf(side.tile_columns)));
  const Layout atoms = divide(DivideKind::zipped, permuted, by_mode(leaf(side.atom_rows), leaf(side.atom_columns)));
  const Layout values = composition(atoms.mode(0), side.tv);
  const Layout threads = divide(
      DivideKind::zipped, atoms.mode(1),
      by_mode(leaf(mma.thr_layout_vmnk.mode(side.rows).size()), leaf(mma.thr_layout_vmnk.mode(side.columns).size())));
  return pair(pair(values.mode(0), threads.mode(0)), pair(values.mode(1), threads.mode(1)));
}

/// The layout thread index -> (ThrV,ThrM,ThrN,ThrK), which others are composed with.
Layout thread_coordinates(const TiledMma& mma) {
  const Layout filtered = coalesce(filter_zeros(mma.thr_layout_vmnk));
  const Layout rest = complement(filtered, IntTuple(Int{filtered.cosize()}));
  const Layout indices = pair(leaf(mma.thr_layout_vmnk.size()), leaf(1));
  return composition(indices, right_inverse(pair(mma.thr_layout_vmnk, rest)));
}

/// get_layoutA_TV, _B, _C: (thread, value) -> (rows, columns) of the tile.
Layout tile_tv(const TiledMma& mma, Operand operand) {
  const Side side = side_of(mma, operand);
  const Layout reference = make_layout(IntTuple(std::vector<IntTuple>{Int{side.tile_rows}, Int{side.tile_columns}}));
  const Layout thrfrg = threads_and_fragments(mma, side, reference);
  Layout threads = thrfrg.mode(0);
  if (operand != Operand::c) {  // threads that differ only in the mode that the operand lacks hold the same values
    const Layout& vmnk = mma.thr_layout_vmnk;
    const bool is_a = operand == Operand::a;
    const Layout broadcast{IntTuple(std::vector<IntTuple>{vmnk.mode(kM).shape, vmnk.mode(kN).shape}),
                           IntTuple(std::vector<IntTuple>{Int{is_a ? 1 : 0}, Int{is_a ? 0 : 1}})};
    const Layout grid = threads.mode(1);
    threads = pair(threads.mode(0), pair(composition(grid.mode(0), broadcast), grid.mode(1)));
  }
  return pair(composition(threads, thread_coordinates(mma)), thrfrg.mode(1));
}

std::int64_t tile_length(const char* mode, std::int64_t asked, std::int64_t atom, std::int64_t atoms) {
  const std::int64_t least = atom * atoms;
  if (asked == 0) return least;
  if (asked < 0 || asked % least != 0 || asked > 4096)
    throw Error("tile " + std::string(mode) + " = " + std::to_string(asked) + " must be a multiple of " +
                std::to_string(least) + ", which the atoms make, and at most 4096");
  return asked;
}

}  // namespace

TiledMma make_tiled_mma(const MmaAtom& atom, const Layout& atoms, std::int64_t m, std::int64_t n, std::int64_t k) {
  if (atoms.rank() > 3)
    throw Error("atoms " + to_string(atoms) + " of rank " + std::to_string(atoms.rank()) +
                ", at most 3: along M, N, K");
  std::vector<Layout> modes;
  for (std::size_t i = 0; i < 3; ++i) modes.push_back(i < atoms.rank() ? atoms.mode(i) : leaf(1));
  const Layout mnk = make_layout(modes);
  if (mnk.size() < 1 || multiply(mnk.size(), atom.thread_id.size()) > 1024)
    throw Error("atoms " + to_string(atoms) + " of " + std::to_string(atom.thread_id.size()) +
                " threads each: a block has at most 1024");
  TiledMma mma{&atom, product(ProductKind::tiled, atom.thread_id, whole(mnk)), 0, 0, 0, {}, {}, {}};
  mma.m = tile_length("M", m, atom.m, mnk.mode(0).size());
  mma.n = tile_length("N", n, atom.n, mnk.mode(1).size());
  mma.k = tile_length("K", k, atom.k, mnk.mode(2).size());
  mma.a = tile_tv(mma, Operand::a);
  mma.b = tile_tv(mma, Operand::b);
  mma.c = tile_tv(mma, Operand::c);
  return mma;
}

// ---- The tiled copy -------------------------------------------------------------------------------------------------

namespace {

TiledCopy checked(TiledCopy copy) {
  const std::int64_t bits = copy.atom->ref.mode(1).size();
  if (copy.element_bits < 1 || bits % copy.element_bits != 0)
    throw Error("elements of " + std::to_string(copy.element_bits) + " bits: " + copy.atom->name + " gives a thread " +
                std::to_string(bits) + ", which must be a multiple");
  const Layout ref = recast(copy.atom->ref, 1, copy.element_bits);
  for (std::size_t i : {0, 1}) {
    if (copy.tv.mode(i).size() % ref.mode(i).size() != 0)
      throw Error(std::string(i == 0 ? "threads" : "values") + ": " + std::to_string(copy.tv.mode(i).size()) +
                  " must be a multiple of the " + std::to_string(ref.mode(i).size()) + " of " + copy.atom->name);
  }
  return copy;
}

/// tile2thrfrg: a tensor cut by Tiler_MN -> (Thr,(FrgV,FrgX),(RestM,RestN)).
Layout threads_and_fragments(const TiledCopy& copy, const Layout& tiled, bool source) {
  const Layout ref = recast(copy.atom->ref, 1, copy.element_bits);
  const Layout side = recast(source ? copy.atom->src : copy.atom->dst, 1, copy.element_bits);
  const Layout atoms = divide(DivideKind::zipped, copy.tv, by_mode(leaf(ref.mode(0).size()), leaf(ref.mode(1).size())));
  const Layout atom = composition(atoms.mode(0), composition(right_inverse(ref), side));
  const Layout rest = atoms.mode(1);
  const Layout threads = coalesce(pair(atom.mode(0), rest.mode(0)));
  const Layout values = pair(coalesce(atom.mode(1)), coalesce(rest.mode(1)));
  const Layout of_tensor = composition(tiled.mode(0), pair(threads, values));
  return make_layout(std::vector<Layout>{of_tensor.mode(0), of_tensor.mode(1), tiled.mode(1)});
}

Layout whole_tile(const TiledCopy& copy) {
  return pair(make_layout(IntTuple(std::vector<IntTuple>{Int{copy.m}, Int{copy.n}})), leaf(1, 0));
}

void check(const Composed& tensor, std::int64_t thread, std::int64_t threads) {
  if (tensor.layout.rank() != 2)
    throw Error("tensor " + to_string(tensor) + " of rank " + std::to_string(tensor.layout.rank()) + ", not 2");
  if (thread < 0 || thread >= threads)
    throw Error("thread " + std::to_string(thread) + " of " + std::to_string(threads));
}

IntTuple underscores(std::size_t count) { return IntTuple(std::vector<IntTuple>(count, IntTuple::underscore())); }

/// The slice at coord of a tensor whose layout was changed to `all`.
Partition part_of(const Composed& tensor, const Layout& all, const IntTuple& coord) {
  const Slice plain = slice(all, coord);
  Partition out{tensor, tensor.of_offset(plain.offset_of), plain.offset_of};
  out.layout.layout = plain.layout;
  if (tensor.element_bits > 0) return out;  // the swizzle then belongs to the pointer and stays with it
  Composed whole = tensor;
  whole.layout = all;
  const ComposedSlice part = slice(whole, coord);
  out.layout = part.layout;
  out.start = part.offset_of;
  return out;
}

}  // namespace

TiledCopy make_tiled_copy(const CopyAtom& atom, int element_bits, const Layout& threads, const Layout& values) {
  if (threads.rank() > 2 || values.rank() > 2 || multiply(threads.size(), values.size()) > (1 << 20))
    throw Error("threads " + to_string(threads) + " and values " + to_string(values) +
                ": at most rank 2 and 2^20 elements together");
  const Layout mn = product(ProductKind::raked, threads, whole(values));
  const Layout sizes = make_layout(IntTuple(std::vector<IntTuple>{product(threads.shape), product(values.shape)}));
  return checked({&atom, element_bits, mn.mode(0).size(), mn.rank() > 1 ? mn.mode(1).size() : 1,
                  composition(right_inverse(mn), sizes)});
}

TiledCopy make_tiled_copy(const CopyAtom& atom, int element_bits, const TiledMma& mma, Operand operand) {
  const Side side = side_of(mma, operand);
  const Layout& tv = operand == Operand::a ? mma.a : operand == Operand::b ? mma.b : mma.c;
  return checked({&atom, element_bits, side.tile_rows, side.tile_columns, tv});
}

Layout source_tv(const TiledCopy& copy) {
  const Layout all = threads_and_fragments(copy, whole_tile(copy), true);
  return pair(all.mode(0), all.mode(1));
}
Layout destination_tv(const TiledCopy& copy) {
  const Layout all = threads_and_fragments(copy, whole_tile(copy), false);
  return pair(all.mode(0), all.mode(1));
}

// ---- What one thread gets -------------------------------------------------------------------------------------------

Partition partition(const TiledCopy& copy, const Composed& tensor, std::int64_t thread, bool source) {
  check(tensor, thread, copy.tv.mode(0).size());
  const Layout tiled = divide(DivideKind::zipped, tensor.layout, by_mode(leaf(copy.m), leaf(copy.n)));
  const Layout all = threads_and_fragments(copy, tiled, source);
  const IntTuple coord(
      std::vector<IntTuple>{Int{thread, false}, IntTuple::underscore(), underscores(all.mode(2).rank())});
  return part_of(tensor, all, coord);
}

Partition partition(const TiledMma& mma, Operand operand, const Composed& tensor, std::int64_t thread) {
  check(tensor, thread, mma.thr_layout_vmnk.size());
  const Side side = side_of(mma, operand);
  const Layout all = threads_and_fragments(mma, side, tensor.layout);
  const auto along = [&](std::size_t mode) {  // the thread's coordinate in that mode
    const Layout layout = coalesce(mma.thr_layout_vmnk.mode(mode));
    std::int64_t index = 0, size = 1;
    for (std::size_t i = 0; i < layout.rank(); ++i) {
      const std::int64_t stride = layout.stride.mode(i).value(), shape = layout.shape.mode(i).value();
      if (stride > 0) index += thread / stride % shape * size;
      size *= shape;
    }
    return IntTuple(Int{index, false});
  };
  const IntTuple grid(std::vector<IntTuple>{along(side.rows), along(side.columns)});
  const IntTuple coord(
      std::vector<IntTuple>{std::vector<IntTuple>{along(kV), grid},
                            std::vector<IntTuple>{IntTuple::underscore(), underscores(all.mode(1).mode(1).rank())}});
  return part_of(tensor, all, coord);
}

Layout make_fragment_like(const Layout& partition) {
  if (partition.rank() < 2) return make_layout(partition.shape);
  const Layout first = make_layout(filter_zeros(partition.mode(0)).shape);
  std::vector<IntTuple> shape, stride;
  for (std::size_t i = 1; i < partition.rank(); ++i) {
    shape.push_back(partition.shape.mode(i));
    stride.push_back(partition.stride.mode(i));
  }
  const Layout rest = make_ordered_layout(IntTuple(shape), IntTuple(stride));
  return product(ProductKind::tiled, Layout{partition.mode(0).shape, first.stride}, whole(rest));
}

}  // namespace falchion::layout
