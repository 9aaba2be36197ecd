// src/api/c_api.cpp: the C shim of attention and of plans. Structs are copied over defaults by their size, enums
// checked, exceptions stopped (c_convert.hpp).
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "api/c_convert.hpp"
#include "args/gpu_merge_args.hpp"

namespace falchion {
namespace {

// The last value of each enum that a field may have.
constexpr DType last(DType) { return kLastDType; }
constexpr Align last(Align) { return Align::at; }
constexpr Grads last(Grads) { return Grads::accumulate; }

/// A field of C as one of C++: an enum and a flag are checked.
template <class From, class To>
void to_field(const char* name, From from, To* to, Check* check) {
  if constexpr (std::is_enum_v<To>) {
    *to = to_enum(from, last(To{}), check, name);
  } else if constexpr (std::is_same_v<To, bool>) {
    *to = to_flag(from, check, name);
  } else {
    *to = from;
  }
}

Attention to_problem(const fal_attention* from, Check* check) {
  fal_attention x;
  if (!copy("attention", from, &x, check)) return {};
  Attention out;
  // Where C keeps a field: under its own name, or in the same struct as C++.
  const auto convert = [check, &out](const auto& from) {
#define FALCHION_ANY_FIELD(kind, key, member, option, text) \
  if constexpr (requires { from.member; }) {                \
    to_field(#member, from.member, &out.member, check);     \
  } else {                                                  \
    to_field(#key, from.key, &out.member, check);           \
  }
#define FALCHION_LENGTHS(key, ...) to_field(#key, from.key, &out.key, check);
#include "base/fields.def"
  };
  convert(x);
  // A band of zeroes is the full one.
  if (x.band.left == 0 && x.band.right == 0 && x.band.align == FAL_ALIGN_UNSET) {
    out.band = Band::full();
    out.band.offset = x.band.offset;
  }
  check_reserved(x.reserved, check, "attention.reserved");
  check_reserved(x.reserved_bytes, check, "attention.reserved_bytes");
  return out;
}

Operands to_operands(const fal_operands* from, Check* check) {
  fal_operands x;
  if (!copy("operands", from, &x, check)) return {};
  Operands out;
#define FALCHION_OPERAND(name, ...) out.name = to_tensor(#name, x.name, check);
#define FALCHION_LENGTHS(key, ...) out.key = x.key;
#include "base/fields.def"
  out.cu_seqlens_q = x.cu_seqlens_q;
  out.cu_seqlens_k = x.cu_seqlens_k;
  out.page_starts = x.page_starts;
  out.rng = {x.rng.seed, x.rng.offset, x.rng.at, {x.origin.b, x.origin.h, x.origin.i, x.origin.j, x.origin.h_q}};
  check_reserved(static_cast<std::int64_t>(x.rng.reserved), check, "operands.rng.reserved");
  return out;
}

fal_tensor to_c(const Tensor& x) {
  fal_tensor out{};
  out.data = x.data;
  out.dtype = static_cast<std::int32_t>(x.dtype);
  std::copy(x.shape.begin(), x.shape.end(), out.shape);
  std::copy(x.stride.begin(), x.stride.end(), out.stride);
  return out;
}

}  // namespace
}  // namespace falchion

using namespace falchion;

fal_attention fal_attention_init(void) {
  const fal_attention start = FAL_ATTENTION_INIT;
  return start;
}

fal_tensor fal_tensor_dense(void* data, int32_t dtype, int64_t b, int64_t s, int64_t h, int64_t d) {
  fal_tensor out = to_c(Tensor::dense(data, DType::f32, {b, s, h, d}));
  out.dtype = dtype;
  return out;
}

fal_tensor fal_tensor_heads_first(void* data, int32_t dtype, int64_t b, int64_t s, int64_t h, int64_t d) {
  fal_tensor out = to_c(Tensor::heads_first(data, DType::f32, {b, s, h, d}));
  out.dtype = dtype;
  return out;
}

fal_status fal_plan_make(const fal_attention* problem, int32_t pass, const fal_target* target, fal_plan** out) {
  return c_plan_make(to_problem, problem, target, out, pass);
}

void fal_plan_free(fal_plan* plan) { delete plan; }
size_t fal_plan_workspace(const fal_plan* plan) { return plan != nullptr ? plan->plan.workspace_bytes() : 0; }
int32_t fal_plan_backend(const fal_plan* plan) {
  return static_cast<int32_t>(plan != nullptr ? plan->plan.backend() : Backend::best);
}

const char* fal_plan_describe(const fal_plan* plan) {
  return plan != nullptr ? plan->describe.get([plan] { return plan->plan.describe(); }) : "no plan";
}

const char* fal_plan_explain(const fal_plan* plan, int32_t format) {
  const std::optional<Format> wanted = to_format(format);
  if (!wanted) return nullptr;
  if (plan == nullptr) {
    thread_local std::string place;
    return kept_text(&place, [&] { return Plan().explain(*wanted); });
  }
  LazyText& kept = *wanted == Format::json ? plan->json : plan->text;
  return kept.get([&] { return plan->plan.explain(*wanted); });
}

fal_status fal_plan_run(const fal_plan* plan, const fal_operands* operands, void* workspace, size_t workspace_bytes,
                        void* stream) {
  return c_plan_run(to_operands, plan, operands, workspace, workspace_bytes, stream);
}

const char* fal_explain(const fal_attention* problem, int32_t pass, const fal_target* target, int32_t format) {
  return c_explain(to_problem, problem, target, format, pass);
}

fal_status fal_attention_run(const fal_operands* operands, const fal_attention* options, const fal_target* target,
                             void* stream) {
  return c_call(attention, to_problem, options, to_operands, operands, target, stream);
}

void fal_release_workspaces(void) { release_workspaces(); }

fal_status fal_merge_parts(const fal_tensor* o_parts, const fal_tensor* lse_parts, size_t parts, const fal_tensor* o,
                           const fal_tensor* lse, void* stream) {
  return guarded([&]() -> Status {
    Check check;
    std::array<Tensor, gpu::kMaxMergeParts> os, lses;
    const auto tensors = [&](const char* name, const fal_tensor* from, std::array<Tensor, gpu::kMaxMergeParts>* to) {
      if (from == nullptr || parts > to->size()) return;
      for (std::size_t i = 0; i < parts; ++i) (*to)[i] = to_tensor(text(name, "[", i, "]").c_str(), from[i], &check);
    };
    tensors("o_parts", o_parts, &os);
    tensors("lse_parts", lse_parts, &lses);
    const auto output = [&check](const char* name, const fal_tensor* x) {
      return check.require(x != nullptr, name, " is null") ? to_tensor(name, *x, &check) : Tensor{};
    };
    const Tensor out = output("o", o), out_lse = output("lse", lse);
    if (!check.ok()) return check.take();
    return merge(o_parts == nullptr ? nullptr : os.data(), lse_parts == nullptr ? nullptr : lses.data(), parts, out,
                 out_lse, stream);
  });
}

fal_status fal_merge(const fal_tensor* o_a, const fal_tensor* lse_a, const fal_tensor* o_b, const fal_tensor* lse_b,
                     const fal_tensor* o, const fal_tensor* lse) {
  return guarded([&]() -> Status {
    Check check;
    const auto tensor = [&check](const char* name, const fal_tensor* x) {
      return check.require(x != nullptr, name, " is null") ? to_tensor(name, *x, &check) : Tensor{};
    };
    const Tensor a = tensor("o_a", o_a), la = tensor("lse_a", lse_a), b = tensor("o_b", o_b),
                 lb = tensor("lse_b", lse_b);
    const Tensor out = tensor("o", o), out_lse = tensor("lse", lse);
    return check.ok() ? merge(a, la, b, lb, out, out_lse) : check.take();
  });
}

fal_status fal_validate_lengths(const fal_attention* problem, const fal_operands* operands) {
  return guarded([&]() -> Status {
    Check check;
    const Attention a = to_problem(problem, &check);
    const Operands x = to_operands(operands, &check);
    return check.ok() ? validate_lengths(a, x) : check.take();
  });
}

const char* fal_why(void) { return last_why(); }
const char* fal_version(void) { return version(); }
const char* fal_build_info(void) {
  thread_local std::string place;
  return kept_text(&place, [] { return build_info(); });
}
