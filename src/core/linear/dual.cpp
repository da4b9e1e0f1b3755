#include "linear/dual.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/memory.hpp"
#include "base/random.hpp"

namespace bonsai {

namespace {

// Rows within this part of the tolerance do not move: half of all moves are as small, and change nothing.
constexpr double kStill = 0.2;

// A panel whose lanes leave as they converge. Lanes are independent, so packing the rest together changes
// nothing but the time.
class DualPanel {
  public:
    DualPanel(const Problem& problem, size_t first, size_t n, const LinearParams& params,
              const Kernels& kernels)
        : problem_(problem),
          params_(params),
          kernels_(kernels),
          first_(first),
          width_(panel_width(n)),
          lane_(n),
          positive_(positive_lanes(problem, first, n)) {
        const size_t rows = problem.rows.n_rows;
        std::iota(lane_.begin(), lane_.end(), 0u);
        active_ = all_lanes();
        w_.assign(problem.rows.n_features * width_, 0.0f);
        alpha_.assign(rows * width_, 0.0f);
        bias_.assign(width_, params.learn_bias ? 0.0f : params.fixed_bias);
        diagonal_.resize(rows);
        inv_q_.resize(rows);
        const bool hinge = params.loss == Loss::squared_hinge;
        for (size_t i = 0; i < rows; ++i) {
            const double cost = problem.cost(i, params.c), norm2 = problem.norm2[i];
            double singleton2 = 0;  // see eliminates_singletons()
            if (problem.singletons)
                for (const float x : (*problem.singletons)[i]) singleton2 += double{x} * x;
            diagonal_[i] = static_cast<float>(hinge ? 0.5 / cost + singleton2 : cost);
            // A row without features and without a bias cannot move anything: any finite step will do.
            const double q =
                hinge ? norm2 + 0.5 / cost : std::max(norm2 + (params.learn_bias ? 1.0 : 0.0), 1e-12);
            inv_q_[i] = static_cast<float>(1.0 / q);
        }
        if (!hinge)
            start_inside();
        else if (params.learn_bias)
            start_bias();
        solution_.bias.resize(n);
        solution_.n_iter.resize(n);
        solution_.converged.assign(n, 0);
    }

    Solution solve(const Control& control) {
        std::vector<uint32_t> order(problem_.rows.n_rows);
        std::iota(order.begin(), order.end(), 0u);
        Rng rng(derive(problem_.key, kForSolver));
        for (int iteration = 1; !lane_.empty(); ++iteration) {
            control.check();
            rng.shuffle(order);
            const uint64_t done = pass(order);
            const bool last = iteration == params_.max_iter;
            settle(last ? all_lanes() : done, done, iteration);
        }
        return std::move(solution_);
    }

  private:
    uint64_t all_lanes() const {
        return lane_.size() == 64 ? ~uint64_t{0} : (uint64_t{1} << lane_.size()) - 1;
    }

    // The logistic dual lives strictly inside (0, C).
    void start_inside() {
        Panel coef(alpha_.size(), 0.0f);
        for (size_t i = 0; i < problem_.rows.n_rows; ++i) {
            const float start = static_cast<float>(std::min(1e-3 * diagonal_[i], 1e-8));
            for (size_t l = 0; l < lane_.size(); ++l) {
                alpha_[i * width_ + l] = start;
                coef[i * width_ + l] = positive_[i] >> l & 1 ? start : -start;
                if (params_.learn_bias) bias_[l] += coef[i * width_ + l];
            }
        }
        kernels_.scatter(problem_.rows, coef.data(), width_, w_.data());
    }

    // The best bias of a classifier without weights.
    void start_bias() {
        double all = 0;
        std::vector<double> of_positives(width_, 0.0);
        for (size_t i = 0; i < problem_.rows.n_rows; ++i) {
            const double cost = problem_.cost(i, params_.c);
            all += cost;
            for (uint64_t bits = positive_[i]; bits; bits &= bits - 1)
                of_positives[static_cast<size_t>(std::countr_zero(bits))] += cost;
        }
        for (size_t l = 0; l < lane_.size() && all > 0; ++l)
            bias_[l] = static_cast<float>(2 * of_positives[l] / all - 1);
    }

    // At the optimum the bias is the sum of y alpha. A row of the support answers a change of the bias by
    // 1 / Q_ii times as much if the weights follow at once, by up to three times that if they do not: a
    // Newton step with twice that. To hold the bias during a pass, instead of letting every row move it a
    // little, leaves rows alone that have nothing to do with a class.
    static float bias_step(float bias, float alpha_sum, float support) {
        return (alpha_sum - bias) / (1 + 2 * support);
    }

