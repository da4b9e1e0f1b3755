#define BONSAI_KERNELS kPortableKernels
#define BONSAI_KERNELS_NAME "portable"
#include "kernels/kernels_impl.hpp"
