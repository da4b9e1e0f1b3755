// Columns with a value for each row, and values of the rows.

constexpr size_t kSums = 4;  // independent sums shorten the chain of additions

float total(const Vec (&sums)[kSums]) {
    const Vec all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float sum = 0;
    for (size_t l = 0; l < kVector; ++l) sum += all[l];
    return sum;
}

float dot(const float* a, const float* b, size_t n) {
    Vec sums[kSums] = {};
    size_t i = 0;
    for (; i + kSums * kVector <= n; i += kSums * kVector)
        for (size_t k = 0; k < kSums; ++k) sums[k] += load(a + i + k * kVector) * load(b + i + k * kVector);
    float sum = total(sums);
    for (; i < n; ++i) sum += a[i] * b[i];
    return sum;
}

float dot_squares(const float* a, const float* b, size_t n) {
    Vec sums[kSums] = {};
    size_t i = 0;
    for (; i + kSums * kVector <= n; i += kSums * kVector)
        for (size_t k = 0; k < kSums; ++k) {
            const Vec v = load(a + i + k * kVector);
            sums[k] += v * v * load(b + i + k * kVector);
        }
    float sum = total(sums);
    for (; i < n; ++i) sum += a[i] * a[i] * b[i];
    return sum;
}

void add_product(float* y, const float* a, const float* b, float factor, size_t n) {
    const Vec factors = broadcast(factor);
    size_t i = 0;
    for (; i + kVector <= n; i += kVector) store(y + i, load(y + i) + factors * load(a + i) * load(b + i));
    for (; i < n; ++i) y[i] += factor * a[i] * b[i];
}

// log(1 + x) for x from 0 to 1: twice the series of artanh(x / (2 + x)); the relative error is 2e-7.
Vec log1p_of(Vec x) {
    const Vec t = x / (broadcast(2.0f) + x), square = t * t;
    Vec p = broadcast(2.0f / 15);
    for (const float coefficient : {2.0f / 13, 2.0f / 11, 2.0f / 9, 2.0f / 7, 2.0f / 5, 2.0f / 3, 2.0f})
        p = p * square + broadcast(coefficient);
    return p * t;
}

double logistic_rows(const LogisticRows& rows, float step, float* residual, float* curvature) {
    const Vec zero{}, one = broadcast(1.0f), steps = broadcast(step);
    const Vec part = broadcast(rows.least_curvature), tiny = broadcast(std::numeric_limits<float>::min());
    const Vec half = broadcast(0.5f), margin_of_bound = broadcast(-0.01f);
    double loss = 0;
    for (size_t i = 0; i < rows.n; i += kVector) {
        // The last rows are computed in a copy; costs of 0 follow them.
        const size_t n = std::min(kVector, rows.n - i);
        float copy[4][kVector] = {}, out[2][kVector];
        const float* in[4] = {rows.sign + i, rows.cost + i, rows.margin + i, rows.direction + i};
        if (n < kVector)
            for (size_t k = 0; k < 4; ++k) in[k] = std::copy_n(in[k], n, copy[k]) - n;
        const Vec sign = load(in[0]), cost = load(in[1]);
        const Vec z = sign * (load(in[2]) + steps * load(in[3]));
        const Vec size = z > zero ? z : -z;
        const Vec e = exp_of(-size);
        const Vec wrong = (z > zero ? e : one) / (one + e);  // the probability of the other sign
        const Vec of_rows = cost * (log1p_of(e) + (z > zero ? zero : size));
        for (size_t l = 0; l < kVector; ++l) loss += double{of_rows[l]};
        const Vec curve = cost * (z < margin_of_bound ? (wrong - half) / size : wrong * (one - wrong));
        const Vec least = part * cost;
        const Vec above = least > tiny ? least : tiny;
        store(n < kVector ? out[0] : residual + i, -cost * sign * wrong);
        store(n < kVector ? out[1] : curvature + i, curve > above ? curve : above);
        if (n < kVector) {
            std::copy_n(out[0], n, residual + i);
            std::copy_n(out[1], n, curvature + i);
        }
    }
    return loss;
}
