// How a job falls into tiles, and what scratch memory a tile needs; the scheduler and the kernels must agree on it.
// Static, so that each translation unit keeps its own copy in its own instruction set.
#pragma once
#include <stdint.h>

#include "kernels.h"

#define TILES [[maybe_unused]] static

// Entries of a tile: it is walked twice and should stay in the second-level cache.
enum { TILE_ENTRIES = 1 << 18 };

// Lanes of a staged tile.
TILES int64_t stage_lanes(int64_t n) { return n <= 2048 ? 64 : n <= 8192 ? 32 : 16; }

// From row to row of a staged tile; the padding takes the overhang of copies that are wider than what they copy.
TILES int64_t stage_stride(int64_t n) { return stage_lanes(n) + STAGE_PAD; }

// Whether the tiles of a job are copied to a staging buffer: short inner axes, put side by side so that lanes are full.
TILES bool is_staged(const riesz_job* job) {
  return job->outer > 1 && job->inner < stage_lanes(job->length) && job->inner % 16 != 0;
}

// Whether a job with short inner axes is computed plane by plane, where it lies: a mean needs no neighbouring rows.
TILES bool has_merged_rows(const riesz_job* job, const riesz_coefficients* r) {
  return r->algorithm == ALGORITHM_MEAN && is_staged(job);
}

// Rows of such a plane that are taken as one: at least so many as are a whole number of registers, if there are.
TILES int64_t merged_rows(int64_t n, int64_t inner, int64_t lanes) {
  int64_t rows = 1;
  while (rows * inner % lanes != 0) rows *= 2;
  while (2 * rows * inner <= 8 * lanes && 8 * rows <= n) rows *= 2;
  return rows;
}

// Indices of the outer axis that share one tile.
TILES int64_t outers_per_tile(const riesz_job* job) {
  int64_t fit = stage_lanes(job->length) / job->inner;
  return is_staged(job) && fit > 1 ? fit : 1;
}

// The width of tiles that cover `columns` evenly, so that no thread gets a much smaller one: `wanted` or less, and at
// most `limit`, a multiple of MAX_LANES.
TILES int64_t even_share(int64_t columns, int64_t wanted, int64_t limit) {
  int64_t most = wanted / MAX_LANES * MAX_LANES;
  if (most < MAX_LANES) most = MAX_LANES;
  if (most > limit) most = limit;
  int64_t tiles = (columns + most - 1) / most;
  return ((columns + tiles - 1) / tiles + MAX_LANES - 1) / MAX_LANES * MAX_LANES;
}

// Columns of the inner axis in one tile.
TILES int64_t columns_per_tile(const riesz_job* job) {
  if (is_staged(job)) return stage_lanes(job->length);
  return even_share(job->inner, TILE_ENTRIES / job->length, MAX_COLUMNS);
}

// Entries of a tile of shards that leaves work for all threads: half of what is due to each of them.
TILES int64_t most_entries_per_tile(const riesz_shard* shards, int64_t count, int64_t threads) {
  int64_t entries = 0;
  for (int64_t i = 0; i < count; i++) entries += shards[i].rows * shards[i].columns;
  return threads <= 1 ? entries : entries / (2 * threads);
}

// Columns of a shard in one tile of at most `most_entries`. A tile that is walked once need not fit a cache: it has whole
// rows, which lie side by side in memory, unless that would leave a thread without work.
TILES int64_t shard_columns_per_tile(const riesz_shard* shard, bool streamed, int64_t most_entries) {
  if (shard->columns == 0) return 1;
  riesz_job job = {1, shard->rows, shard->columns, 1, shard->dtype};
  if (is_staged(&job) || !streamed) return columns_per_tile(&job);
  return even_share(shard->columns, most_entries / shard->rows, STREAMED_COLUMNS);
}

// Whether the walk of a shard knows what it starts from, so that it reads each row once.
TILES bool streams(const riesz_shard* shard, const riesz_coefficients* r) {
  if (r->algorithm == ALGORITHM_MARCH && shard->alone) return true;
  return r->algorithm != ALGORITHM_SCREENED && !shard->solves_alone;
}

TILES int64_t tiles_of(const riesz_job* job) {
  int64_t columns = columns_per_tile(job), together = outers_per_tile(job);
  return (job->outer + together - 1) / together * ((job->inner + columns - 1) / columns);
}

// Whether Gradient Centralization takes the rows of several indices of the directed axis at once, or, where they are long
// or there is one for each index, one after the other.
TILES bool is_centralized_by_tiles(const riesz_job* job) {
  return job->outer > job->blocks && job->inner <= MAX_COLUMNS / 2;
}

// Indices of the directed axis in one of its tiles.
TILES int64_t rows_per_centralized_tile(const riesz_job* job) {
  if (!is_centralized_by_tiles(job)) return 1;
  int64_t columns = TILE_ENTRIES / (job->outer / job->blocks);
  if (columns < MAX_LANES) columns = MAX_LANES;
  if (columns > MAX_COLUMNS) columns = MAX_COLUMNS;
  int64_t most = columns < job->inner ? 1 : columns / job->inner, tiles = (job->length + most - 1) / most;
  return (job->length + tiles - 1) / tiles;
}

TILES int64_t centralized_tiles_of(const riesz_job* job) {
  int64_t together = rows_per_centralized_tile(job);
  return job->blocks * ((job->length + together - 1) / together);
}

// Rows of the forward sweep that is kept: those of one block, or of a whole piece of a long column.
TILES int64_t sweep_rows(int64_t n) { return n <= MAX_SEGMENT ? MAX_SEGMENT : BLOCK_ROWS; }

// Numbers of a shard's columns: sums, or starting values.
TILES int64_t shard_scratch_bytes() { return SUMS * STREAMED_COLUMNS * (int64_t)sizeof(double); }

TILES int64_t scratch_bytes(int64_t n) {
  int64_t numbers = (1 + SUMS + SUMS + 1 + n / BLOCK_ROWS + 1) * MAX_COLUMNS + sweep_rows(n) * MAX_LANES;
  return (numbers + n * stage_stride(n) + STAGE_PAD) * (int64_t)sizeof(double);
}
