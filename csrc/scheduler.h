// Tasks on torch's thread pool.
#pragma once
#include <stdint.h>

#include "riesz.h"

struct riesz_task {
  int64_t job, begin, end;
  int64_t cost;  // in entries
};

// Calls run(task, scratch) for every task; each thread brings `scratch` bytes. False if memory ran out.
bool riesz_run(const riesz_task* tasks, int64_t count, int64_t scratch, riesz_parallel_for parallel_for,
               int64_t threads, void (*run)(const riesz_task&, char* scratch, void* context), void* context);
