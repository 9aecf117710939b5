// The kernels without Python, to be run under AddressSanitizer, UndefinedBehaviorSanitizer or valgrind.
//
// Every gradient lies in a block of memory of exactly its size, at any offset from an aligned address, so that reading
// or writing one byte beside it is seen. Results are checked by putting them into the equation they must solve.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "../riesz.h"
#include "../tiles.h"

namespace {

std::mt19937_64 generator(20);

int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(generator); }

float from_bfloat(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float f;
  std::memcpy(&f, &wide, 4);
  return f;
}

float from_half(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float size = exponent == 0 ? std::ldexp(float(fraction), -24) : std::ldexp(float(fraction + 1024), exponent - 25);
  return bits & 0x8000 ? -size : size;
}

int64_t width(int64_t dtype) { return dtype == RIESZ_FLOAT64 ? 8 : dtype == RIESZ_FLOAT32 ? 4 : 2; }

// An allocation whose last byte is the gradient's last byte.
struct Gradient {
  riesz_job job;
  int64_t entries, offset;
  char* block;
  std::vector<double> before;

  Gradient() {
    int64_t kind = between(0, 9);
    job.length = kind < 6 ? between(1, 40) : kind < 9 ? between(41, 700) : between(2000, 20000);
    job.blocks = between(1, 3);
    job.outer = job.blocks * (kind == 9 ? 1 : between(1, kind < 6 ? 80 : 4));
    job.inner = kind == 9 ? between(1, 3) : between(1, 2) == 1 ? between(1, 20) : between(1, 200);
    while (job.outer * job.length * job.inner > 60000) job.inner = (job.inner + 1) / 2, job.outer = job.blocks;
    job.dtype = between(0, 3);
    entries = job.outer * job.length * job.inner;
    offset = between(0, 1) ? between(0, 15) : 0;
    block = static_cast<char*>(std::malloc(static_cast<size_t>(offset + entries * width(job.dtype))));
    std::normal_distribution<double> normal(between(0, 1) ? 0 : 3, 1);
    for (int64_t i = 0; i < entries; i++) write(i, normal(generator));
    for (int64_t i = 0; i < entries; i++) before.push_back(read(i));
  }
  ~Gradient() { std::free(block); }
  Gradient(const Gradient&) = delete;

  char* data() const { return block + offset; }
  double read(int64_t i) const {
    const char* p = data() + i * width(job.dtype);
    if (job.dtype == RIESZ_FLOAT64) { double x; std::memcpy(&x, p, 8); return x; }
    if (job.dtype == RIESZ_FLOAT32) { float x; std::memcpy(&x, p, 4); return x; }
    uint16_t bits;
    std::memcpy(&bits, p, 2);
    return job.dtype == RIESZ_FLOAT16 ? from_half(bits) : from_bfloat(bits);
  }
  void write(int64_t i, double value) {
    char* p = data() + i * width(job.dtype);
    float f = float(value);
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    uint16_t top = uint16_t(bits >> 16), half = uint16_t((bits >> 16 & 0x8000) | (between(15, 16) << 10) | between(0, 1023));
    if (job.dtype == RIESZ_FLOAT64) std::memcpy(p, &value, 8);
    else if (job.dtype == RIESZ_FLOAT32) std::memcpy(p, &f, 4);
    else std::memcpy(p, job.dtype == RIESZ_FLOAT16 ? &half : &top, 2);
  }
};

