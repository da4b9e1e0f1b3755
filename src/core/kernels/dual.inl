// Passes of dual coordinate descent.
// Included by table.inl inside an anonymous namespace.

// Prefetches what the next row of a pass needs: rows come in random order.
void prefetch_row(const DualPass& pass, size_t i) {
    prefetch(pass.alpha + i * pass.width, pass.width);
    __builtin_prefetch(pass.positive + i);
    __builtin_prefetch(pass.diagonal + i);
    __builtin_prefetch(pass.inv_q + i);
    if (pass.rows.is_dense()) return;
    constexpr int64_t line = 16;
    for (int64_t e = pass.rows.ptr[i]; e < pass.rows.ptr[i + 1]; e += line) {
        __builtin_prefetch(pass.rows.index + e);
        __builtin_prefetch(pass.rows.value + e);
    }
}

// Algorithm 1 of Hsieh et al., "A dual coordinate descent method for large-scale linear SVM" (ICML 2008), L2
// loss, without shrinking, in lockstep for all lanes. Most updates are tiny, of rows that have little to do
// with a class: below the minimal gradient a variable is left as it is, and groups of lanes without an update
// are not written.
template <size_t NV>
void dual_squared_hinge(const DualPass& pass) {
    constexpr size_t B = NV * kVector;
    const Vec zero = {}, one = broadcast(1.0f), min_gradient = broadcast(pass.min_gradient);
    Vec bias[NV], high[NV], low[NV], alpha_sum[NV], support[NV];
    Mask active[NV];
    for (size_t j = 0; j < NV; ++j) {
        bias[j] = load(pass.bias + j * kVector);
        high[j] = load(pass.gradient_max + j * kVector);
        low[j] = load(pass.gradient_min + j * kVector);
        alpha_sum[j] = load(pass.alpha_sum + j * kVector);
        support[j] = load(pass.support + j * kVector);
        active[j] = lanes_of(pass.active >> (j * kVector));
    }
    for (size_t t = 0; t < pass.n; ++t) {
        const size_t i = pass.order[t], next = pass.order[std::min(t + 1, pass.n - 1)];
        prefetch_row(pass, next);
        Vec acc[NV];
        for (size_t j = 0; j < NV; ++j) acc[j] = bias[j];
        dot<NV>(pass.rows, i, pass.w, acc);
        float* alpha = pass.alpha + i * B;
        const Vec diagonal = broadcast(pass.diagonal[i]), inv_q = broadcast(pass.inv_q[i]);
        Vec step[NV];  // of the groups that are updated
        size_t group[NV / kUnit], n_groups = 0;
        for (size_t g = 0; g < NV / kUnit; ++g) {
            Mask updated = {};
            for (size_t u = 0; u < kUnit; ++u) {
                const size_t j = g * kUnit + u;
                const Vec sign = lanes_of(pass.positive[i] >> (j * kVector)) ? one : -one;
                const Vec a = load(alpha + j * kVector);
                const Vec gradient = sign * acc[j] - one + a * diagonal;
                const Mask at_bound = (a == zero) & (gradient > zero);
                const Vec projected = at_bound ? zero : gradient;
                high[j] = projected > high[j] ? projected : high[j];
                low[j] = projected < low[j] ? projected : low[j];
                const Mask moves = active[j] & ((projected > min_gradient) | (projected < -min_gradient));
                Vec next_alpha = a - gradient * inv_q;
                next_alpha = next_alpha > zero ? next_alpha : zero;
                next_alpha = moves ? next_alpha : a;
                store(alpha + j * kVector, next_alpha);
                alpha_sum[j] += sign * next_alpha;
                support[j] += next_alpha > zero ? inv_q : zero;
                step[n_groups * kUnit + u] = (next_alpha - a) * sign;
                updated |= moves;
            }
            if (any(updated)) group[n_groups++] = kGroups[g];
        }
        if (n_groups == 0) continue;
        for_width(n_groups * kLaneStep,
                  [&]<size_t N>() { add_row<N>(pass.rows, i, step, group, pass.w, B, next); });
    }
    for (size_t j = 0; j < NV; ++j) {
        store(pass.alpha_sum + j * kVector, alpha_sum[j]);
        store(pass.support + j * kVector, support[j]);
        store(pass.gradient_max + j * kVector, high[j]);
        store(pass.gradient_min + j * kVector, low[j]);
    }
}

// One variable of the logistic dual: min over 0 < z < C of z log z + (C - z) log(C - z) + a/2 (z - z0)^2 + b
// (z - z0), by Newton steps on z or on C - z, whichever is further from its bound (Yu, Huang and Lin, "Dual
// coordinate descent methods for logistic regression and maximum entropy models", Machine Learning 2011,
// Algorithm 4). Returns the new z; *gradient is the derivative at z0.
inline double logistic_step(double z0, double c, double a, double b, double* gradient) {
    // On the side of the nearer bound, so that logarithms keep their precision.
    const bool upper = 0.5 * a * (c - 2 * z0) + b < 0;
    double z = upper ? c - z0 : z0;
    const double start = z, sign = upper ? -1.0 : 1.0;
    if (c - z < 0.5 * c) z *= 0.1;
    double derivative = a * (z - start) + sign * b + std::log(z / (c - z));
    *gradient = sign * b + std::log(start / (c - start));
    for (int inner = 0; inner < 100 && std::abs(derivative) >= 1e-12; ++inner) {
        const double curvature = a + c / ((c - z) * z);
        const double next = z - derivative / curvature;
        z = next <= 0 ? z * 0.1 : next;
        if (z >= c) z = c * (1 - 1e-15);
        derivative = a * (z - start) + sign * b + std::log(z / (c - z));
    }
    return upper ? c - z : z;
}

template <size_t NV>
void dual_logistic(const DualPass& pass) {
    constexpr size_t B = NV * kVector;
    for (size_t t = 0; t < pass.n; ++t) {
        const size_t i = pass.order[t], next = pass.order[std::min(t + 1, pass.n - 1)];
        prefetch_row(pass, next);
        Vec acc[NV];
        for (size_t j = 0; j < NV; ++j) acc[j] = load(pass.bias + j * kVector);
        dot<NV>(pass.rows, i, pass.w, acc);
        const double c = pass.diagonal[i], q = 1.0 / pass.inv_q[i];
        alignas(64) float margin[B], delta[B];
        for (size_t j = 0; j < NV; ++j) store(margin + j * kVector, acc[j]);
        for (size_t l = 0; l < B; ++l) {
            delta[l] = 0;
            if (!(pass.active >> l & 1)) continue;
            const float sign = pass.positive[i] >> l & 1 ? 1.0f : -1.0f;
            float& alpha = pass.alpha[i * B + l];
            double gradient;
            const double optimum = logistic_step(alpha, c, q, double{sign} * margin[l], &gradient);
            pass.gradient_max[l] = std::max(pass.gradient_max[l], static_cast<float>(std::abs(gradient)));
            // alpha stays strictly inside (0, C) in float, too: the logarithms of the next pass need it.
            const float inside = std::clamp(static_cast<float>(optimum), static_cast<float>(c * 1e-30),
                                            std::nextafter(static_cast<float>(c), 0.0f));
            delta[l] = (inside - alpha) * sign;
            alpha = inside;
        }
        Vec step[NV];
        for (size_t j = 0; j < NV; ++j) step[j] = load(delta + j * kVector);
        add_row<NV>(pass.rows, i, step, kGroups, pass.w, B, next);
        if (pass.learn_bias)
            for (size_t l = 0; l < B; ++l) pass.bias[l] += delta[l];
    }
}