    // One pass; returns the lanes that have converged.
    uint64_t pass(const std::vector<uint32_t>& order) {
        float high[kMaxLanes], low[kMaxLanes], alpha_sum[kMaxLanes], support[kMaxLanes];
        const DualPass work{.rows = problem_.rows,
                            .order = order.data(),
                            .positive = positive_.data(),
                            .inv_q = inv_q_.data(),
                            .diagonal = diagonal_.data(),
                            .active = active_,
                            .width = width_,
                            .learn_bias = params_.learn_bias,
                            .still = static_cast<float>(kStill * params_.tol),
                            .w = w_.data(),
                            .bias = bias_.data(),
                            .alpha = alpha_.data(),
                            .gradient_max = high,
                            .gradient_min = low,
                            .alpha_sum = alpha_sum,
                            .support = support};
        (params_.loss == Loss::squared_hinge ? kernels_.dual_squared_hinge : kernels_.dual_logistic)(work);
        const bool between_passes = params_.learn_bias && params_.loss == Loss::squared_hinge;
        uint64_t done = 0;
        for (size_t l = 0; l < lane_.size(); ++l) {
            float move = 0;
            if (between_passes && active_ >> l & 1)
                bias_[l] += move = bias_step(bias_[l], alpha_sum[l], support[l]);
            if (high[l] - low[l] <= params_.tol && std::abs(move) <= params_.tol) done |= uint64_t{1} << l;
        }
        return done;
    }

    // Lanes in `finished` stop moving; they are carried out of the panel once that makes it narrower.
    void settle(uint64_t finished, uint64_t converged, int iteration) {
        const uint64_t fresh = finished & active_;
        for (size_t l = 0; l < lane_.size(); ++l) {
            if (!(fresh >> l & 1)) continue;
            solution_.n_iter[lane_[l]] = iteration;
            solution_.converged[lane_[l]] = converged >> l & 1;
            solution_.bias[lane_[l]] = bias_[l];
        }
        active_ &= ~finished;
        const auto n_left = static_cast<size_t>(std::popcount(active_));
        if (n_left > 0 && panel_width(n_left) == width_) return;
        report(all_lanes() & ~active_);
        compact();
    }

    void report(uint64_t lanes) {
        for (size_t f = 0; f < problem_.rows.n_features; ++f) {
            const float* row = w_.data() + f * width_;
            for (uint64_t bits = kernels_.lanes_above(row, width_, params_.prune) & lanes; bits;
                 bits &= bits - 1) {
                const int l = std::countr_zero(bits);
                solution_.weights.push_back(
                    {static_cast<uint32_t>(f), static_cast<uint32_t>(first_ + lane_[l]), row[l]});
            }
        }
        if (problem_.singletons) report_singletons(lanes);
    }

    void report_singletons(uint64_t lanes) {
        const SingletonFeatures& singletons = *problem_.singletons;
        for (size_t i = 0; i < problem_.rows.n_rows; ++i) {
            const float* alpha = alpha_.data() + i * width_;
            float largest = 0;
            for (const float x : singletons[i]) largest = std::max(largest, std::abs(x));
            if (largest == 0) continue;
            // A little less, for the rounding of the quotient; each weight is looked at below.
            const uint64_t some =
                kernels_.lanes_above(alpha, width_, params_.prune / largest * 0.999f) & lanes;
            for (size_t e = 0; some && e < singletons[i].size(); ++e)
                for (uint64_t bits = some; bits; bits &= bits - 1) {
                    const int l = std::countr_zero(bits);
                    const float w = (positive_[i] >> l & 1 ? alpha[l] : -alpha[l]) * singletons[i][e];
                    if (!(std::abs(w) > params_.prune)) continue;
                    const size_t feature =
                        singletons.first_feature + static_cast<size_t>(singletons.ptr[i]) + e;
                    solution_.weights.push_back(
                        {static_cast<uint32_t>(feature), static_cast<uint32_t>(first_ + lane_[l]), w});
                }
        }
    }

    void compact() {
        std::vector<uint32_t> kept;
        for (uint64_t bits = active_; bits; bits &= bits - 1) kept.push_back(std::countr_zero(bits));
        const size_t width = panel_width(kept.size());
        repack(w_, problem_.rows.n_features, kept, width);
        repack(alpha_, problem_.rows.n_rows, kept, width);
        repack(bias_, 1, kept, width);
        for (auto& bits : positive_) {
            uint64_t packed = 0;
            for (size_t l = 0; l < kept.size(); ++l) packed |= (bits >> kept[l] & 1) << l;
            bits = packed;
        }
        for (size_t l = 0; l < kept.size(); ++l) lane_[l] = lane_[kept[l]];
        lane_.resize(kept.size());
        width_ = width;
        active_ = all_lanes();
    }

    // In place: a narrower row never overtakes the one that it is read from.
    void repack(Panel& panel, size_t n, const std::vector<uint32_t>& kept, size_t width) const {
        for (size_t r = 0; r < n; ++r) {
            const float* from = panel.data() + r * width_;
            float* to = panel.data() + r * width;
            for (size_t l = 0; l < kept.size(); ++l) to[l] = from[kept[l]];
            for (size_t l = kept.size(); l < width; ++l) to[l] = 0.0f;
        }
        panel.resize(n * width);
    }

    const Problem& problem_;
    const LinearParams& params_;
    const Kernels& kernels_;
    size_t first_;
    size_t width_;
    uint64_t active_;             // lanes that still move; padding never does
    std::vector<uint32_t> lane_;  // lane of the panel -> class, counted from first_
    std::vector<uint64_t> positive_;
    Panel w_, alpha_, bias_;
    std::vector<float> diagonal_, inv_q_;
    Solution solution_;
};

}  // namespace

Solution solve_dual(const Problem& problem, size_t first, size_t n, const LinearParams& params,
                    const Kernels& kernels, const Control& control) {
    return DualPanel(problem, first, n, params, kernels).solve(control);
}

}  // namespace bonsai
