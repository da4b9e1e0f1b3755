#include "linear/dual.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/memory.hpp"
#include "base/random.hpp"

namespace bonsai {
namespace {

// In units of tol: variables with a smaller projected gradient are not updated. Half of all updates would be
// that small, without effect on the result.
constexpr double kMinGradient = 0.2;

// A panel from which converged lanes are removed. Lanes are independent: compacting the others changes only
// the time.
template <class AnyLoss>
class DualPanel {
  public:
    DualPanel(const Problem& problem, size_t first, size_t n, const LinearParams& params,
              const Kernels& kernels, const Control& control)
        : problem_(problem),
          params_(params),
          kernels_(kernels),
          control_(control),
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
        set_diagonals();
        if (AnyLoss::moves_bias_between_passes && params.learn_bias) start_bias();
        solution_.bias.resize(n);
        solution_.n_iter.resize(n);
        solution_.converged.assign(n, 0);
    }

    Solution solve(ProgressShare* progress) {
        std::vector<uint32_t> order(problem_.rows.n_rows);
        std::iota(order.begin(), order.end(), 0u);
        Rng rng(derive(problem_.key, kForSolver));
        for (int iteration = 1; !lane_.empty(); ++iteration) {
            control_.check();
            rng.shuffle(order);
            const uint64_t converged = pass(order);
            const bool last = iteration == params_.max_iter;
            finish(last ? all_lanes() : converged, converged, iteration);
            if (progress) progress->advance_to(part_done(iteration));
        }
        return std::move(solution_);
    }

  private:
    uint64_t all_lanes() const {
        return lane_.size() == 64 ? ~uint64_t{0} : (uint64_t{1} << lane_.size()) - 1;
    }

    void set_diagonals() {
        const size_t rows = problem_.rows.n_rows;
        diagonal_.resize(rows);
        inv_q_.resize(rows);
        for (size_t i = 0; i < rows; ++i) {
            const double cost = problem_.cost(i, params_.c);
            double singletons2 = 0;
            if (problem_.singletons)
                for (const float x : (*problem_.singletons)[i]) singletons2 += double{x} * x;
            diagonal_[i] = static_cast<float>(AnyLoss::diagonal(cost, singletons2));
            inv_q_[i] = static_cast<float>(1.0 / AnyLoss::q(cost, problem_.norm2[i], params_.learn_bias));
        }
    }

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
            bias_[l] = static_cast<float>(AnyLoss::first_bias(of_positives[l], all));
    }

    // One pass over all rows; returns the lanes that have converged.
    uint64_t pass(const std::vector<uint32_t>& order) {
        float high[kMaxLanes] = {}, low[kMaxLanes] = {}, residual[kMaxLanes] = {};
        float alpha_sum[kMaxLanes] = {}, support[kMaxLanes] = {};
        DualPass part{.rows = problem_.rows,
                      .order = nullptr,
                      .n = 0,
                      .positive = positive_.data(),
                      .inv_q = inv_q_.data(),
                      .diagonal = diagonal_.data(),
                      .active = active_,
                      .width = width_,
                      .learn_bias = params_.learn_bias,
                      .min_gradient = static_cast<float>(kMinGradient * params_.tol),
                      .w = w_.data(),
                      .bias = bias_.data(),
                      .alpha = alpha_.data(),
                      .gradient_max = high,
                      .gradient_min = low,
                      .residual = residual,
                      .alpha_sum = alpha_sum,
                      .support = support};
        const size_t step = rows_per_poll(problem_.rows);
        for (size_t begin = 0; begin < order.size(); begin += step) {
            control_.check();
            part.order = order.data() + begin;
            part.n = std::min(step, order.size() - begin);
            (kernels_.*AnyLoss::dual_pass)(part);
        }
        uint64_t converged = 0;
        for (size_t l = 0; l < lane_.size(); ++l) {
            const PassedLane lane{bias_[l], high[l], low[l], residual[l], alpha_sum[l], support[l]};
            float move = 0;
            if (AnyLoss::moves_bias_between_passes && params_.learn_bias && active_ >> l & 1)
                bias_[l] += move = AnyLoss::bias_step(lane);
            if (AnyLoss::converged(lane, move, params_.tol)) converged |= uint64_t{1} << l;
        }
        return converged;
    }

    // Stops updating the lanes in `finished`. They are removed from the panel as soon as this makes it
    // narrower.
    void finish(uint64_t finished, uint64_t converged, int iteration) {
        for (uint64_t bits = finished & active_; bits; bits &= bits - 1) {
            const auto l = static_cast<size_t>(std::countr_zero(bits));
            solution_.n_iter[lane_[l]] = iteration;
            solution_.converged[lane_[l]] = converged >> l & 1;
            solution_.bias[lane_[l]] = bias_[l];
        }
        active_ &= ~finished;
        const auto n_left = static_cast<size_t>(std::popcount(active_));
        if (n_left > 0 && panel_width(n_left) == width_) return;
        extract_weights(all_lanes() & ~active_);
        if (problem_.singletons) extract_singletons(all_lanes() & ~active_);
        compact();
    }

    void extract_weights(uint64_t lanes) {
        for (size_t f = 0; f < problem_.rows.n_features; ++f) {
            const float* row = w_.data() + f * width_;
            for (uint64_t bits = kernels_.lanes_above(row, width_, params_.prune) & lanes; bits;
                 bits &= bits - 1) {
                const int l = std::countr_zero(bits);
                solution_.weights.push_back(
                    {static_cast<uint32_t>(f), static_cast<uint32_t>(first_ + lane_[l]), row[l]});
            }
        }
    }

    // The weight of a singleton feature is y alpha x.
    void extract_singletons(uint64_t lanes) {
        const SingletonFeatures& singletons = *problem_.singletons;
        for (size_t i = 0; i < problem_.rows.n_rows; ++i) {
            const float* alpha = alpha_.data() + i * width_;
            float largest = 0;
            for (const float x : singletons[i]) largest = std::max(largest, std::abs(x));
            if (largest == 0) continue;
            // Candidates: the threshold has room for the rounding of the quotient.
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
        compact_panel(w_, problem_.rows.n_features, kept, width);
        compact_panel(alpha_, problem_.rows.n_rows, kept, width);
        compact_panel(bias_, 1, kept, width);
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

    // In place: a narrower row is never written beyond the row it is read from.
    void compact_panel(Panel& panel, size_t n, const std::vector<uint32_t>& kept, size_t width) const {
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
    const Control& control_;
    size_t first_;
    size_t width_;
    uint64_t active_;             // lanes that are updated; padding never is
    std::vector<uint32_t> lane_;  // lane of the panel -> class, counted from first_
    std::vector<uint64_t> positive_;
    Panel w_, alpha_, bias_;
    std::vector<float> diagonal_, inv_q_;
    Solution solution_;
};

}  // namespace

Solution solve_dual(const Problem& problem, size_t first, size_t n, const LinearParams& params,
                    const Kernels& kernels, const Control& control, ProgressShare* progress) {
    return std::visit(
        [&]<class AnyLoss>(AnyLoss) {
            return DualPanel<AnyLoss>(problem, first, n, params, kernels, control).solve(progress);
        },
        params.loss);
}

}  // namespace bonsai
