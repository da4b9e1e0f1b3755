#include "linear/newton.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/memory.hpp"

namespace bonsai {
namespace {

using Lanes = double[kMaxLanes];

// Lin, Weng and Keerthi, "Trust region Newton method for large-scale logistic regression" (JMLR 2008), with
// the generalised Hessian for the squared hinge. All lanes go through the same motions; a lane that is done,
// or whose conjugate gradients have ended, takes steps of length zero.
//
// Legend: w weights, g gradient, s trial step, r residual -g - Hs, d search direction, h = Hd; panels of
// (n_features + 1 if the bias is learnt) x width. f objective, delta trust radius; one for each lane.
class NewtonPanel {
  public:
    NewtonPanel(const Problem& problem, size_t first, size_t n, const LinearParams& params,
                const Kernels& kernels)
        : problem_(problem),
          params_(params),
          kernels_(kernels),
          first_(first),
          n_(n),
          width_(panel_width(n)),
          size_(problem.rows.n_features + (params.learn_bias ? 1 : 0)),
          positive_(positive_lanes(problem, first, n)) {
        for (auto* panel : {&w_, &g_, &s_, &r_, &d_, &h_}) panel->assign(size_ * width_, 0.0f);
        for (auto* rows : {&margin_, &step_margin_, &curvature_, &coef_})
            rows->assign(problem.rows.n_rows * width_, 0.0f);
    }

    Solution solve(const Control& control) {
        Solution solution;
        solution.bias.assign(n_, params_.fixed_bias);
        solution.n_iter.assign(n_, 0);
        solution.converged.assign(n_, 0);
        Lanes f, f_new, g_norm, stop_at, delta;
        bool moving[kMaxLanes] = {};
        objective(margin_, w_, f);
        gradient();
        norms(g_, g_norm);
        Lanes share;
        rare_share(share);
        for (size_t l = 0; l < n_; ++l) {
            delta[l] = g_norm[l];
            stop_at[l] = params_.tol * share[l] * g_norm[l];
            moving[l] = g_norm[l] > 0;
            solution.converged[l] = !moving[l];
        }
        for (int iteration = 1; iteration <= params_.max_iter; ++iteration) {
            if (std::none_of(moving, moving + n_, [](bool m) { return m; })) break;
            control.check();
            Lanes step_norm, gs, sr;
            conjugate_gradients(moving, g_norm, delta, control);
            norms(s_, step_norm);
            kernels_.lane_dots(g_.data(), s_.data(), size_, width_, gs);
            kernels_.lane_dots(s_.data(), r_.data(), size_, width_, sr);
            margins_of(s_, step_margin_);
            trial_objective(f_new);
            float take[kMaxLanes] = {}, one[kMaxLanes];
            std::fill(one, one + kMaxLanes, 1.0f);
            for (size_t l = 0; l < n_; ++l) {
                if (!moving[l]) continue;
                solution.n_iter[l] = iteration;
                const double predicted = -0.5 * (gs[l] - sr[l]), actual = f[l] - f_new[l];
                if (iteration == 1) delta[l] = std::min(delta[l], step_norm[l]);
                delta[l] = next_radius(delta[l], step_norm[l], gs[l], predicted, actual);
                if (actual > 1e-4 * predicted) {
                    take[l] = 1.0f;
                    f[l] = f_new[l];
                } else if (std::abs(actual) <= 1e-7 * std::abs(f[l]) &&
                           std::abs(predicted) <= 1e-7 * std::abs(f[l])) {
                    // float32 cannot see a better point from here: as close as the arithmetic allows
                    moving[l] = false;
                    solution.converged[l] = 1;
                }
            }
            kernels_.lane_axpy(w_.data(), s_.data(), size_, width_, one, take);
            kernels_.lane_axpy(margin_.data(), step_margin_.data(), problem_.rows.n_rows, width_, one, take);
            gradient();
            norms(g_, g_norm);
            for (size_t l = 0; l < n_; ++l) {
                if (!moving[l] || g_norm[l] > stop_at[l]) continue;
                moving[l] = false;
                solution.converged[l] = 1;
            }
        }
        report(solution);
        return solution;
    }

  private:
    double sign(size_t i, size_t l) const { return positive_[i] >> l & 1 ? 1.0 : -1.0; }

    // The gradient at zero grows with the rarer class's share; the tolerance is relative to that.
    void rare_share(Lanes& share) const {
        std::vector<size_t> count(n_, 0);
        for (const uint64_t bits : positive_)
            for (uint64_t b = bits; b; b &= b - 1) ++count[std::countr_zero(b)];
        const size_t rows = positive_.size();
        for (size_t l = 0; l < n_; ++l) {
            const size_t rare = std::max<size_t>(std::min(count[l], rows - count[l]), 1);
            share[l] = static_cast<double>(rare) / static_cast<double>(std::max<size_t>(rows, 1));
        }
    }

