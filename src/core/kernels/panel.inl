// Rows times panels, and rows added to panels: for the solvers and for k-means.
// Included by table.inl inside an anonymous namespace.

// Larger panels do not stay in L2: while one row is added, the panel rows of the next row are prefetched.
constexpr size_t kPrefetchedPanel = 1 << 20;

// The first lane of each group of kLaneStep lanes in a panel row, and the number of vectors in a group.
constexpr size_t kGroups[] = {0, kLaneStep, 2 * kLaneStep, 3 * kLaneStep};
constexpr size_t kUnit = kLaneStep / kVector;

// Prefetches into L2: the row is used only after the current one.
void prefetch(const float* panel_row, size_t width) {
    for (size_t l = 0; l < width; l += kLaneStep) __builtin_prefetch(panel_row + l, 0, 2);
}

template <size_t NV>
void sparse_dot(const RowsView& rows, int64_t begin, int64_t end, const float* w, Vec (&acc)[NV]) {
    constexpr size_t B = NV * kVector;
    // Local copies, which no store can alias, stay in registers.
    const int32_t* index = rows.index;
    const float* value = rows.value;
    Vec sum[NV];
    for (size_t j = 0; j < NV; ++j) sum[j] = acc[j];
    for (int64_t e = begin; e < end; ++e) {
        const Vec v = broadcast(value[e]);
        const float* p = w + size_t(index[e]) * B;
        for (size_t j = 0; j < NV; ++j) sum[j] += v * load(p + j * kVector);
    }
    for (size_t j = 0; j < NV; ++j) acc[j] = sum[j];
}

template <size_t NV>
void dense_dot(const RowsView& rows, size_t i, const float* w, Vec (&acc)[NV]) {
    constexpr size_t B = NV * kVector;
    const float* x = rows.dense_row(i);
    Vec sum[NV] = {};
    for (size_t f = 0; f < rows.n_features; ++f) {
        const Vec v = broadcast(x[f]);
        for (size_t j = 0; j < NV; ++j) sum[j] += v * load(w + f * B + j * kVector);
    }
    const Vec scale = broadcast(rows.dense_scale(i));
    for (size_t j = 0; j < NV; ++j) acc[j] += scale * sum[j];
}

// acc += row i . each lane of w
template <size_t NV>
void dot(const RowsView& rows, size_t i, const float* w, Vec (&acc)[NV]) {
    if (rows.is_dense())
        dense_dot<NV>(rows, i, w, acc);
    else
        sparse_dot<NV>(rows, rows.ptr[i], rows.ptr[i + 1], w, acc);
}

// w += step x row i, in the NV vectors of the groups of lanes that begin at group[0], group[1], … Row `next`
// is visited after it.
template <size_t NV>
void add_row(const RowsView& rows, size_t i, const Vec* step, const size_t* group, float* w, size_t width,
             size_t next) {
    float* lane[NV / kUnit];
    for (size_t g = 0; g < NV / kUnit; ++g) lane[g] = w + group[g];
    Vec scaled[NV];
    for (size_t j = 0; j < NV; ++j)
        scaled[j] = rows.is_dense() ? step[j] * broadcast(rows.dense_scale(i)) : step[j];
    const auto add = [&](size_t f, float x) {
        const Vec v = broadcast(x);
        for (size_t j = 0; j < NV; ++j) {
            float* p = lane[j / kUnit] + f * width + j % kUnit * kVector;
            store(p, load(p) + v * scaled[j]);
        }
    };
    if (rows.is_dense()) {
        const float* x = rows.dense_row(i);
        for (size_t f = 0; f < rows.n_features; ++f) add(f, x[f]);
        return;
    }
    const int32_t* index = rows.index;
    const float* value = rows.value;
    const bool far = rows.n_features * width * sizeof(float) > kPrefetchedPanel;
    int64_t fetch = rows.ptr[next];
    const int64_t fetch_end = far ? rows.ptr[next + 1] : fetch;
    for (int64_t e = rows.ptr[i], end = rows.ptr[i + 1]; e < end; ++e) {
        if (fetch < fetch_end) prefetch(w + size_t(index[fetch++]) * width, width);
        add(size_t(index[e]), value[e]);
    }
}

// Calls fn.operator()<NV>() for the NV vectors of a panel's width.
template <class Fn>
void for_width(size_t width, Fn&& fn) {
    switch (width / kLaneStep) {
        case 1:
            return fn.template operator()<1 * kUnit>();
        case 2:
            return fn.template operator()<2 * kUnit>();
        case 3:
            return fn.template operator()<3 * kUnit>();
        default:
            return fn.template operator()<4 * kUnit>();
    }
}

template <size_t NV>
void margins(const RowsView& rows, size_t begin, size_t end, const float* w, float* out, size_t stride) {
    for (size_t i = begin; i < end; ++i) {
        Vec acc[NV] = {};
        dot<NV>(rows, i, w, acc);
        for (size_t j = 0; j < NV; ++j) store(out + (i - begin) * stride + j * kVector, acc[j]);
    }
}

template <size_t NV>
void scatter(const RowsView& rows, size_t begin, size_t end, const float* coef, float* w) {
    for (size_t i = begin; i < end; ++i) {
        Vec step[NV];
        Mask moved = {};
        for (size_t j = 0; j < NV; ++j) {
            step[j] = load(coef + (i * NV + j) * kVector);
            moved |= step[j] != Vec{};
        }
        if (any(moved))
            add_row<NV>(rows, i, step, kGroups, w, NV * kVector, std::min(i + 1, rows.n_rows - 1));
    }
}

template <size_t NV>
void lane_dots(const float* a, const float* b, size_t n, double* out) {
    constexpr size_t B = NV * kVector;
    typedef double Doubles __attribute__((vector_size(kVector * 8)));
    Doubles sum[NV] = {};
    for (size_t e = 0; e < n * B; e += B)
        for (size_t j = 0; j < NV; ++j)
            sum[j] += __builtin_convertvector(load(a + e + j * kVector), Doubles) *
                      __builtin_convertvector(load(b + e + j * kVector), Doubles);
    std::memcpy(out, sum, sizeof sum);
}

void lane_axpy(float* y, const float* x, size_t n, size_t width, const float* scale, const float* step) {
    for (size_t f = 0; f < n; ++f)
        for (size_t l = 0; l < width; l += kVector) {
            float* p = y + f * width + l;
            store(p, load(scale + l) * load(p) + load(step + l) * load(x + f * width + l));
        }
}

uint64_t lanes_above(const float* w, size_t width, float threshold) {
    uint64_t bits = 0;
    for (size_t l = 0; l < width; l += kVector) {
        const Vec v = load(w + l);
        const Mask hit = (v > broadcast(threshold)) | (v < broadcast(-threshold));
        bits |= bits_of(hit) << l;
    }
    return bits;
}
