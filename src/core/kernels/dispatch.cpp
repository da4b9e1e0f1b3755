#include "kernels/kernels.hpp"

#include <cstdlib>
#include <stdexcept>

namespace bonsai {

extern const Kernels kPortableKernels;
#ifdef BONSAI_X86
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
extern const Kernels kAvx512VnniKernels;

namespace {
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
bool has_avx512vnni() {
    return has_avx512() && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512vbmi2");
}
}  // namespace
#endif

const Kernels& kernels_named(const std::string& name) {
#ifdef BONSAI_X86
    if (name == "avx512vnni" || (name.empty() && has_avx512vnni())) {
        if (!has_avx512vnni())
            throw std::invalid_argument(
                "BONSAI_ISA=avx512vnni: this processor has no AVX-512 with VNNI and VBMI2");
        return kAvx512VnniKernels;
    }
    if (name == "avx512" || (name.empty() && has_avx512())) {
        if (!has_avx512()) throw std::invalid_argument("BONSAI_ISA=avx512: this processor has no AVX-512");
        return kAvx512Kernels;
    }
    if (name == "avx2" || (name.empty() && has_avx2())) {
        if (!has_avx2()) throw std::invalid_argument("BONSAI_ISA=avx2: this processor has no AVX2 and FMA");
        return kAvx2Kernels;
    }
#endif
    if (name.empty() || name == "portable") return kPortableKernels;
    throw std::invalid_argument("BONSAI_ISA=" + name +
                                " is not one of portable, avx2, avx512, avx512vnni in this build");
}

const Kernels& kernels() {
    const char* chosen = std::getenv("BONSAI_ISA");
    return kernels_named(chosen ? chosen : "");
}

}  // namespace bonsai
