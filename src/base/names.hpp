// src/base/names.hpp: the names of the public enums' values, as messages, explain() and the command write them.
#pragma once

#include "falchion/falchion.hpp"

namespace falchion {

inline constexpr DType kLastDType = DType::i32;

constexpr const char* name(DType x) {
  switch (x) {
    case DType::as_q: return "as_q";
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::boolean: return "boolean";
    case DType::e4m3: return "e4m3";
    case DType::e5m2: return "e5m2";
    case DType::i8: return "i8";
    case DType::i32: return "i32";
  }
  return "unknown";
}
constexpr const char* name(Backend x) {
  switch (x) {
    case Backend::best: return "best";
    case Backend::ref: return "ref";
    case Backend::cpu: return "cpu";
    case Backend::sm80: return "sm80";
    case Backend::sm90: return "sm90";
  }
  return "unknown";
}
constexpr const char* name(Align x) {
  switch (x) {
    case Align::unset: return "unset";
    case Align::bottom_right: return "bottom_right";
    case Align::top_left: return "top_left";
    case Align::at: return "at";
  }
  return "unknown";
}
constexpr const char* name(Pass x) {
  switch (x) {
    case Pass::forward: return "forward";
    case Pass::backward: return "backward";
  }
  return "unknown";
}
constexpr const char* name(Grads x) {
  switch (x) {
    case Grads::rounded: return "rounded";
    case Grads::f32: return "f32";
    case Grads::accumulate: return "accumulate";
  }
  return "unknown";
}
constexpr const char* name(Code x) {
  switch (x) {
    case Code::ok: return "ok";
    case Code::invalid: return "invalid";
    case Code::unsupported: return "unsupported";
    case Code::workspace: return "workspace";
    case Code::device: return "device";
  }
  return "unknown";
}

constexpr const char* name(FeatureMap x) {
  switch (x) {
    case FeatureMap::identity: return "identity";
    case FeatureMap::elu_plus_one: return "elu_plus_one";
  }
  return "unknown";
}
constexpr const char* name(Decay x) {
  switch (x) {
    case Decay::none: return "none";
    case Decay::head: return "head";
    case Decay::token: return "token";
  }
  return "unknown";
}
constexpr const char* name(NormKind x) {
  switch (x) {
    case NormKind::layer: return "layer";
    case NormKind::rms: return "rms";
  }
  return "unknown";
}
constexpr const char* name(Activation x) {
  switch (x) {
    case Activation::none: return "none";
    case Activation::relu: return "relu";
    case Activation::gelu_tanh: return "gelu_tanh";
    case Activation::gelu_erf: return "gelu_erf";
    case Activation::silu: return "silu";
    case Activation::swiglu: return "swiglu";
  }
  return "unknown";
}
constexpr const char* name(Scaling x) {
  switch (x) {
    case Scaling::none: return "none";
    case Scaling::tensor: return "tensor";
    case Scaling::row_col: return "row_col";
    case Scaling::block128: return "block128";
  }
  return "unknown";
}

}  // namespace falchion
