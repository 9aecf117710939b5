// Compiled for avx512 alone; nothing else may be linked from here.
#if defined(__x86_64__)
#define KERNELS riesz_avx512
#define NAME "avx512"
#define VECTOR_BYTES 64
#define WIDEST 8
#include "kernels.inc"
#endif
