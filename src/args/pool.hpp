// src/args/pool.hpp: the threads that a CPU kernel is lent. It is plain data for the reason that
// args/attention_call.hpp gives.
#pragma once

namespace falchion::cpu {

/// Runs work on threads: parallel_for calls task(context, i) once for each i in [0, n).
struct Pool {
  void (*parallel_for)(void* self, int n, void (*task)(void* context, int i), void* context) = nullptr;
  void* self = nullptr;
};

}  // namespace falchion::cpu
