// tests/cuda/kernels.hpp: what kernels.cu has. Both return a cudaError_t.
#pragma once

namespace falchion::testing {

int launch_wait(double seconds, void* stream);  // keeps the stream busy
int launch_fault();                             // leaves a sticky error: in a child process only

}  // namespace falchion::testing
