// tests/cuda/kernels.hpp: the functions of kernels.cu. Those that launch return a cudaError_t.
#pragma once

namespace falchion::testing {

int launch_wait(double seconds, void* stream);  // This keeps the stream busy.
/// Copies set (*turn)++ % sets of `sets` lists of `size` numbers to `to`. A CUDA graph of it finds the next one in each
/// replay.
int launch_next_of(int* turn, const int* lists, int sets, int size, int* to, void* stream);
int launch_fault();  // This leaves a sticky error, so only a child process may call it.
/// How many clusters of so many CTAs the device holds at a time, where a CTA has an SM for itself; below 0: an error.
int clusters_at_once(int ctas);

}  // namespace falchion::testing
