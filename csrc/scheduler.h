// Tasks on torch's thread pool.
#pragma once
#include <stdint.h>

#include <vector>

#include "riesz.h"

struct riesz_task {
  int64_t job, begin, end;
  int64_t cost;  // in entries
};

// Adds tasks that cover units 0..units of a job, whose cost they share.
void riesz_cut_tasks(std::vector<riesz_task>& tasks, int64_t job, int64_t units, int64_t cost);

// Calls run(task, scratch) for every task; each thread brings `scratch` bytes. False if memory ran out.
bool riesz_run(const riesz_task* tasks, int64_t count, int64_t scratch, riesz_parallel_for parallel_for,
               int64_t threads, void (*run)(const riesz_task&, char* scratch, void* context), void* context);
