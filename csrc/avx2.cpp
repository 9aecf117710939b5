// Compiled for avx2 alone; nothing else may be linked from here.
#if defined(__x86_64__)
#define KERNELS riesz_avx2
#define NAME "avx2"
#define VECTOR_BYTES 32
#define WIDEST 4
#include "kernels.inc"
#endif
