#include "long_column.h"

#include <cmath>
#include <cstring>

namespace {

const int64_t SEGMENT = MAX_SEGMENT;
const int64_t SMALL = 65536;

// Reading the surroundings of a piece must stay cheap against the piece.
const int64_t FARTHEST = 256;

// One segment in order along the column.
struct Segment {
  double* sums;  // at [0], [64], [128]
  int64_t first, length;
};

std::vector<Segment> in_order(riesz_long_column& column) {
  std::vector<Segment> all;
  for (size_t p = 0; p < column.pieces.size(); p++) {
    const riesz_piece& piece = column.pieces[p];
    for (int64_t l = 0; l < piece.lanes; l++)
      all.push_back({&column.sums[p * SUMS * MAX_LANES + l], piece.start + l * piece.length, piece.length});
  }
  return all;
}

void join_mean(const riesz_coefficients& r, double shift, std::vector<Segment>& all) {
  double total = 0;
  for (const Segment& s : all) total += s.sums[0];
  for (Segment& s : all) s.sums[0] = r.mean_factor * (shift + total / r.n);
}

// Moments about the segment's first index first; then the march in strides of whole segments:
// s -= k D0, g += m s - k (m D0 - D1) with D0 = sum fd, D1 = sum j fd.
void join_march(const riesz_coefficients& r, double shift, std::vector<Segment>& all) {
  const double n = r.n;
  double s0 = 0;
  for (const Segment& s : all) s0 += s.sums[0];
  const double m = s0 / n;
  double d1 = 0, d2 = 0;
  for (Segment& s : all) {
    double first = (double)s.first, len = (double)s.length;
    s.sums[0] -= m * len;
    s.sums[MAX_LANES] -= m * (len * (len - 1) / 2);
    s.sums[2 * MAX_LANES] -= m * ((len - 1) * len * (2 * len - 1) / 6);
    d1 += first * s.sums[0] + s.sums[MAX_LANES];
    // About the middle of the column, where j^2 - n j is a square less a constant, and fd has no sum.
    double off = first - n / 2;
    d2 += off * off * s.sums[0] + 2 * off * s.sums[MAX_LANES] + s.sums[2 * MAX_LANES];
  }
  const double k = 1 / (r.lam * n * n), mean = shift + m;
  double slope = -k * d1 / n, g = r.mean_factor * mean + k * d2 / (2 * n);
  for (Segment& s : all) {
    double len = (double)s.length, D0 = s.sums[0], D1 = s.sums[MAX_LANES];
    s.sums[0] = mean, s.sums[MAX_LANES] = slope, s.sums[2 * MAX_LANES] = g;
    g += len * slope - k * (len * D0 - D1);
    slope -= k * D0;
  }
}

// y and h at the borders of segments, by the same recursions with z^m for z; see laplacian_smoothing.inc.
void join_screened(const riesz_coefficients& r, double shift, std::vector<Segment>& all) {
  const double lost = 1 - r.z, lost2 = lost * (1 + r.z);
  double total = 0;
  for (const Segment& s : all) total += s.sums[0];
  const double m = total / r.n;
  int64_t length = -1;
  double zm = 0, ones = 0, beyond = 0;  // z^m, sum of z^j over a segment, 1 - z^(m+1)
  auto at = [&](const Segment& s) {
    if (s.length == length) return;
    length = s.length;
    zm = std::exp((double)length * r.log_z);
    ones = -std::expm1((double)length * r.log_z) / lost;
    beyond = -std::expm1((double)(length + 1) * r.log_z);
  };
  double y = 0;
  for (Segment& s : all) {
    at(s);
    double &ending = s.sums[MAX_LANES], &own = s.sums[2 * MAX_LANES], centred = s.sums[0] - m * ones;
    // W - z^(m+1) E, from S - E and S - W or from E and W themselves.
    if (r.strong) own = centred * beyond - own + r.z * zm * ending, ending = centred - ending;
    else own -= m * ones, ending -= m * ones, own -= r.z * zm * ending;
    y = ending + zm * y;
  }
  y *= r.turn;
  double h = 0, power = 1;
  for (Segment& s : all) {
    at(s);
    double ending = s.sums[MAX_LANES];
    s.sums[0] = shift + m;
    s.sums[MAX_LANES] = y;
    // The sum of z^j y over this segment; what h needs from it.
    double own = s.sums[2 * MAX_LANES] / lost2 + y * r.z * ones * (1 + zm) / (1 + r.z);
    s.sums[2 * MAX_LANES] = own;
    h += power * own;
    power *= zm;
    y = ending + zm * y;
  }
  h *= r.turn;
  for (size_t i = all.size(); i-- > 0;) {
    at(all[i]);
    double own = all[i].sums[2 * MAX_LANES];
    all[i].sums[2 * MAX_LANES] = h;
    h = own + zm * h;
  }
}

// The mean of a float64 column, taken from the difference to its first entry: that of a constant one is exact.
double mean_of(const void* data, int64_t n) {
  const int64_t wide = 8;
  double first, part[wide] = {}, entry;
  std::memcpy(&first, data, sizeof first);
  for (int64_t i = 0; i < n; i++) {
    std::memcpy(&entry, static_cast<const char*>(data) + i * 8, sizeof entry);
    part[i % wide] += entry - first;
  }
  double sum = 0;
  for (double p : part) sum += p;
  return first + sum / (double)n;
}

}  // namespace

bool riesz_is_long(const riesz_job& job, const riesz_coefficients& coefficients) {
  return job.inner == 1 && job.length >= 512 && job.outer <= 16 && coefficients.algorithm != ALGORITHM_SCALE &&
         coefficients.algorithm != ALGORITHM_CENTRAL;
}

bool riesz_is_small(const riesz_long_column& column) { return column.n <= SMALL; }

bool riesz_all_finite(const riesz_long_column& column) {
  double total = 0;
  for (size_t p = 0; p < column.pieces.size(); p++) total += column.sums[p * SUMS * MAX_LANES + 2];
  return std::isfinite(total);
}

bool riesz_is_local(const riesz_long_column& column) {
  return column.coefficients.algorithm == ALGORITHM_SCREENED && column.coefficients.reach <= FARTHEST;
}

riesz_long_column riesz_cut(int64_t job, void* data, int64_t dtype, int64_t n, const riesz_coefficients& coefficients) {
  // Only float64 shifts its sums; see `shifted`.
  riesz_long_column column{job, data, dtype, n, coefficients, 0, {}, {}};
  if (dtype == RIESZ_FLOAT64 && !riesz_is_local(column)) column.shift = mean_of(data, n);
  const int64_t full = MAX_LANES * SEGMENT;
  const bool kept = riesz_is_small(column) && !riesz_is_local(column);
  int64_t start = 0, stage = 0;
  auto add = [&](int64_t lanes, int64_t length) {
    column.pieces.push_back({start, lanes, length, kept ? stage : -1});
    start += lanes * length, stage += riesz_stage_bytes;
  };
  while (start + full <= n) add(MAX_LANES, SEGMENT);
  if (int64_t length = (n - start) / MAX_LANES) add(MAX_LANES, length);
  if (start < n) add(1, n - start);
  column.sums.resize(column.pieces.size() * SUMS * MAX_LANES);
  return column;
}

void riesz_join(riesz_long_column& column) {
  std::vector<Segment> all = in_order(column);
  if (column.coefficients.algorithm == ALGORITHM_MEAN) join_mean(column.coefficients, column.shift, all);
  else if (column.coefficients.algorithm == ALGORITHM_MARCH) join_march(column.coefficients, column.shift, all);
  else join_screened(column.coefficients, column.shift, all);
}
