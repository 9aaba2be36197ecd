// tools/ladder/cublas.cpp
#include "ladder/cublas.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <initializer_list>

namespace falchion::tools {

// The types and numbers are those of cublas_v2.h, which a build without CUDA does not have.
struct Cublas::Functions {
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  int (*version)(void* handle, int* version) = nullptr;
  int (*gemm)(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha, const void* a,
              int type_a, int stride_a, const void* b, int type_b, int stride_b, const void* beta, void* c, int type_c,
              int stride_c, int compute_type, int algorithm) = nullptr;

  bool find(void* library) {
    const auto get = [&](auto* function, const char* name) {
      *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(library, name));
      return *function != nullptr;
    };
    return get(&create, "cublasCreate_v2") && get(&destroy, "cublasDestroy_v2") &&
           get(&version, "cublasGetVersion_v2") && get(&gemm, "cublasGemmEx");
  }
};

namespace {

constexpr int kRealF32 = 0, kRealBf16 = 14;  // cudaDataType
constexpr int kCompute32F = 68;              // cublasComputeType_t: f32 as it is, no TF32
constexpr int kNotTransposed = 0, kDefaultAlgorithm = -1;

Status status_of(int error, const char* what) {
  return error == 0 ? Status{} : Status{Code::device, fmt::format("{}: cublasStatus_t {}", what, error)};
}

}  // namespace

std::unique_ptr<Cublas> Cublas::find(const std::string& path, std::string* why_not) {
  void* library = nullptr;
  if (!path.empty()) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  } else {
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so"})
      if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    *why_not = dlerror();
    return nullptr;
  }
  std::unique_ptr<Cublas> out(new Cublas);
  out->functions_ = std::make_unique<Functions>();
  if (!out->functions_->find(library)) {
    *why_not = "it lacks a function that is needed";
    return nullptr;
  }
  if (const Status status = status_of(out->functions_->create(&out->handle_), "cublasCreate"); !status) {
    *why_not = status.why;
    return nullptr;
  }
  int version = 0;
  out->functions_->version(out->handle_, &version);
  out->name_ = fmt::format("cuBLAS {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  return out;
}

Cublas::~Cublas() {
  if (handle_ != nullptr) functions_->destroy(handle_);
}

Status Cublas::multiply(DType dtype, const ladder::gemm::Problem& p, const ladder::gemm::Tensors& t) const {
  if (p.m == 0 || p.n == 0 || p.k == 0) return {};
  const int type = dtype == DType::f32 ? kRealF32 : kRealBf16;
  const float alpha = 1, beta = 0;
  // BLAS counts down columns, so to it these matrices are transposed: it computes C^T = B^T A^T.
  return status_of(functions_->gemm(handle_, kNotTransposed, kNotTransposed, p.n, p.m, p.k, &alpha, t.b, type, p.n, t.a,
                                    type, p.k, &beta, t.c, type, p.n, kCompute32F, kDefaultAlgorithm),
                   "cublasGemmEx");
}

}  // namespace falchion::tools
