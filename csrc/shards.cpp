// The C interface of shards: the sums of all shards of a step in one call, and the walks of all of them in another.
#include <algorithm>
#include <new>
#include <vector>

#include "coefficients.h"
#include "kernels.h"
#include "riesz.h"
#include "scheduler.h"
#include "tiles.h"

namespace {

struct Call {
  void* const* data;
  const riesz_shard* shards;
  char* sums;
  const char* received;
  double* own;
  const riesz_kernels* k;
  std::vector<riesz_coefficients> coefficients;
  std::vector<int64_t> lanes;  // of a tile, by shard
};

bool valid(const riesz_shard& shard) {
  bool sums = shard.terms >= 0 && shard.terms <= SUMS && shard.exact >= 0 && shard.exact <= shard.terms;
  return sums && shard.rows >= 1 && shard.columns >= 0 && shard.stride >= shard.columns && shard.partners >= 0 &&
         shard.dtype >= RIESZ_FLOAT32 && shard.dtype <= RIESZ_BFLOAT16;
}

// Starting values are given in the terms of these algorithms; the others have none, and need no walk.
bool can_walk(const riesz_shard& shard, const riesz_coefficients& r) {
  if (r.algorithm == ALGORITHM_SCALE || r.algorithm == ALGORITHM_CENTRAL) return false;
  if (r.algorithm == ALGORITHM_MEAN) return shard.partners == 0 || !shard.solves_alone;
  bool parabola = shard.metric.kind == RIESZ_SOBOLEV_TILDE;
  return r.algorithm == (parabola ? ALGORITHM_MARCH : ALGORITHM_SCREENED) || shard.partners == 0;
}

// Tasks of one call, and what their kernels need.
struct Tasks {
  std::vector<riesz_task> all;
  int64_t most_entries, scratch = 0;

  void add(Call& call, int64_t i, bool streamed) {
    const riesz_shard& shard = call.shards[i];
    int64_t lanes = shard_columns_per_tile(&shard, streamed, most_entries);
    call.lanes[static_cast<size_t>(i)] = lanes;
    riesz_cut_tasks(all, i, (shard.columns + lanes - 1) / lanes, shard.rows * shard.columns);
    scratch = std::max(scratch, scratch_bytes(shard.rows) + shard_scratch_bytes());
  }
};

int32_t run(Call& call, const Tasks& tasks, riesz_parallel_for parallel_for, int64_t threads,
            void (*work)(const riesz_task&, char*, void*)) {
  int64_t count = static_cast<int64_t>(tasks.all.size());
  if (count == 0) return RIESZ_DONE;
  bool done = riesz_run(tasks.all.data(), count, tasks.scratch, parallel_for, threads, work, &call);
  return done ? RIESZ_DONE : RIESZ_NO_MEMORY;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int32_t riesz_shard_sums(void* const* data, const riesz_shard* shards, int64_t count, void* sums,
                                double* own, riesz_parallel_for parallel_for, int64_t threads) {
  try {
    Call call{data, shards, static_cast<char*>(sums), nullptr, own, riesz_kernels_in_use(), {}, {}};
    if (!std::all_of(shards, shards + count, valid)) return RIESZ_BAD_ARGUMENT;
    call.lanes.resize(static_cast<size_t>(count));
    Tasks tasks{{}, most_entries_per_tile(shards, count, parallel_for == nullptr ? 1 : threads)};
    for (int64_t i = 0; i < count; i++)
      if (shards[i].terms > 0) tasks.add(call, i, true);
    return run(call, tasks, parallel_for, threads, [](const riesz_task& t, char* memory, void* context) {
      Call& c = *static_cast<Call*>(context);
      c.k->shard_sums(c.data[t.job], &c.shards[t.job], c.sums, c.own, c.lanes[static_cast<size_t>(t.job)], t.begin, t.end,
                      memory);
    });
  } catch (const std::bad_alloc&) {
    return RIESZ_NO_MEMORY;
  }
}

EXPORT int32_t riesz_shard_walk(void* const* data, const riesz_shard* shards, int64_t count, const void* received,
                                const double* own, riesz_parallel_for parallel_for, int64_t threads) {
  try {
    Call call{data, shards, nullptr, static_cast<const char*>(received), const_cast<double*>(own),
              riesz_kernels_in_use(), {}, {}};
    if (!std::all_of(shards, shards + count, valid)) return RIESZ_BAD_ARGUMENT;
    call.lanes.resize(static_cast<size_t>(count));
    Tasks tasks{{}, most_entries_per_tile(shards, count, parallel_for == nullptr ? 1 : threads)};
    for (int64_t i = 0; i < count; i++) {
      // As float64: with partners, a screened metric must stay one at strengths where float32 cannot tell it from the march.
      call.coefficients.push_back(riesz_coefficients_of(shards[i].metric, shards[i].rows, RIESZ_FLOAT64));
      if (!can_walk(shards[i], call.coefficients.back())) return RIESZ_BAD_ARGUMENT;
      tasks.add(call, i, streams(&shards[i], &call.coefficients.back()));
    }
    return run(call, tasks, parallel_for, threads, [](const riesz_task& t, char* memory, void* context) {
      Call& c = *static_cast<Call*>(context);
      const riesz_coefficients& r = c.coefficients[static_cast<size_t>(t.job)];
      c.k->shard_walk(c.data[t.job], &c.shards[t.job], &r, c.received, c.own,
                      c.lanes[static_cast<size_t>(t.job)], t.begin, t.end, memory);
    });
  } catch (const std::bad_alloc&) {
    return RIESZ_NO_MEMORY;
  }
}
