// The C interface: which kernels this machine runs, and how the gradients of one step fall into tasks.
#include "riesz.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "kernels.h"
#include "long_column.h"
#include "coefficients.h"
#include "scheduler.h"
#include "tiles.h"

namespace {

#if defined(__x86_64__)
// Not every compiler's __builtin_cpu_supports knows the name of it.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

const riesz_kernels* best() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!has_f16c()) return &riesz_portable;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw"))
    return &riesz_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &riesz_avx2;
#endif
  return &riesz_portable;
}

std::atomic<const riesz_kernels*> kernels{best()};

int64_t bytes_per_entry(int64_t dtype) { return dtype == RIESZ_FLOAT64 ? 8 : dtype == RIESZ_FLOAT32 ? 4 : 2; }

int64_t entries(const riesz_job& job) { return job.outer * job.length * job.inner; }

// Two gradients that share memory would be written by two threads at once.
bool overlap(void* const* data, const riesz_job* jobs, int64_t count) {
  std::vector<std::pair<const char*, const char*>> spans;
  spans.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; i++) {
    const char* begin = static_cast<const char*>(data[i]);
    spans.emplace_back(begin, begin + entries(jobs[i]) * bytes_per_entry(jobs[i].dtype));
  }
  std::sort(spans.begin(), spans.end());
  for (size_t i = 1; i < spans.size(); i++)
    if (spans[i].first < spans[i - 1].second) return true;
  return false;
}

// One call of riesz_direct. Tasks of long columns name them as jobs from `count` on.
struct Call {
  void* const* data;
  const riesz_job* jobs;
  int64_t count;
  const riesz_kernels* k;
  std::vector<riesz_coefficients> coefficients_by_job;
  std::vector<riesz_long_column> columns;

  void first(const riesz_task& t, char* scratch) {
    if (t.job >= count) {
      riesz_long_column& c = columns[static_cast<size_t>(t.job - count)];
      for (int64_t p = t.begin; p < t.end; p++) {
        const riesz_piece& piece = c.pieces[static_cast<size_t>(p)];
        double* sums = &c.sums[static_cast<size_t>(p * SUMS * MAX_LANES)];
        if (riesz_is_local(c)) k->piece_borders(c.data, c.dtype, c.n, &c.coefficients, &piece, sums);
        else k->piece_sums(c.data, c.dtype, &c.coefficients, &piece, c.shift, sums, scratch);
      }
      if (riesz_is_small(c)) {
        if (!riesz_is_local(c)) join(t);
        walk(t, scratch);
        fill_nan(c);
      }
      return;
    }
    const riesz_job& job = jobs[t.job];
    const riesz_coefficients& coefficients = coefficients_by_job[static_cast<size_t>(t.job)];
    if (coefficients.algorithm == ALGORITHM_SCALE)
      k->scale(data[t.job], job.dtype, coefficients.factor, t.begin, t.end);
    else if (coefficients.algorithm == ALGORITHM_CENTRAL)
      k->centralize(data[t.job], &job, &coefficients, t.begin, t.end, scratch);
    else k->columns(data[t.job], &job, &coefficients, t.begin, t.end, scratch);
  }

  void join(const riesz_task& t) { riesz_join(columns[static_cast<size_t>(t.job - count)]); }

  void walk(const riesz_task& t, char* scratch) {
    riesz_long_column& c = columns[static_cast<size_t>(t.job - count)];
    for (int64_t p = t.begin; p < t.end; p++) {
      const riesz_piece& piece = c.pieces[static_cast<size_t>(p)];
      double* starts = &c.sums[static_cast<size_t>(p * SUMS * MAX_LANES)];
      if (riesz_is_local(c)) k->piece_alone(c.data, c.dtype, &c.coefficients, &piece, starts, scratch);
      else k->piece_walk(c.data, c.dtype, &c.coefficients, &piece, starts, scratch);
    }
  }

  // One non-finite entry makes its whole column NaN, whichever algorithm computes it.
  void fill_nan(riesz_long_column& c) {
    if (riesz_is_local(c) && !riesz_all_finite(c))
      k->scale(c.data, c.dtype, std::numeric_limits<double>::quiet_NaN(), 0, c.n);
  }

  int64_t units(int64_t i) const {
    const riesz_job& job = jobs[i];
    const riesz_coefficients& coefficients = coefficients_by_job[static_cast<size_t>(i)];
    if (coefficients.algorithm == ALGORITHM_SCALE) return coefficients.factor == 1 ? 0 : entries(job);
    if (coefficients.algorithm == ALGORITHM_CENTRAL) return centralized_tiles_of(&job);
    return has_merged_rows(&job, &coefficients) ? job.outer : tiles_of(&job);
  }
};

