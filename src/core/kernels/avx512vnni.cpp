#define BONSAI_KERNELS kAvx512VnniKernels
#define BONSAI_KERNELS_NAME "avx512vnni"
#include "kernels/table.inl"
