#include "linear/newton.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/memory.hpp"

namespace bonsai {
namespace {

using Lanes = double[kMaxLanes];

bool any_of(const bool (&flags)[kMaxLanes], size_t n) {
    return std::any_of(flags, flags + n, [](bool flag) { return flag; });
}

// Lin, Weng and Keerthi, "Trust region Newton method for large-scale logistic regression" (JMLR 2008), with
// the generalised Hessian for the squared hinge, as in LIBLINEAR's tron.cpp. All lanes in lockstep; a lane
// that has converged, or whose conjugate gradients have ended, takes steps of length zero.
//
// Legend: w weights, g gradient, s trial step, r residual -g - Hs, d search direction, h = Hd; panels of
// (n_features + 1 if the bias is learnt) x width. f objective, delta trust radius; one number per lane.
template <class AnyLoss>
class NewtonPanel {
  public:
    NewtonPanel(const Problem& problem, size_t first, size_t n, const LinearParams& params,
                const Kernels& kernels, const Control& control)
        : problem_(problem),
          params_(params),
          kernels_(kernels),
          control_(control),
          first_(first),
          n_(n),
          width_(panel_width(n)),
          size_(problem.rows.n_features + (params.learn_bias ? 1 : 0)),
          positive_(positive_lanes(problem, first, n)) {
        for (auto* panel : {&w_, &g_, &s_, &r_, &d_, &h_}) panel->assign(size_ * width_, 0.0f);
        for (auto* rows : {&margin_, &step_margin_, &curvature_, &coef_})
            rows->assign(problem.rows.n_rows * width_, 0.0f);
    }

    Solution solve(ProgressShare* progress) {
        Solution solution;
        solution.bias.assign(n_, params_.fixed_bias);
        solution.n_iter.assign(n_, 0);
        solution.converged.assign(n_, 0);
        Lanes f, g_norm, stop_at, delta;
        bool moving[kMaxLanes] = {};
        objective(f);
        gradient();
        norms(g_, g_norm);
        minority_share(stop_at);
        for (size_t l = 0; l < n_; ++l) {
            delta[l] = g_norm[l];
            stop_at[l] = params_.tol * stop_at[l] * g_norm[l];
            moving[l] = g_norm[l] > 0;
            solution.converged[l] = !moving[l];
        }
        for (int iteration = 1; iteration <= params_.max_iter && any_of(moving, n_); ++iteration) {
            conjugate_gradients(moving, g_norm, delta);
            try_step(iteration, moving, f, delta, solution);
            gradient();
            if (progress) progress->advance_to(part_done(iteration));
            norms(g_, g_norm);
            for (size_t l = 0; l < n_; ++l) {
                if (!moving[l] || g_norm[l] > stop_at[l]) continue;
                moving[l] = false;
                solution.converged[l] = 1;
            }
        }
        extract_weights(solution);
        return solution;
    }

  private:
    double sign(size_t i, size_t l) const { return positive_[i] >> l & 1 ? 1.0 : -1.0; }
    double fixed_bias() const { return params_.learn_bias ? 0.0 : params_.fixed_bias; }

    // Calls fn(begin, end) for all rows, part by part.
    template <class Fn>
    void for_each_part(Fn&& fn) const {
        const size_t n = problem_.rows.n_rows, step = rows_per_poll(problem_.rows);
        for (size_t begin = 0; begin < n; begin += step) {
            control_.check();
            fn(begin, std::min(n, begin + step));
        }
    }

    // The share of the smaller class, by which LIBLINEAR multiplies the tolerance: the gradient at 0 grows
    // with it.
    void minority_share(Lanes& share) const {
        std::vector<size_t> count(n_, 0);
        for (const uint64_t bits : positive_)
            for (uint64_t b = bits; b; b &= b - 1) ++count[std::countr_zero(b)];
        const size_t rows = positive_.size();
        for (size_t l = 0; l < n_; ++l) {
            const size_t minority = std::max<size_t>(std::min(count[l], rows - count[l]), 1);
            share[l] = static_cast<double>(minority) / static_cast<double>(std::max<size_t>(rows, 1));
        }
    }

