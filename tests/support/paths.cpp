// tests/support/paths.cpp
#include "support/paths.hpp"

#include <algorithm>
#include <cstdint>

#include "cpu/levels.hpp"
#include "plan/plan_data.hpp"

namespace falchion::testing {

std::string Path::name() const { return backend == Backend::ref ? "ref" : level; }

bool Path::has(DType dtype) const {
  if (backend == Backend::ref) return true;
  const auto rows = variants();
  return std::any_of(rows.begin(), rows.end(), [&](const Variant& v) { return v.dtype == dtype && level == v.level; });
}

Target Path::target(int threads) const {
  Target target(backend);
  target.threads = threads;
  target.cpu_level = backend == Backend::cpu ? level.c_str() : nullptr;
  return target;
}

std::vector<Path> usable_paths() {
  std::vector<Path> out{{}};
  for (const cpu::Level& level : cpu::cpu_levels()) {
    const auto rows = variants();
    const bool built =
        std::any_of(rows.begin(), rows.end(), [&](const Variant& v) { return level.name == std::string(v.level); });
    if (level.usable && built) out.push_back({Backend::cpu, level.name});
  }
  return out;
}

Workspace::Workspace(std::size_t bytes) : bytes_(bytes), memory_(bytes + 64, 0xFF) {}
void* Workspace::data() const {
  const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
  return const_cast<unsigned char*>(memory_.data()) + (64 - base % 64) % 64;
}

Status run(const Target& target, Instance* x) {
  Plan plan;
  if (Status status = Plan::make(x->problem, Pass::forward, target, &plan); !status) return status;
  const Workspace workspace(plan.workspace_bytes());
  x->poison_outputs();
  return plan.run(x->operands(), workspace.data(), workspace.size());
}

}  // namespace falchion::testing
