// A forest under construction, as the arrays that a model has.
#pragma once

#include "core/model.hpp"

inline bonsai::ForestArrays view(const bonsai::OwnedForest& f) {
    return {.tree_ptr = f.tree_ptr,
            .child_ptr = f.child_ptr,
            .children = f.children,
            .is_leaf = f.is_leaf,
            .bias = f.bias,
            .scale = f.scale,
            .block_ptr = f.block_ptr,
            .bucket_ptr = f.bucket_ptr,
            .record_ptr = f.record_ptr,
            .shift = f.shift,
            .buckets = f.buckets,
            .records = f.records};
}