    void norms(const Panel& panel, Lanes& out) const {
        kernels_.lane_dots(panel.data(), panel.data(), size_, width_, out);
        for (size_t l = 0; l < width_; ++l) out[l] = std::sqrt(out[l]);
    }

    // out = X panel, n_rows x width
    void multiply(const Panel& panel, Panel& out) const {
        const float* bias = panel.data() + problem_.rows.n_features * width_;
        for_each_part([&](size_t begin, size_t end) {
            kernels_.margins(problem_.rows, begin, end, panel.data(), width_, out.data() + begin * width_,
                             width_);
            for (size_t i = begin; params_.learn_bias && i < end; ++i)
                for (size_t l = 0; l < width_; ++l) out[i * width_ + l] += bias[l];
        });
    }

    // out = panel + X^T coef
    void add_transposed(const Panel& panel, Panel& out) const {
        out = panel;
        Lanes sum = {};
        for_each_part([&](size_t begin, size_t end) {
            kernels_.scatter(problem_.rows, begin, end, coef_.data(), width_, out.data());
            for (size_t i = begin; params_.learn_bias && i < end; ++i)
                for (size_t l = 0; l < width_; ++l) sum[l] += coef_[i * width_ + l];
        });
        float* bias = out.data() + problem_.rows.n_features * width_;
        for (size_t l = 0; params_.learn_bias && l < width_; ++l) bias[l] += static_cast<float>(sum[l]);
    }

    template <class MarginOf>
    void add_losses(MarginOf margin_of, Lanes& f) const {
        for_each_part([&](size_t begin, size_t end) {
            for (size_t i = begin; i < end; ++i) {
                const double cost = problem_.cost(i, params_.c);
                for (size_t l = 0; l < n_; ++l) {
                    const double z = sign(i, l) * (margin_of(i * width_ + l) + fixed_bias());
                    f[l] += cost * AnyLoss::at(z);
                }
            }
        });
    }

    // f at w
    void objective(Lanes& f) const {
        kernels_.lane_dots(w_.data(), w_.data(), size_, width_, f);
        for (size_t l = 0; l < width_; ++l) f[l] *= 0.5;
        add_losses([&](size_t at) { return double{margin_[at]}; }, f);
    }

    // f at w + s: |w + s|^2 = |w|^2 + 2 w.s + |s|^2
    void trial_objective(Lanes& f) const {
        Lanes ww, ws, ss;
        kernels_.lane_dots(w_.data(), w_.data(), size_, width_, ww);
        kernels_.lane_dots(w_.data(), s_.data(), size_, width_, ws);
        kernels_.lane_dots(s_.data(), s_.data(), size_, width_, ss);
        for (size_t l = 0; l < width_; ++l) f[l] = 0.5 * (ww[l] + 2 * ws[l] + ss[l]);
        add_losses([&](size_t at) { return double{margin_[at]} + step_margin_[at]; }, f);
    }

    // g at w, and the diagonal of the loss's Hessian
    void gradient() {
        for_each_part([&](size_t begin, size_t end) {
            for (size_t i = begin; i < end; ++i) {
                const double cost = problem_.cost(i, params_.c);
                for (size_t l = 0; l < n_; ++l) {
                    const size_t at = i * width_ + l;
                    const double y = sign(i, l), z = y * (margin_[at] + fixed_bias());
                    const Derivatives at_z = AnyLoss::derivatives(z);
                    coef_[at] = static_cast<float>(cost * y * at_z.first);
                    curvature_[at] = static_cast<float>(cost * at_z.second);
                }
            }
        });
        add_transposed(w_, g_);
    }