int32_t direct(Call& call, const riesz_metric& metric, riesz_parallel_for parallel_for, int64_t threads) {
  std::vector<riesz_task> tasks, joins, walks;
  int64_t scratch = scratch_bytes(1);
  for (int64_t i = 0; i < call.count; i++) {
    const riesz_job& job = call.jobs[i];
    bool again = i > 0 && job.length == call.jobs[i - 1].length && job.dtype == call.jobs[i - 1].dtype;
    std::vector<riesz_coefficients>& by_job = call.coefficients_by_job;
    by_job.push_back(again ? by_job.back() : riesz_coefficients_of(metric, job.length, job.dtype));
    const riesz_coefficients& coefficients = by_job.back();
    if (entries(job) == 0) continue;
    if (riesz_is_long(job, coefficients)) {
      for (int64_t o = 0; o < job.outer; o++) {
        void* column = static_cast<char*>(call.data[i]) + o * job.length * bytes_per_entry(job.dtype);
        int64_t name = call.count + static_cast<int64_t>(call.columns.size());
        call.columns.push_back(riesz_cut(i, column, job.dtype, job.length, coefficients));
        const riesz_long_column& added = call.columns.back();
        int64_t pieces = static_cast<int64_t>(added.pieces.size());
        if (riesz_is_small(added)) {
          tasks.push_back({name, 0, pieces, job.length});
        } else {
          riesz_cut_tasks(tasks, name, pieces, job.length);
          if (!riesz_is_local(added)) joins.push_back({name, 0, pieces, job.length / 16});
          riesz_cut_tasks(walks, name, pieces, job.length);
        }
        scratch = std::max(scratch, scratch_bytes(MAX_SEGMENT) + (riesz_is_small(added) ? pieces * riesz_stage_bytes : 0));
      }
    } else {
      riesz_cut_tasks(tasks, i, call.units(i), entries(job));
      if (coefficients.algorithm != ALGORITHM_SCALE && coefficients.algorithm != ALGORITHM_CENTRAL)
        scratch = std::max(scratch, scratch_bytes(job.length));
    }
  }
  auto first = [](const riesz_task& t, char* memory, void* c) { static_cast<Call*>(c)->first(t, memory); };
  auto join = [](const riesz_task& t, char*, void* c) { static_cast<Call*>(c)->join(t); };
  auto walk = [](const riesz_task& t, char* memory, void* c) { static_cast<Call*>(c)->walk(t, memory); };
  auto run = [&](const std::vector<riesz_task>& which, void (*how)(const riesz_task&, char*, void*)) {
    return which.empty() || riesz_run(which.data(), static_cast<int64_t>(which.size()), scratch, parallel_for, threads,
                                      how, &call);
  };
  if (!(run(tasks, first) && run(joins, join) && run(walks, walk))) return RIESZ_NO_MEMORY;
  for (riesz_long_column& column : call.columns)
    if (!riesz_is_small(column)) call.fill_nan(column);
  return RIESZ_DONE;
}

bool valid(const riesz_job& job) {
  return job.outer >= 0 && job.length >= 0 && job.inner >= 0 && job.blocks >= 1 && job.outer % job.blocks == 0 &&
         job.dtype >= RIESZ_FLOAT32 && job.dtype <= RIESZ_BFLOAT16;
}

}  // namespace

const riesz_kernels* riesz_kernels_in_use() { return kernels.load(); }

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int32_t riesz_interface(void) { return 3; }

EXPORT const char* riesz_instructions(void) { return kernels.load()->name; }

EXPORT int32_t riesz_use_instructions(const char* name) {
  const riesz_kernels* top = best();
  const riesz_kernels* had[] = {
#if defined(__x86_64__)
      &riesz_avx512, &riesz_avx2,
#endif
      &riesz_portable};
  bool reached = false;
  for (const riesz_kernels* k : had) {
    reached = reached || k == top;
    if (reached && std::strcmp(k->name, name) == 0) {
      kernels = k;
      return 1;
    }
  }
  return 0;
}

EXPORT int32_t riesz_direct(void* const* data, const riesz_job* jobs, int64_t count, const riesz_metric* metric,
                            riesz_parallel_for parallel_for, int64_t threads) {
  for (int64_t i = 0; i < count; i++)
    if (!valid(jobs[i])) return RIESZ_BAD_ARGUMENT;
  if (metric->kind < RIESZ_IDENTITY || metric->kind > RIESZ_CENTRALIZATION) return RIESZ_BAD_ARGUMENT;
  try {
    if (overlap(data, jobs, count)) return RIESZ_OVERLAP;
    Call call{data, jobs, count, kernels.load(), {}, {}};
    return direct(call, *metric, parallel_for, threads);
  } catch (const std::bad_alloc&) {
    return RIESZ_NO_MEMORY;
  }
}
