// The boundary: contiguous arrays, numbers, and opaque objects. No algorithm here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "base/parallel.hpp"
#include "kernels/kernels.hpp"
#include "python/bindings.hpp"

NB_MODULE(_core, m) {
    bonsai::prepare_for_exceptions();  // for the importing thread
    m.def(
        "isa", [] { return std::string(bonsai::kernels().name); },
        "The instruction set in use: the best of this machine, or the value of BONSAI_ISA.");
    m.def("available_threads", bonsai::available_threads, "The number of threads that this process may use.");
    bonsai::bind_dataset(m);
    bonsai::bind_facts(m);
    bonsai::bind_fastxml(m);
    bonsai::bind_model(m);
    bonsai::bind_packing(m);
    bonsai::bind_reasons(m);
    bonsai::bind_sparse_systems(m);
    bonsai::bind_text(m);
    bonsai::bind_training(m);
    bonsai::bind_xc_format(m);
}
