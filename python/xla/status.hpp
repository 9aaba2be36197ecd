// python/xla/status.hpp: a failure as XLA wants it, with Falchion's own text.
#pragma once

#include <string>
#include <utility>

#include "falchion/falchion.h"
#include "xla/ffi/api/ffi.h"

namespace falchion::xla_ffi {

inline xla::ffi::Error invalid(std::string why) { return xla::ffi::Error::InvalidArgument(std::move(why)); }

/// The error of the C call of this thread that has just failed.
inline xla::ffi::Error error_of(fal_status status) {
  using xla::ffi::ErrorCode;
  const ErrorCode code = status == FAL_INVALID       ? ErrorCode::kInvalidArgument
                         : status == FAL_UNSUPPORTED ? ErrorCode::kUnimplemented
                         : status == FAL_WORKSPACE   ? ErrorCode::kResourceExhausted
                                                     : ErrorCode::kInternal;
  return xla::ffi::Error(code, fal_why());
}

}  // namespace falchion::xla_ffi
