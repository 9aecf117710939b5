// The C interface of the kernels: plain types only, so that one library serves every Python and every torch.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum riesz_dtype { RIESZ_FLOAT32 = 0, RIESZ_FLOAT64 = 1, RIESZ_FLOAT16 = 2, RIESZ_BFLOAT16 = 3 };

enum riesz_kind {
  RIESZ_IDENTITY = 0,
  RIESZ_REWEIGHTED_L2 = 1,
  RIESZ_SOBOLEV = 2,
  RIESZ_SOBOLEV_TILDE = 3,
  RIESZ_LAPLACIAN_SMOOTHING = 4,
  RIESZ_CENTRALIZATION = 5,
};

enum riesz_result { RIESZ_DONE = 0, RIESZ_OVERLAP = 1, RIESZ_NO_MEMORY = 2, RIESZ_BAD_ARGUMENT = 3 };

// One gradient as columns (outer, length, inner), contiguous; `blocks` of the outer axis are independent groups.
struct riesz_job {
  int64_t outer, length, inner, blocks;
  int64_t dtype;
};

// A f = scale * G f + blend * f; `strength` is the metric's lam or sigma.
struct riesz_metric {
  int64_t kind;
  int64_t riemann;
  double strength, scale, blend;
};

// torch's own: body(begin, end, context) over disjoint ranges that cover begin..end, on its pool of threads.
typedef int32_t (*riesz_parallel_for)(int64_t begin, int64_t end, int64_t grain, void (*body)(int64_t, int64_t, void*),
                                      void* context);

// Changes whenever a struct or a signature above does: the loader refuses a library it was not written for.
int32_t riesz_interface(void);

// The instruction set in use: "avx512", "avx2" or "portable".
const char* riesz_instructions(void);

// Use another instruction set, for tests; returns 0 if this machine does not have it.
int32_t riesz_use_instructions(const char* name);

// A f in place for every job. RIESZ_OVERLAP, with nothing touched, if two jobs share memory.
int32_t riesz_direct(void* const* data, const struct riesz_job* jobs, int64_t count, const struct riesz_metric* metric,
                     riesz_parallel_for parallel_for, int64_t threads);

#ifdef __cplusplus
}
#endif