// How far A f is from what was written, relative to the largest entry: the residual of the equation divided by the
// largest eigenvalue of its left side.
double error(const Gradient& g, const riesz_metric& m) {
  const riesz_job& job = g.job;
  int64_t n = job.length;
  double worst = 0, n2 = double(n) * double(n);
  if (m.kind == RIESZ_CENTRALIZATION) {
    int64_t outers = job.outer / job.blocks;
    for (int64_t b = 0; b < job.blocks; b++) {
      for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        auto at = [&](int64_t o, int64_t c) { return ((b * outers + o) * n + i) * job.inner + c; };
        for (int64_t o = 0; o < outers; o++) for (int64_t c = 0; c < job.inner; c++) sum += g.before[size_t(at(o, c))];
        sum /= double(outers * job.inner);
        for (int64_t o = 0; o < outers; o++)
          for (int64_t c = 0; c < job.inner; c++)
            worst = std::max(worst, std::fabs(g.read(at(o, c)) - (g.before[size_t(at(o, c))] - sum)) / 6);
      }
    }
    return worst;
  }
  for (int64_t o = 0; o < job.outer; o++) {
    for (int64_t c = 0; c < job.inner; c++) {
      auto at = [&](int64_t i) { return (o * n + (i + n) % n) * job.inner + c; };
      auto f = [&](int64_t i) { return g.before[size_t(at(i))]; };
      auto u = [&](int64_t i) { return (g.read(at(i)) - m.blend * f(i)) / m.scale; };
      double mean_f = 0, mean_u = 0, size = 1e-3;
      for (int64_t i = 0; i < n; i++) mean_f += f(i) / double(n), mean_u += u(i) / double(n);
      for (int64_t i = 0; i < n; i++) size = std::max({size, std::fabs(g.read(at(i))), std::fabs(f(i))});
      // The residual says little about the mean where the equation is stiff: look at it by itself.
      double kept = m.kind == RIESZ_REWEIGHTED_L2 ? 1 + m.strength : m.kind == RIESZ_SOBOLEV_TILDE && m.riemann ? 1 + 1 / (12 * m.strength * n2) : 1;
      worst = std::max(worst, std::fabs(mean_u - kept * mean_f) / size * m.scale);
      for (int64_t i = 0; i < n; i++) {
        double d = u(i + 1) - 2 * u(i) + u(i - 1), left, largest;
        double sigma = m.kind == RIESZ_LAPLACIAN_SMOOTHING ? m.strength : m.strength * n2;
        if (m.kind == RIESZ_IDENTITY) left = u(i), largest = 1;
        else if (m.kind == RIESZ_REWEIGHTED_L2) left = u(i) - m.strength / (1 + m.strength) * mean_u, largest = 1;
        else if (m.kind == RIESZ_SOBOLEV_TILDE) left = mean_u / (m.riemann ? 1 + 1 / (12 * sigma) : 1) - sigma * d, largest = 1 + 4 * sigma;
        else left = u(i) - sigma * d, largest = 1 + 4 * sigma;
        worst = std::max(worst, std::fabs(left - f(i)) / (largest * size) * m.scale);
      }
    }
  }
  return worst;
}

// Two threads, as far apart as they can be.
int32_t two_threads(int64_t begin, int64_t end, int64_t, void (*body)(int64_t, int64_t, void*), void* context) {
  std::thread other(body, begin + (end - begin) / 2, end, context);
  body(begin, begin + (end - begin) / 2, context);
  other.join();
  return 0;
}

// The shards of one gradient: each outer by itself, ReweightedL2 cut into two runs of rows, SobolevTilde from sums that
// are kept between the two calls, every other metric by itself. The result is that of riesz_direct.
int32_t direct_as_shards(const Gradient& g, const riesz_metric& m) {
  const int64_t n = g.job.length, inner = g.job.inner;
  const bool mean = m.kind == RIESZ_REWEIGHTED_L2 && n > 1, kept = m.kind == RIESZ_SOBOLEV_TILDE;
  const double weight = m.scale * m.strength / double(n), slope = -1 / (m.strength * double(n) * double(n));
  std::vector<double> ones(size_t(n), 1), both = {weight, weight, 0, 0, 0, 0}, moments;
  std::vector<double> alone = {1 / double(n), 0, 0, 0, slope, 0, 1 / double(n), slope / 2, -double(n) * slope / 2};
  for (int power = 0; power < 3; power++)
    for (int64_t i = 0; i < n; i++) {
      double u = (double(i) - double(n - 1) / 2) / double(n), spread = (1 - 1 / double(n * n)) / 12;
      moments.push_back(power == 0 ? 1 : power == 1 ? u : u * u - spread);
    }
  std::vector<void*> data;
  std::vector<riesz_shard> shards;
  std::vector<int64_t> offsets(size_t(4 * g.job.outer));
  for (int64_t o = 0; o < g.job.outer; o++) {
    int64_t cut = mean ? between(1, n - 1) : n, first = 16 * o * inner, second = first + 8 * inner;
    for (int64_t row = 0; row < n; row += row == 0 ? cut : n) {
      riesz_shard shard = {row == 0 ? cut : n - cut, inner, inner, g.job.dtype, 0, 0, RIESZ_FLOAT64, inner, 0, 0,
                           nullptr, 0, 1, nullptr, nullptr, nullptr, 0, m};
      if (mean) {
        int64_t* partners = offsets.data() + 4 * o;
        partners[0] = partners[1] = first, partners[2] = partners[3] = second;
        shard.terms = shard.exact = 1, shard.table = ones.data(), shard.exact_offset = row == 0 ? first : second;
        shard.partners = 2, shard.solves_alone = 0, shard.coupling = both.data(), shard.offsets = partners;
      } else if (kept) {
        shard.terms = 3, shard.exact = 1, shard.inexact_dtype = RIESZ_FLOAT32, shard.table = moments.data();
        shard.exact_offset = first, shard.inexact_offset = second;
        if (g.job.dtype != RIESZ_FLOAT64) shard.alone = alone.data(), shard.own_offset = 3 * o * inner;
      }
      data.push_back(g.data() + (o * n + row) * inner * width(g.job.dtype));
      shards.push_back(shard);
    }
  }
  std::vector<double> sums(size_t(2 * g.job.outer * inner)), own(size_t(3 * g.job.outer * inner));
  int64_t count = int64_t(shards.size());
  int32_t code = riesz_shard_sums(data.data(), shards.data(), count, sums.data(), own.data(), two_threads, 2);
  if (code != RIESZ_DONE) return code;
  return riesz_shard_walk(data.data(), shards.data(), count, sums.data(), own.data(), two_threads, 2);
}

