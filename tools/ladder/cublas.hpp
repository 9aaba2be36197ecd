// tools/ladder/cublas.hpp: cuBLAS, for comparison in `falchion ladder gemm`. It is loaded when the command runs, by
// dlopen: neither the library nor the command is linked with it.
#pragma once

#include <memory>
#include <string>

#include "falchion/falchion.hpp"
#include "ladder/gemm/step.hpp"

namespace falchion::tools {

class Cublas {
 public:
  /// `path`: the shared library, or empty for its names in CUDA 12 and 13. Returns nullptr with the reason if there is
  /// none.
  static std::unique_ptr<Cublas> find(const std::string& path, std::string* why_not);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  /// C = A B in this type, f32 or bf16, with f32 sums, and in f32 without TF32. It only enqueues.
  Status multiply(DType dtype, const ladder::gemm::Problem& p, const ladder::gemm::Tensors& t) const;
  const std::string& name() const { return name_; }  ///< "cuBLAS 13.1.0"

 private:
  Cublas() = default;
  struct Functions;
  std::unique_ptr<Functions> functions_;
  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace falchion::tools
