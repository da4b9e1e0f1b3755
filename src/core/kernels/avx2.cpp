#define BONSAI_KERNELS kAvx2Kernels
#define BONSAI_KERNELS_NAME "avx2"
#include "kernels/table.inl"
