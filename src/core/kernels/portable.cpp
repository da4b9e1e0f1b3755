#define BONSAI_KERNELS kPortableKernels
#define BONSAI_KERNELS_NAME "portable"
#include "kernels/table.inl"
