// tools/verify/paths.cpp: see paths.hpp.
#include "paths.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/fields.hpp"
#include "base/size.hpp"
#include "kind.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "problem/problem_options.hpp"
#include "runtime/runtime.hpp"

namespace falchion::tools::storm {
namespace {

constexpr std::int64_t kMostHeadDim = 256;

/// Whether docs/contract.md calls the problem unsupported on every path.
bool is_not_built_yet(const Problem& p) {
  const auto& a = p.attention;
  const auto& linear = p.linear;
  const bool has_heads = p.kind() == Kind::attention || p.kind() == Kind::linear;
  const std::int64_t d = p.kind() == Kind::attention ? std::max(a.d_qk, a.d_v) : std::max(linear.d_qk, linear.d_v);
  return (has_heads && d > kMostHeadDim) || storm_kind(p).is_not_built_yet(p);
}

/// Of q of 8 bits the CPU's kernels have the type of o.
bool has_variant_for(const Path& path, const Problem& p) {
  if (has_variant(path, p.op, p.dtype())) return true;
  return p.op == Op::attention && path.backend == Backend::cpu && has_variant(path, p.op, dtype_on_cpu(p.attention));
}

void add_cpu_levels(Op op, DType dtype, std::vector<Path>* out) {
  for (const Path& path : usable_paths(dtype, false, true, entry_of(op).operation)) out->push_back(path);
}

}  // namespace

bool is_listed(Op op, DType dtype) {
  if (op == Op::attention && is_8bit(dtype)) return false;
  const auto all = listed_variants();
  return std::any_of(all.begin(), all.end(),
                     [&](const Variant& v) { return v.is(entry_of(op).operation) && v.dtype == dtype; });
}

bool has_variant(const Path& path, Op op, DType dtype) {
  if (path.backend == Backend::best || path.backend == Backend::ref) return true;
  const auto all = variants();
  return std::any_of(all.begin(), all.end(), [&](const Variant& v) {
    const bool level = path.level.empty() || path.level == v.level;
    return v.backend == path.backend && level && v.is(entry_of(op).operation) && v.dtype == dtype;
  });
}

std::vector<Path> storm_paths(const std::string& backend, const std::string& level, Op op, DType dtype) {
  const Path best{Backend::best, ""}, ref{Backend::ref, ""}, sm80{Backend::sm80, ""}, sm90{Backend::sm90, ""};
  const Backend asked = parse_backend(backend);
  std::vector<Path> out;
  if (!level.empty()) {
    out = {{Backend::cpu, require_level(level)}};
  } else if (asked == Backend::cpu) {
    add_cpu_levels(op, dtype, &out);
  } else if (asked != Backend::best) {
    out = {{asked, ""}};
  } else if (const int sm = cuda::current_device().sm; sm >= 80) {
    out = {best, best, sm80};
    if (sm == 90) out.push_back(sm90);
  } else {
    out = {best, ref};
    add_cpu_levels(op, dtype, &out);
  }
  std::erase_if(out, [&](const Path& path) { return !has_variant(path, op, dtype); });
  return out;
}

std::vector<Path> storm_paths(const std::string& backend, const std::string& level, const Problem& p) {
  if (p.op != Op::attention || !is_8bit(p.attention.dtype)) return storm_paths(backend, level, p.op, p.dtype());
  // A GPU's kernels have the type of v where that has 16 bits, else that of q; the CPU's have the type of q or of o.
  const DType of_v = dtype_of_v(p.attention), on_gpu = is_8bit(of_v) ? p.dtype() : of_v;
  std::vector<Path> out = storm_paths(backend, level, p.op, on_gpu);
  std::erase_if(out, [](const Path& path) { return path.backend == Backend::cpu; });
  std::set<std::string> levels;
  for (const DType dtype : {p.dtype(), dtype_on_cpu(p.attention)})
    for (const Path& path : storm_paths(backend, level, p.op, dtype))
      if (path.backend == Backend::cpu && levels.insert(path.level).second) out.push_back(path);
  return out;
}

Status make_plan(const Problem& p, const Target& target, Plan* plan) {
  if (p.kind() == Kind::gemm) return Plan::make(p.gemm, target, plan);
  if (p.kind() == Kind::norm) return Plan::make(p.norm, p.pass(), target, plan);
  if (p.kind() == Kind::quantise) return Plan::make(p.quantise, target, plan);
  return p.kind() == Kind::attention ? Plan::make(p.attention, p.pass(), target, plan)
                                     : Plan::make(p.linear, p.pass(), target, plan);
}

std::string place_of(const Plan& plan) {
  const std::string level = plan_level(plan);
  return on_gpu(plan) || level.empty() ? plan_backend(plan) : fmt::format("{} {}", plan_backend(plan), level);
}

bool may_be_unsupported(const Problem& p) {
  return is_gpu(p.backend) || is_not_built_yet(p) || !has_variant_for({p.backend, p.level}, p);
}

bool may_refuse_layouts(const Problem& p, const Plan& plan) {
  return on_gpu(plan) && p.op == Op::attention && is_8bit(p.attention.dtype);
}

bool may_exceed_the_hint(const Problem& p, const Plan& plan) { return storm_kind(p).may_exceed_the_hint(p, plan); }

}  // namespace falchion::tools::storm
