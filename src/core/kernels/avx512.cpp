#define BONSAI_KERNELS kAvx512Kernels
#define BONSAI_KERNELS_NAME "avx512"
#include "kernels/table.inl"
