#include "scheduler.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <vector>

namespace {

// Entries per task: enough to make fetching one cheap, few enough that threads end together.
const int64_t ENTRIES_PER_TASK = 8192;

// Less work than this is done before another thread wakes up.
const int64_t WORTH_A_THREAD = 16384;

// Scratch is kept between steps, but not if one odd gradient needed a lot.
const size_t KEEP = size_t(8) << 20;

// Freed with its thread, so that no pool of threads leaks.
struct Scratch {
  char* data = nullptr;
  size_t size = 0;
  char* at_least(size_t bytes) {
    if (bytes > size) {
      std::free(data);
      size = (bytes + 63) / 64 * 64;
      data = static_cast<char*>(std::aligned_alloc(64, size));
      if (data == nullptr) size = 0;
    }
    return data;
  }
  void trim() {
    if (size > KEEP) std::free(data), data = nullptr, size = 0;
  }
  ~Scratch() { std::free(data); }
};
thread_local Scratch scratch_of_thread;

// Each thread owns a contiguous share of the tasks, the same every step, so that small gradients stay in its cache;
// when it is through it helps the others.
struct Share {
  alignas(64) std::atomic<int64_t> next;
  int64_t end;
};

struct Run {
  const riesz_task* tasks;
  std::vector<Share> shares;
  int64_t scratch;
  void (*run)(const riesz_task&, char*, void*);
  void* context;
  std::atomic<bool> no_memory{false};

  explicit Run(int64_t threads) : shares(static_cast<size_t>(threads)) {}

  void work(size_t own) {
    char* memory = scratch_of_thread.at_least(static_cast<size_t>(scratch));
    if (memory == nullptr) {
      no_memory = true;
      return;
    }
    for (size_t k = 0; k < shares.size(); k++) {
      Share& share = shares[(own + k) % shares.size()];
      for (int64_t i; (i = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;) run(tasks[i], memory, context);
    }
    scratch_of_thread.trim();
  }
};

void body(int64_t begin, int64_t end, void* context) {
  for (int64_t t = begin; t < end; t++) static_cast<Run*>(context)->work(static_cast<size_t>(t));
}

}  // namespace

void riesz_cut_tasks(std::vector<riesz_task>& tasks, int64_t job, int64_t units, int64_t cost) {
  if (units == 0) return;
  int64_t each = std::max(int64_t(1), ENTRIES_PER_TASK * units / std::max(cost, int64_t(1)));
  for (int64_t begin = 0; begin < units; begin += each) {
    int64_t end = std::min(begin + each, units);
    tasks.push_back({job, begin, end, (end - begin) * (cost / units)});
  }
}

bool riesz_run(const riesz_task* tasks, int64_t count, int64_t scratch, riesz_parallel_for parallel_for,
               int64_t threads, void (*run)(const riesz_task&, char*, void*), void* context) {
  int64_t cost = 0;
  for (int64_t i = 0; i < count; i++) cost += tasks[i].cost;
  threads = parallel_for == nullptr ? 1 : std::clamp(cost / WORTH_A_THREAD, int64_t(1), std::max(threads, int64_t(1)));
  Run all(threads);
  all.tasks = tasks, all.scratch = scratch, all.run = run, all.context = context;
  int64_t i = 0, before = 0;
  for (int64_t t = 0; t < threads; t++) {
    Share& share = all.shares[static_cast<size_t>(t)];
    share.next = i;
    for (; i < count && (before < (t + 1) * (cost / threads) || t == threads - 1); i++) before += tasks[i].cost;
    share.end = i;
  }
  if (threads == 1) body(0, 1, &all);
  else parallel_for(0, threads, 1, body, &all);
  return !all.no_memory;
}
