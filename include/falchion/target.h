/* falchion/target.h: what to plan for: the backend and how it is to be used. */
#ifndef FALCHION_TARGET_H
#define FALCHION_TARGET_H

#include <stddef.h>
#include <stdint.h>

enum { FAL_BEST = 0, FAL_REF = 1, FAL_CPU = 2, FAL_SM80 = 3, FAL_SM90 = 4 }; /* backend */

/* The caller's own thread pool, for an engine that has one. parallel_for must call task(context, i) once for each i in
 * [0, n) and return when all are done. */
typedef struct fal_executor {
  size_t size; /* sizeof(fal_executor) */
  void (*parallel_for)(void* self, int n, void (*task)(void* context, int i), void* context);
  void* self;
  int32_t threads;  /* how many may run at once, >= 1 */
  int32_t reserved; /* 0 */
} fal_executor;

/* What to plan for. Where a function takes a target, null means the best that there is. */
typedef struct fal_target {
  size_t size; /* sizeof(fal_target) */
  int32_t backend;
  int32_t threads;       /* cpu: how many threads; 0 means all that the process may use */
  int32_t sm;            /* gpu: plan for this architecture (80, 90) even if it is not here; 0: the one present */
  int32_t segments;      /* linear attention: how many parts each sequence is cut into; 0 lets the plan decide */
  const char* cpu_level; /* cpu: plan for this instruction set ("amx", "avx512", ...) or fail; null: the fastest, or at
                          * most that which the environment's FALCHION_CPU names */
  const fal_executor* executor; /* cpu: the pool to run on; null: OpenMP, or the library's own threads */
  int32_t device;               /* gpu, with use_device: the device's CUDA number; a run makes it current, and
                                 * afterwards makes the caller's device current again */
  uint8_t use_device;     /* 1: `device` counts; 0: the device that is current when the plan is made; else refused */
  uint8_t trust_pointers; /* 1: the caller vouches that each pointer lies where the backend can use it; else 0 */
  uint16_t sms;           /* gpu: how many SMs a plan may use; 0: all */
  uint8_t reserved[8];    /* 0 */
} fal_target;

#endif /* FALCHION_TARGET_H */
