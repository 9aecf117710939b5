// Compiled for whatever the compiler takes for granted: SSE2 on x86-64, NEON on aarch64.
#define KERNELS riesz_portable
#define NAME "portable"
#define VECTOR_BYTES 16
#define WIDEST 4
#include "kernels.inc"
