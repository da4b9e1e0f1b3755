#define BONSAI_KERNELS kPortableKernels
#define BONSAI_KERNELS_NAME "portable"
#include "kernels_impl.hpp"
