// Columns so long, and so few, that the columns alone keep neither the lanes of a register nor the threads busy:
// rasterized gradients, above all. Each is cut into segments that are walked side by side.
#pragma once
#include <stdint.h>

#include <vector>

#include "kernels.h"

// Staging memory of one piece.
const int64_t riesz_stage_bytes = (MAX_SEGMENT * (MAX_LANES + STAGE_PAD) + STAGE_PAD) * int64_t(sizeof(double));

struct riesz_long_column {
  int64_t job;
  void* data;
  int64_t dtype, n;
  riesz_coefficients coefficients;
  double shift;
  std::vector<riesz_piece> pieces;
  std::vector<double> sums;  // per piece: sums, replaced by starts, each [3][64]
};

// Whether one thread takes the sums, joins them and walks, all while the column is in its cache.
bool riesz_is_small(const riesz_long_column& column);

// Whether pieces need to know only their surroundings, because the recursions decay within a few rows:
// then a column beyond the cache is read once instead of twice.
bool riesz_is_local(const riesz_long_column& column);

// Of a column whose pieces were solved alone: whether all its entries were finite.
bool riesz_all_finite(const riesz_long_column& column);

bool riesz_is_long(const riesz_job& job, const riesz_coefficients& coefficients);
riesz_long_column riesz_cut(int64_t job, void* data, int64_t dtype, int64_t n, const riesz_coefficients& coefficients);

// Sums of all segments to the values each segment's walk starts from.
void riesz_join(riesz_long_column& column);