    void norms(const Panel& panel, Lanes& out) const {
        kernels_.lane_dots(panel.data(), panel.data(), size_, width_, out);
        for (size_t l = 0; l < width_; ++l) out[l] = std::sqrt(out[l]);
    }

    void margins_of(const Panel& panel, Panel& out) const {
        kernels_.margins(problem_.rows, 0, problem_.rows.n_rows, panel.data(), width_, out.data(), width_);
        if (!params_.learn_bias) return;
        const float* bias = panel.data() + problem_.rows.n_features * width_;
        for (size_t i = 0; i < problem_.rows.n_rows; ++i)
            for (size_t l = 0; l < width_; ++l) out[i * width_ + l] += bias[l];
    }

    // out = panel + X^T coef
    void with_scattered(const Panel& panel, Panel& out) {
        out = panel;
        kernels_.scatter(problem_.rows, coef_.data(), width_, out.data());
        if (!params_.learn_bias) return;
        float* bias = out.data() + problem_.rows.n_features * width_;
        for (size_t l = 0; l < width_; ++l) {
            double sum = 0;
            for (size_t i = 0; i < problem_.rows.n_rows; ++i) sum += coef_[i * width_ + l];
            bias[l] += static_cast<float>(sum);
        }
    }

    double fixed_bias() const { return params_.learn_bias ? 0.0 : params_.fixed_bias; }

    template <class MarginOf>
    void add_losses(MarginOf margin_of, Lanes& f) const {
        const bool hinge = params_.loss == Loss::squared_hinge;
        for (size_t i = 0; i < problem_.rows.n_rows; ++i) {
            const double cost = problem_.cost(i, params_.c);
            for (size_t l = 0; l < n_; ++l) {
                const double z = sign(i, l) * (margin_of(i * width_ + l) + fixed_bias());
                const double slack = std::max(0.0, 1.0 - z);
                f[l] +=
                    cost * (hinge ? slack * slack : std::max(0.0, -z) + std::log1p(std::exp(-std::abs(z))));
            }
        }
    }

    void objective(const Panel& margin, const Panel& w, Lanes& f) const {
        kernels_.lane_dots(w.data(), w.data(), size_, width_, f);
        for (size_t l = 0; l < width_; ++l) f[l] *= 0.5;
        add_losses([&](size_t at) { return double{margin[at]}; }, f);
    }

    // The objective at w + s: |w + s|^2 = |w|^2 + 2 w.s + |s|^2
    void trial_objective(Lanes& f) const {
        Lanes ww, ws, ss;
        kernels_.lane_dots(w_.data(), w_.data(), size_, width_, ww);
        kernels_.lane_dots(w_.data(), s_.data(), size_, width_, ws);
        kernels_.lane_dots(s_.data(), s_.data(), size_, width_, ss);
        for (size_t l = 0; l < width_; ++l) f[l] = 0.5 * (ww[l] + 2 * ws[l] + ss[l]);
        add_losses([&](size_t at) { return double{margin_[at]} + step_margin_[at]; }, f);
    }

    // g at w, and the diagonal of the loss's Hessian beside it
    void gradient() {
        const bool hinge = params_.loss == Loss::squared_hinge;
        for (size_t i = 0; i < problem_.rows.n_rows; ++i) {
            const double cost = problem_.cost(i, params_.c);
            for (size_t l = 0; l < n_; ++l) {
                const size_t at = i * width_ + l;
                const double y = sign(i, l), z = y * (margin_[at] + fixed_bias());
                const double p = 1.0 / (1.0 + std::exp(-z)), slack = std::max(0.0, 1.0 - z);
                coef_[at] = static_cast<float>(cost * y * (hinge ? -2.0 * slack : p - 1.0));
                curvature_[at] = static_cast<float>(cost * (hinge ? (z < 1.0 ? 2.0 : 0.0) : p * (1.0 - p)));
            }
        }
        with_scattered(w_, g_);
    }

    void hessian_times_d() {
        margins_of(d_, coef_);
        for (size_t at = 0; at < coef_.size(); ++at) coef_[at] *= curvature_[at];
        with_scattered(d_, h_);
    }

