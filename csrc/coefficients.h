// From a metric and a gradient's length and dtype to the numbers the kernels use.
#pragma once
#include "kernels.h"

riesz_coefficients riesz_coefficients_of(const riesz_metric& metric, int64_t n, int64_t dtype);
