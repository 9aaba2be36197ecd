// src/layout/find_atom.hpp: finds a row of a table by its name, or by the start of its name.
#pragma once

#include <span>
#include <string_view>

namespace falchion::layout {

/// The atom of that name. If there is none, it is the first atom whose name goes
/// on with '_' or '<' behind it, else null.
template <class Atom>
const Atom* find_atom(std::span<const Atom> atoms, std::string_view name) {
  const Atom* first = nullptr;
  for (const Atom& atom : atoms) {
    if (atom.name == name) return &atom;
    const bool starts = atom.name.size() > name.size() && atom.name.compare(0, name.size(), name) == 0;
    if (!first && starts && !name.empty() && (atom.name[name.size()] == '_' || atom.name[name.size()] == '<'))
      first = &atom;
  }
  return first;
}

}  // namespace falchion::layout