// One large shard is shared by all threads, and one without columns is no work.
bool tiles_are_shared() {
  riesz_metric m = {RIESZ_SOBOLEV_TILDE, 0, 1, 1, 0};
  riesz_shard large = {8192, 4096, 4096, RIESZ_FLOAT32, 0, 0, RIESZ_FLOAT64, 4096, 0, 0,
                       nullptr, 0, 0, nullptr, nullptr, nullptr, 0, m};
  riesz_shard none = large;
  none.columns = none.stride = 0;
  for (int64_t threads = 1; threads <= 64; threads *= 2) {
    int64_t width = shard_columns_per_tile(&large, true, most_entries_per_tile(&large, 1, threads));
    if (width > STREAMED_COLUMNS || (large.columns + width - 1) / width < threads) return false;
  }
  void* data[] = {nullptr};
  return riesz_shard_walk(data, &none, 1, nullptr, nullptr, two_threads, 2) == RIESZ_DONE;
}

const double TOLERANCE[] = {2e-6, 1e-11, 2e-3, 1.6e-2};

}  // namespace

int main(int count, char** arguments) {
  int64_t rounds = count > 1 ? std::atoll(arguments[1]) : 2000, cases = 1, wrong = tiles_are_shared() ? 0 : 1;
  for (const char* set : {"avx512", "avx2", "portable"}) {
    if (!riesz_use_instructions(set)) {
      std::printf("%s: not on this machine\n", set);
      continue;
    }
    double worst[4] = {};
    for (int64_t round = 0; round < rounds; round++) {
      int64_t together = between(1, 4);
      std::vector<Gradient> gradients(static_cast<size_t>(together));
      std::vector<void*> data;
      std::vector<riesz_job> jobs;
      for (const Gradient& g : gradients) data.push_back(g.data()), jobs.push_back(g.job);
      riesz_metric metric = {between(0, 5), between(0, 1), std::pow(10.0, double(between(-3, 1))), between(0, 1) ? 1 : 0.5, double(between(0, 1))};
      bool walks = metric.kind != RIESZ_CENTRALIZATION && metric.kind != RIESZ_IDENTITY;
      if (round % 3 == 0) {
        metric.riemann = 0;
        for (const Gradient& g : gradients)
          wrong += direct_as_shards(g, metric) != (walks ? RIESZ_DONE : RIESZ_BAD_ARGUMENT);
        if (!walks) continue;
      } else if (riesz_direct(data.data(), jobs.data(), together, &metric, two_threads, 2) != RIESZ_DONE) {
        wrong++;
      }
      for (const Gradient& g : gradients) {
        double e = error(g, metric);
        cases++;
        worst[g.job.dtype] = std::max(worst[g.job.dtype], e);
        if (!(e <= TOLERANCE[g.job.dtype])) {
          wrong++;
          std::printf("wrong by %g: %s kind %d strength %g, (%d, %d, %d) in %d blocks, dtype %d\n", e, set, int(metric.kind),
                      metric.strength, int(g.job.outer), int(g.job.length), int(g.job.inner), int(g.job.blocks), int(g.job.dtype));
        }
      }
    }
    std::printf("%s: largest errors float32 %.1e, float64 %.1e, float16 %.1e, bfloat16 %.1e\n", riesz_instructions(),
                worst[0], worst[1], worst[2], worst[3]);
  }
  // Shared memory is refused before anything is written.
  float shared[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  void* both[] = {shared, shared + 1};
  riesz_job job[] = {{1, 4, 1, 1, RIESZ_FLOAT32}, {1, 4, 1, 1, RIESZ_FLOAT32}};
  riesz_metric tilde = {RIESZ_SOBOLEV_TILDE, 0, 1, 1, 1};
  if (riesz_direct(both, job, 2, &tilde, two_threads, 2) != RIESZ_OVERLAP || shared[1] != 2) wrong++;
  std::printf("%lld cases, %lld wrong\n", static_cast<long long>(cases), static_cast<long long>(wrong));
  return wrong != 0;
}
