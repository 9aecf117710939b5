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

// One run of rows of a gradient whose columns are on several ranks: entry (row, column) is data[row * stride + column].
// Sums: of each column, weighted by the rows of `table` (terms x rows). The first `exact` of them are stored as float64
// from `exact_offset` on, the others as `inexact_dtype` from `inexact_offset` on, each `lead` entries after the last.
// Walk: from the starting values of the run's own solution under `metric`, if it `solves_alone`, plus `coupling` (3 x
// (partners * terms)) times the sums of its partners, which are at offsets[2 p] (exact) and offsets[2 p + 1].
// With `alone` (3 x terms) the own starting values are `alone` times the run's own sums, which are kept in float64 from
// entry `own_offset` of a buffer of this rank on, each `columns` entries after the last; else the walk takes its own.
struct riesz_shard {
  int64_t rows, columns, stride, dtype;
  int64_t terms, exact, inexact_dtype, lead;
  int64_t exact_offset, inexact_offset;
  const double* table;
  int64_t partners, solves_alone;
  const double* coupling;
  const int64_t* offsets;
  const double* alone;
  int64_t own_offset;
  struct riesz_metric metric;
};

// Changes whenever a struct or a signature above does: the loader refuses a library it was not written for.
int32_t riesz_interface(void);

// The instruction set in use: "avx512", "avx2" or "portable".
const char* riesz_instructions(void);

// Use another instruction set, for tests; returns 0 if this machine does not have it.
int32_t riesz_use_instructions(const char* name);

// A f in place for every job. RIESZ_OVERLAP, with nothing touched, if two jobs share memory.
int32_t riesz_direct(void* const* data, const struct riesz_job* jobs, int64_t count, const struct riesz_metric* metric,
                     riesz_parallel_for parallel_for, int64_t threads);

// The sums of every shard, into `sums`, and of those that keep them into `own`.
int32_t riesz_shard_sums(void* const* data, const struct riesz_shard* shards, int64_t count, void* sums,
                         double* own, riesz_parallel_for parallel_for, int64_t threads);

// A f in place for every shard, given the sums of all ranks. RIESZ_BAD_ARGUMENT, with nothing touched, if the kernels
// compute a metric of this strength by another algorithm than the starting values are made for.
int32_t riesz_shard_walk(void* const* data, const struct riesz_shard* shards, int64_t count, const void* received,
                         const double* own, riesz_parallel_for parallel_for, int64_t threads);

#ifdef __cplusplus
}
#endif
