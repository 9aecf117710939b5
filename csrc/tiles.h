// How a job falls into tiles; the scheduler and the kernels must agree on it. Static, so that each translation unit
// keeps its own copy in its own instruction set.
#pragma once
#include <stdint.h>

#include "kernels.h"

// Columns side by side in one tile. A tile is walked twice or three times and should stay in the second-level cache.
[[maybe_unused]] static int64_t tile_lanes(int64_t n) { return n <= 2048 ? 64 : n <= 8192 ? 32 : 16; }

// Rows of a staged tile; the padding takes the overhang of copies that are wider than what they copy.
[[maybe_unused]] static int64_t stage_stride(int64_t n) { return tile_lanes(n) + STAGE_PAD; }

// Whether the tiles of a job are copied to a staging buffer: half types to be widened, short inner axes to be put side
// by side so that lanes are full.
[[maybe_unused]] static bool is_staged(const riesz_job* job) {
  if (job->dtype == RIESZ_FLOAT16 || job->dtype == RIESZ_BFLOAT16) return true;
  return job->outer > 1 && job->inner < tile_lanes(job->length) && job->inner % 16 != 0;
}

// Passengers of the outer axis that share one tile.
[[maybe_unused]] static int64_t outers_per_tile(const riesz_job* job) {
  int64_t fit = tile_lanes(job->length) / job->inner;
  return is_staged(job) && fit > 1 ? fit : 1;
}

[[maybe_unused]] static int64_t tiles_of(const riesz_job* job) {
  int64_t lanes = tile_lanes(job->length), together = outers_per_tile(job);
  return (job->outer + together - 1) / together * ((job->inner + lanes - 1) / lanes);
}

// Bytes a tile needs beside its own memory: the staged copy, and the forward sweep of a screened solve.
[[maybe_unused]] static int64_t scratch_bytes(int64_t n) { return n * (stage_stride(n) + tile_lanes(n)) * (int64_t)sizeof(double) + 4096; }
