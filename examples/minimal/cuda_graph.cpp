// examples/minimal/cuda_graph.cpp: attention on a CUDA stream, captured into a graph that is launched once a step. It
// needs the CUDA runtime and no nvcc. Without a GPU it says so and returns 77.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <falchion/falchion.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr std::int64_t kTokens = 256, kHeads = 8, kDim = 128, kCount = kTokens * kHeads * kDim;
constexpr int kSkipped = 77;

bool fine(cudaError_t error, const char* what) {
  if (error != cudaSuccess) std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  return error == cudaSuccess;
}

/// Memory of the device, which is freed at the end.
struct Memory {
  void* data = nullptr;
  explicit Memory(std::size_t bytes) { fine(cudaMalloc(&data, bytes), "cudaMalloc"); }
  ~Memory() { cudaFree(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
};

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device\n");
    return kSkipped;
  }

  falchion::Attention problem;
  problem.dtype = falchion::DType::bf16;
  problem.b = 1;
  problem.s_q = problem.s_k = kTokens;
  problem.h_q = problem.h_k = kHeads;
  problem.d_qk = problem.d_v = kDim;
  problem.band = falchion::Band::causal(falchion::Align::bottom_right);
  falchion::Plan plan;
  const falchion::Status made = falchion::Plan::make(problem, falchion::Pass::forward, falchion::Backend::best, &plan);
  if (!made || plan.backend() == falchion::Backend::cpu || plan.backend() == falchion::Backend::ref) {
    std::printf("skipped: no kernel for this GPU; %s\n", made ? plan.describe().c_str() : made.why.c_str());
    return kSkipped;
  }
  std::printf("%s\n", plan.describe().c_str());

  const Memory q(kCount * 2), k(kCount * 2), v(kCount * 2), o(kCount * 2), workspace(plan.workspace_bytes());
  const auto view = [](const Memory& x) {
    return falchion::Tensor::dense(x.data, falchion::DType::bf16, {1, kTokens, kHeads, kDim});
  };
  falchion::Operands operands;
  operands.q = view(q);
  operands.k = view(k);
  operands.v = view(v);
  operands.o = view(o);
  const auto upload = [](const Memory& to, float value) {
    const std::vector<__nv_bfloat16> x(kCount, __float2bfloat16(value));
    return fine(cudaMemcpy(to.data, x.data(), kCount * 2, cudaMemcpyHostToDevice), "cudaMemcpy");
  };
  if (!upload(q, 0.5F) || !upload(k, 0.25F)) return 1;

  // A run only enqueues, so a stream that is being captured takes it as any other.
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t launch = nullptr;
  if (!fine(cudaStreamCreate(&stream), "cudaStreamCreate")) return 1;
  if (!fine(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture")) return 1;
  const falchion::Status status = plan.run(operands, workspace.data, plan.workspace_bytes(), stream);
  if (!fine(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture")) return 1;
  if (!status) {
    std::fprintf(stderr, "refused: %s\n", status.why.c_str());
    return 1;
  }
  if (!fine(cudaGraphInstantiate(&launch, graph, 0), "cudaGraphInstantiate")) return 1;

  for (int step = 1; step <= 3; ++step) {  // new values, in the memory that the graph knows
    if (!upload(v, static_cast<float>(step)) || !fine(cudaGraphLaunch(launch, stream), "cudaGraphLaunch")) return 1;
    __nv_bfloat16 first, last;
    const auto* results = static_cast<const __nv_bfloat16*>(o.data);
    if (!fine(cudaStreamSynchronize(stream), "cudaStreamSynchronize")) return 1;
    if (!fine(cudaMemcpy(&first, results, 2, cudaMemcpyDeviceToHost), "cudaMemcpy")) return 1;
    if (!fine(cudaMemcpy(&last, results + kCount - 1, 2, cudaMemcpyDeviceToHost), "cudaMemcpy")) return 1;
    std::printf("step %d: %.2f ... %.2f\n", step, __bfloat162float(first), __bfloat162float(last));
    const float expected = static_cast<float>(step);  // a weighted mean of equal numbers
    if (__bfloat162float(first) != expected || __bfloat162float(last) != expected) return 1;
  }
  cudaGraphExecDestroy(launch);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return 0;
}
