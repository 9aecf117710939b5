// What the scheduler asks of an instruction set, and what it tells it. No code here: this header is compiled into
// translation units of different instruction sets, and an inline function in it would be linked from any one of them.
#pragma once
#include <stdint.h>

#include "riesz.h"

// How a metric is computed. Every one of them is: up to three sums over each column, from them up to three starting
// values, then one more walk along the column.
enum riesz_algorithm { ALGORITHM_SCALE, ALGORITHM_MEAN, ALGORITHM_MARCH, ALGORITHM_SCREENED, ALGORITHM_CENTRAL };

// The numbers of one metric on an axis of length n, worked out once per job.
struct riesz_coefficients {
  int64_t algorithm;
  double n, scale, blend;
  double factor;        // SCALE: g = factor f. MEAN: g = factor f + mean_factor mean(f)
  double mean_factor;   // MEAN, and MARCH: what the mean is multiplied by
  double lam;           // MARCH
  double z;             // SCREENED: the decay per index, 0 < z < 1
  double turn;          // SCREENED: 1 / (1 - z^n)
  double gain;          // SCREENED: scale (1 - z)^2
  double log_z, z_n;    // SCREENED: log z and z^n
  int64_t reach;        // SCREENED: z^reach no longer counts in float64
  bool strong;          // SCREENED: z^n is close to 1, and sums are taken of 1 - z^j; see laplacian_smoothing.inc
};

enum { MAX_LANES = 64, MAX_COLUMNS = 512, STREAMED_COLUMNS = 4096, BLOCK_ROWS = 32, STAGE_PAD = 16, SUMS = 3, MAX_SEGMENT = 128 };

// A piece of one long column: `lanes` neighbouring segments of `length` entries each, from `start` on.
struct riesz_piece {
  int64_t start, lanes, length;
  int64_t stage;  // -1, or where in the staging memory it stays between its sums and its walk
};

struct riesz_kernels {
  const char* name;
  // Column tiles unit_begin..unit_end of a job.
  void (*columns)(void* data, const riesz_job* job, const riesz_coefficients* coefficients, int64_t unit_begin,
                  int64_t unit_end, char* scratch);
  // One long column: the sums of every segment of a piece, as sums[k * 64 + lane]; then the walk from given starts.
  void (*piece_sums)(const void* column, int64_t dtype, const riesz_coefficients* coefficients,
                     const riesz_piece* piece, double shift, double* sums, char* scratch);
  void (*piece_walk)(void* column, int64_t dtype, const riesz_coefficients* coefficients, const riesz_piece* piece,
                     double* starts, char* scratch);
  // The same where the recursions are local: what a piece must know of its surroundings, E and W as borders[0] and
  // [1], read before anything is written; then the piece by itself, in one go, which leaves its sum in borders[2].
  void (*piece_borders)(const void* column, int64_t dtype, int64_t n, const riesz_coefficients* coefficients,
                        const riesz_piece* piece, double* borders);
  void (*piece_alone)(void* column, int64_t dtype, const riesz_coefficients* coefficients, const riesz_piece* piece,
                      double* borders, char* scratch);
  // Tiles begin..end of a shard, `lanes` columns each: its sums, into `to` and `own`; then its walk, given the sums of
  // all ranks.
  void (*shard_sums)(void* data, const riesz_shard* shard, char* to, double* own, int64_t lanes, int64_t begin,
                     int64_t end, char* scratch);
  void (*shard_walk)(void* data, const riesz_shard* shard, const riesz_coefficients* coefficients, const char* received,
                     const double* own, int64_t lanes, int64_t begin, int64_t end, char* scratch);
  // g = factor f on entries begin..end.
  void (*scale)(void* data, int64_t dtype, double factor, int64_t begin, int64_t end);
  // Units begin..end of a job, rows of the directed axis, lose their mean.
  void (*centralize)(void* data, const riesz_job* job, const riesz_coefficients* coefficients, int64_t begin,
                     int64_t end, char* scratch);
};

// The table of the instruction set in use.
const riesz_kernels* riesz_kernels_in_use();

extern const riesz_kernels riesz_portable;
#if defined(__x86_64__)
extern const riesz_kernels riesz_avx2;
extern const riesz_kernels riesz_avx512;
#endif