    // s ~ -H^-1 g inside the trust region; r = -g - Hs.
    void conjugate_gradients(const bool* moving, const Lanes& g_norm, const Lanes& delta,
                             const Control& control) {
        std::fill(s_.begin(), s_.end(), 0.0f);
        for (size_t at = 0; at < r_.size(); ++at) d_[at] = r_[at] = -g_[at];
        bool searching[kMaxLanes];
        std::copy(moving, moving + n_, searching);
        Lanes rr, dh, ss, sd, dd, rr_new;
        kernels_.lane_dots(r_.data(), r_.data(), size_, width_, rr);
        for (size_t iteration = 0; iteration < std::max<size_t>(size_, 5); ++iteration) {
            for (size_t l = 0; l < n_; ++l) searching[l] = searching[l] && std::sqrt(rr[l]) > 0.1 * g_norm[l];
            if (std::none_of(searching, searching + n_, [](bool m) { return m; })) return;
            control.check();
            hessian_times_d();
            kernels_.lane_dots(d_.data(), h_.data(), size_, width_, dh);
            kernels_.lane_dots(s_.data(), s_.data(), size_, width_, ss);
            kernels_.lane_dots(s_.data(), d_.data(), size_, width_, sd);
            kernels_.lane_dots(d_.data(), d_.data(), size_, width_, dd);
            float step[kMaxLanes] = {}, back[kMaxLanes] = {}, one[kMaxLanes], beta[kMaxLanes];
            std::fill(one, one + kMaxLanes, 1.0f);
            for (size_t l = 0; l < n_; ++l) {
                if (!searching[l]) continue;
                double alpha = rr[l] / dh[l];
                if (ss[l] + 2 * alpha * sd[l] + alpha * alpha * dd[l] > delta[l] * delta[l]) {
                    const double room = delta[l] * delta[l] - ss[l],
                                 root = std::sqrt(sd[l] * sd[l] + dd[l] * room);
                    alpha = sd[l] >= 0 ? room / (sd[l] + root) : (root - sd[l]) / dd[l];
                    searching[l] = false;
                }
                step[l] = static_cast<float>(alpha);
                back[l] = -step[l];
            }
            kernels_.lane_axpy(s_.data(), d_.data(), size_, width_, one, step);
            kernels_.lane_axpy(r_.data(), h_.data(), size_, width_, one, back);
            kernels_.lane_dots(r_.data(), r_.data(), size_, width_, rr_new);
            for (size_t l = 0; l < width_; ++l) {
                beta[l] = l < n_ && searching[l] ? static_cast<float>(rr_new[l] / rr[l]) : 0.0f;
                rr[l] = rr_new[l];
            }
            kernels_.lane_axpy(d_.data(), r_.data(), size_, width_, beta, one);
        }
    }

    static double next_radius(double delta, double step_norm, double gs, double predicted, double actual) {
        const double curve = -actual - gs;
        const double alpha = curve <= 0 ? 4.0 : std::max(0.25, -0.5 * gs / curve);
        if (actual < 1e-4 * predicted) return std::min(std::max(alpha, 0.25) * step_norm, 0.5 * delta);
        if (actual < 0.25 * predicted)
            return std::max(0.25 * delta, std::min(alpha * step_norm, 0.5 * delta));
        if (actual < 0.75 * predicted)
            return std::max(0.25 * delta, std::min(alpha * step_norm, 4.0 * delta));
        return std::max(delta, std::min(alpha * step_norm, 4.0 * delta));
    }

    void report(Solution& solution) const {
        for (size_t f = 0; f < problem_.rows.n_features; ++f) {
            const float* row = w_.data() + f * width_;
            for (uint64_t bits = kernels_.lanes_above(row, width_, params_.prune); bits; bits &= bits - 1) {
                const auto l = static_cast<size_t>(std::countr_zero(bits));
                if (l >= n_) break;
                solution.weights.push_back(
                    {static_cast<uint32_t>(f), static_cast<uint32_t>(first_ + l), row[l]});
            }
        }
        if (!params_.learn_bias) return;
        const float* bias = w_.data() + problem_.rows.n_features * width_;
        solution.bias.assign(bias, bias + n_);
    }

    const Problem& problem_;
    const LinearParams& params_;
    const Kernels& kernels_;
    size_t first_, n_, width_, size_;
    std::vector<uint64_t> positive_;
    Panel w_, g_, s_, r_, d_, h_;
    Panel margin_, step_margin_, curvature_, coef_;  // n_rows x width
};

}  // namespace

Solution solve_newton(const Problem& problem, size_t first, size_t n, const LinearParams& params,
                      const Kernels& kernels, const Control& control) {
    return NewtonPanel(problem, first, n, params, kernels).solve(control);
}

}  // namespace bonsai
