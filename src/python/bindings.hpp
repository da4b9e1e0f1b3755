// The functions by which each bind_*.cpp adds to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace bonsai {

void bind_dataset(nanobind::module_& m);
void bind_facts(nanobind::module_& m);
void bind_fastxml(nanobind::module_& m);
void bind_text(nanobind::module_& m);
void bind_training(nanobind::module_& m);
void bind_model(nanobind::module_& m);
void bind_reasons(nanobind::module_& m);
void bind_packing(nanobind::module_& m);
void bind_sparse_systems(nanobind::module_& m);
void bind_xc_format(nanobind::module_& m);

}  // namespace bonsai
