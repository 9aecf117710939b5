#include "coefficients.h"

#include <cmath>

namespace {

// Above this lam the eigenvalues 1/(1 + lam n^2 w) and 1/(lam n^2 w) differ by less than 1/(4 pi^2 lam) of themselves,
// 3e-10 in float64 and 9e-7 in narrower types: the two metrics are one to those digits, and the march needs no z, which
// would soon round to 1.
double same_as_tilde(int64_t dtype) { return dtype == RIESZ_FLOAT64 ? 1e8 : 3e4; }

void march(riesz_coefficients& r, double lam, bool riemann) {
  r.algorithm = ALGORITHM_MARCH;
  r.lam = lam;
  r.mean_factor = riemann ? 1 + 1 / (12 * lam * r.n * r.n) : 1;
}

// z = 2 sigma / (1 + 2 sigma + sqrt(1 + 4 sigma)) does not cancel. Everything else is derived from z as rounded, so
// that the recursions and their starting values belong to one and the same operator.
void screened(riesz_coefficients& r, double sigma) {
  r.algorithm = ALGORITHM_SCREENED;
  r.z = 2 * sigma / (1 + 2 * sigma + std::sqrt(1 + 4 * sigma));
  r.log_z = r.z < 0.5 ? std::log(r.z) : std::log1p(-(1 - r.z));
  r.turn = -1 / std::expm1(r.n * r.log_z);
  r.z_n = std::exp(r.n * r.log_z);
  r.gain = r.scale * (1 - r.z) * (1 - r.z);
  // e^-45 is 3e-20; the longest axis bounds it where z is close to 1.
  r.reach = (int64_t)std::fmin(std::ceil(-45 / r.log_z), r.n);
  r.strong = r.n * (1 - r.z) < 1;
}

}  // namespace

riesz_coefficients riesz_coefficients_of(const riesz_metric& metric, int64_t n, int64_t dtype) {
  riesz_coefficients r = {};
  r.n = (double)n, r.scale = metric.scale, r.blend = metric.blend;
  r.factor = metric.scale + metric.blend;
  double lam = metric.strength, sigma = lam * r.n * r.n;
  if (metric.kind == RIESZ_LAPLACIAN_SMOOTHING) sigma = lam, lam = sigma / (r.n * r.n);
  switch (metric.kind) {
    case RIESZ_IDENTITY:
      r.algorithm = ALGORITHM_SCALE;
      break;
    case RIESZ_REWEIGHTED_L2:
      r.algorithm = ALGORITHM_MEAN;
      r.mean_factor = metric.scale * lam;
      break;
    case RIESZ_SOBOLEV_TILDE:
      march(r, lam, metric.riemann != 0);
      break;
    case RIESZ_CENTRALIZATION:
      r.algorithm = ALGORITHM_CENTRAL;
      r.factor = 1;  // a projection has neither scale nor blend
      break;
    default:
      if (lam > same_as_tilde(dtype)) march(r, lam, false);
      else screened(r, sigma);
  }
  return r;
}
