// tests/cuda/backward.hpp: gradients that stay on the device, for the tests of the backward pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "api/data_of.hpp"
#include "device.hpp"
#include "plan/plan_data.hpp"
#include "support/gradients.hpp"

namespace falchion::testing {

/// Fills all gradients with what they hold before a run: poison or, where they are added to what is there, the same
/// random numbers each time.
inline void start_gradients(const Gradients& x) {
  std::uint64_t seed = 71;
  for (const judge::Gradient which : kEachGradient) {
    HostTensor gradient = gradient_of(x, which);  // another view of the same memory
    if (gradient.view().data == nullptr) continue;
    if (x.x.problem.grads == Grads::accumulate) {
      gradient.fill_normal(seed++);
    } else {
      gradient.fill_poison();
    }
  }
}

/// A plan of the backward pass whose operands and workspace lie on the device.
class GradientsOnDevice {
 public:
  GradientsOnDevice(const Path& path, Gradients* x) : x_(x) {
    x->x.shares_tiles = true;
    start_gradients(*x);
    status_ = Plan::make(x->x.problem, Pass::backward, path.target(), &plan_);
    if (status_ && !is_gpu(data_of(plan_)->backend)) status_ = {Code::unsupported, "not a GPU's: " + plan_.describe()};
    if (status_) status_ = cuda::DeviceCopy::make(x->x.problem, x->operands(), x->whole(), &copy_);
    if (status_) status_ = cuda::Memory::make(plan_.workspace_bytes(), &workspace_);
    if (status_) status_ = cuda::synchronize();
  }
  const Status& status() const { return status_; }
  const Plan& plan() const { return plan_; }
  const Operands& operands() const { return copy_.operands(); }
  Status run(Stream stream = nullptr) const { return run(operands(), stream); }
  Status run(const Operands& operands, Stream stream = nullptr) const {
    void* memory = workspace_.size() > 0 ? workspace_.data() : nullptr;
    return plan_.run(operands, memory, workspace_.size(), stream);
  }
  /// Writes random bytes over the whole workspace.
  Status spoil_workspace(std::uint64_t seed) {
    std::vector<std::uint64_t> bytes((workspace_.size() + 7) / 8);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = random_bits(seed, i);
    return cuda::copy(workspace_.data(), bytes.data(), workspace_.size());
  }
  /// Copies the host's tensors as they are now to the device, with the gradients as they are before a run.
  Status upload() {
    start_gradients(*x_);
    if (Status status = copy_.upload(); !status) return status;
    return cuda::synchronize();
  }
  Status download() { return copy_.download(); }

 private:
  Gradients* x_;
  Plan plan_;
  cuda::DeviceCopy copy_;
  cuda::Memory workspace_;
  Status status_;
};

/// Every byte of all gradients, so that two runs can be compared bit for bit.
inline std::string gradient_bytes(const Gradients& x) {
  std::string out;
  for (const judge::Gradient which : kEachGradient) {
    const HostTensor& gradient = gradient_of(x, which);
    if (gradient.memory_bytes() > 0)
      out.append(reinterpret_cast<const char*>(gradient.memory()), gradient.memory_bytes());
  }
  return out;
}

/// Calls f(path, dtype) for each path that has the pass.
template <class F>
void on_every_backward_path(const F& f) {
  on_every_path(f, kAttentionBackward);
}

/// Runs each case on each path, judges it by the tolerance rule, and then calls look(gradients). plant() changes the
/// problem or its operands before the first run. The reference of a type serves all paths.
template <class Plant, class Look>
void judged(const std::vector<Case>& rows, const Wanted& wanted, const Plant& plant, const Look& look) {
  for (const Case& row : rows) {
    std::map<DType, std::pair<Gradients, judge::GradientReference>> prepared;
    on_every_backward_path([&](const Path& path, DType dtype) {
      SCOPED_TRACE(row.name);
      auto at = prepared.find(dtype);
      if (at == prepared.end()) {
        Gradients x(row, dtype, wanted, 17);
        plant(&x);
        start_gradients(x);
        judge::GradientReference reference(x.x.problem, x.operands());
        at = prepared.emplace(dtype, std::pair{std::move(x), std::move(reference)}).first;
      }
      Gradients& x = at->second.first;
      start_gradients(x);
      x.run(path);
      expect_judged(x, at->second.second);
      look(x);
    });
  }
}
inline void judged(const std::vector<Case>& rows, const Wanted& wanted = {}) {
  judged(
      rows, wanted, [](Gradients*) {}, [](const Gradients&) {});
}

}  // namespace falchion::testing