    void hessian_times_d() {
        multiply(d_, coef_);
        for (size_t at = 0; at < coef_.size(); ++at) coef_[at] *= curvature_[at];
        add_transposed(d_, h_);
    }

    // s ~ -H^-1 g inside the trust region; r = -g - Hs.
    void conjugate_gradients(const bool* moving, const Lanes& g_norm, const Lanes& delta) {
        std::fill(s_.begin(), s_.end(), 0.0f);
        for (size_t at = 0; at < r_.size(); ++at) d_[at] = r_[at] = -g_[at];
        bool searching[kMaxLanes];
        std::copy(moving, moving + n_, searching);
        Lanes rr, dh, ss, sd, dd, rr_new;
        kernels_.lane_dots(r_.data(), r_.data(), size_, width_, rr);
        for (size_t iteration = 0; iteration < std::max<size_t>(size_, 5); ++iteration) {
            for (size_t l = 0; l < n_; ++l) searching[l] = searching[l] && std::sqrt(rr[l]) > 0.1 * g_norm[l];
            if (!any_of(searching, n_)) return;
            control_.check();
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
                    // To the boundary of the trust region: |s + alpha d| = delta
                    const double gap = delta[l] * delta[l] - ss[l],
                                 root = std::sqrt(sd[l] * sd[l] + dd[l] * gap);
                    alpha = sd[l] >= 0 ? gap / (sd[l] + root) : (root - sd[l]) / dd[l];
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

    // Accepts the step in the lanes where it improves the objective enough, and adapts the trust region.
    void try_step(int iteration, bool (&moving)[kMaxLanes], Lanes& f, Lanes& delta, Solution& solution) {
        Lanes f_new, step_norm, gs, sr;
        norms(s_, step_norm);
        kernels_.lane_dots(g_.data(), s_.data(), size_, width_, gs);
        kernels_.lane_dots(s_.data(), r_.data(), size_, width_, sr);
        multiply(s_, step_margin_);
        trial_objective(f_new);
        float accepted[kMaxLanes] = {}, one[kMaxLanes];
        std::fill(one, one + kMaxLanes, 1.0f);
        for (size_t l = 0; l < n_; ++l) {
            if (!moving[l]) continue;
            solution.n_iter[l] = iteration;
            const double predicted = -0.5 * (gs[l] - sr[l]), actual = f[l] - f_new[l];
            if (iteration == 1) delta[l] = std::min(delta[l], step_norm[l]);
            delta[l] = next_radius(delta[l], step_norm[l], gs[l], predicted, actual);
            if (actual > 1e-4 * predicted) {
                accepted[l] = 1.0f;
                f[l] = f_new[l];
            } else if (std::abs(actual) <= 1e-7 * std::abs(f[l]) &&
                       std::abs(predicted) <= 1e-7 * std::abs(f[l])) {
                // Neither reduction is visible in float32: the solution is as close as the arithmetic allows.
                moving[l] = false;
                solution.converged[l] = 1;
            }
        }
        kernels_.lane_axpy(w_.data(), s_.data(), size_, width_, one, accepted);
        kernels_.lane_axpy(margin_.data(), step_margin_.data(), problem_.rows.n_rows, width_, one, accepted);
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

    void extract_weights(Solution& solution) const {
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
    const Control& control_;
    size_t first_, n_, width_, size_;
    std::vector<uint64_t> positive_;
    Panel w_, g_, s_, r_, d_, h_;
    Panel margin_, step_margin_, curvature_, coef_;  // n_rows x width
};

}  // namespace

Solution solve_newton(const Problem& problem, size_t first, size_t n, const LinearParams& params,
                      const Kernels& kernels, const Control& control, ProgressShare* progress) {
    return std::visit(
        [&]<class AnyLoss>(AnyLoss) {
            return NewtonPanel<AnyLoss>(problem, first, n, params, kernels, control).solve(progress);
        },
        params.loss);
}

}  // namespace bonsai
