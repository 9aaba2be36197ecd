// tests/nvtx_listener.cpp: a tool that listens to NVTX, as Nsight Systems does. NVTX loads it where
// NVTX_INJECTION64_PATH names it, and it writes the ranges to stderr.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>

namespace {

int push(const char* name) {
  std::fprintf(stderr, "nvtx push %s\n", name);
  return 0;
}
int pop() {
  std::fprintf(stderr, "nvtx pop\n");
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
