// tests/cuda/kernels.hpp: the functions of kernels.cu. Both return a cudaError_t.
#pragma once

namespace falchion::testing {

int launch_wait(double seconds, void* stream);  // This keeps the stream busy.
int launch_fault();                             // This leaves a sticky error, so only a child process may call it.

}  // namespace falchion::testing
