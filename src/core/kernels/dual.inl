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
// loss, without shrinking, in lockstep for all lanes. Most updates are tiny and concern rows that hardly
// affect a class: variables with a projected gradient below the minimum are not updated, and groups of lanes
// without an update are not written.
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
        Vec step[NV];  // for groups that are updated
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

// exp(x), with |x| limited to 87, so that the result is neither 0 nor infinite; the relative error is 2e-7.
Vec exp_of(Vec x) {
    const Vec limit = broadcast(87.0f);
    x = x > limit ? limit : x;
    x = x < -limit ? -limit : x;
    // x = n log 2 + r with |r| <= log(2) / 2. Adding 1.5 * 2^23 rounds to an integer, which is then in the
    // lower bits.
    const Vec rounder = broadcast(12582912.0f), shifted = x * broadcast(1.44269504f) + rounder;
    const Vec n = shifted - rounder, r = x - n * broadcast(0.693359375f) - n * broadcast(-2.12194440e-4f);
    Vec p = broadcast(1.0f / 720);
    for (const float coefficient : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
        p = p * r + broadcast(coefficient);
    const Mask exponent = (reinterpret_cast<Mask>(shifted) - reinterpret_cast<Mask>(rounder) + 127) << 23;
    return p * reinterpret_cast<Vec>(exponent);
}

// 1 / (1 + exp(-x))
Vec sigmoid(Vec x) {
    const Vec one = broadcast(1.0f);
    return one / (one + exp_of(-x));
}

// The dual variable of a row is C sigmoid(-y margin) at the optimum. The minimiser of one variable, the
// others being constant, is C sigmoid(u) with f(u) = u + Q C sigmoid(u) - (Q alpha - y margin) = 0: the
// problem of Yu, Huang and Lin, "Dual coordinate descent methods for logistic regression and maximum entropy
// models" (Machine Learning 2011), in a variable without bounds and without logarithms. f increases, is
// convex below 0 and concave above: Newton steps converge from any point on the side of 0 that holds the zero
// of f, if they do not leave that side.
template <size_t NV>
void dual_logistic(const DualPass& pass) {
    constexpr size_t B = NV * kVector;
    constexpr int max_steps = 50;
    const Vec zero = {}, one = broadcast(1.0f), half = broadcast(0.5f);
    const Vec last_step = broadcast(0.01f);  // the remaining error is of the order of its square
    Vec bias[NV], residual[NV], alpha_sum[NV];
    Mask active[NV];
    for (size_t j = 0; j < NV; ++j) {
        bias[j] = load(pass.bias + j * kVector);
        residual[j] = load(pass.residual + j * kVector);
        alpha_sum[j] = load(pass.alpha_sum + j * kVector);
        active[j] = lanes_of(pass.active >> (j * kVector));
    }
    for (size_t t = 0; t < pass.n; ++t) {
        const size_t i = pass.order[t], next = pass.order[std::min(t + 1, pass.n - 1)];
        prefetch_row(pass, next);
        Vec step[NV];
        for (size_t j = 0; j < NV; ++j) step[j] = bias[j];
        dot<NV>(pass.rows, i, pass.w, step);
        float* alpha = pass.alpha + i * B;
        const Vec c = broadcast(pass.diagonal[i]), q = one / broadcast(pass.inv_q[i]), qc = q * c;
        for (size_t j = 0; j < NV; ++j) {
            const Vec sign = lanes_of(pass.positive[i] >> (j * kVector)) ? one : -one;
            const Vec a = load(alpha + j * kVector);
            Vec u = -sign * step[j], p = sigmoid(u);
            const Vec target = q * a + u, gap = c * p - a;
            residual[j] += gap < zero ? -gap : gap;
            const Mask below = target < half * qc;
            Mask open = active[j];
            for (int s = 0; s < max_steps && any(open); ++s) {
                const Vec by = (u + qc * p - target) / (one + qc * p * (one - p));
                Vec to = u - by;
                to = below == (to < zero) ? to : zero;
                u = open ? to : u;
                p = sigmoid(u);
                open &= (by > last_step) | (by < -last_step);
            }
            const Vec next_alpha = active[j] ? c * p : a;
            store(alpha + j * kVector, next_alpha);
            alpha_sum[j] += next_alpha;
            step[j] = (next_alpha - a) * sign;
            if (pass.learn_bias) bias[j] += step[j];
        }
        add_row<NV>(pass.rows, i, step, kGroups, pass.w, B, next);
    }
    for (size_t j = 0; j < NV; ++j) {
        store(pass.bias + j * kVector, bias[j]);
        store(pass.residual + j * kVector, residual[j]);
        store(pass.alpha_sum + j * kVector, alpha_sum[j]);
    }
}
