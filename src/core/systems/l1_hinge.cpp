#include "systems/l1_hinge.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>

namespace bonsai {
namespace {

constexpr size_t kFirstFeatures = 128;  // minimum of a working set
constexpr int kMaxNewtonSteps = 60;
constexpr int kMaxPasses = 200;
constexpr size_t kHistory = 5;  // passes that an extrapolation combines
// Passes end when the largest change is this fraction of that in the first pass.
constexpr double kPassesEnd = 0.4;
// A working set is replaced when its duality gap is this fraction of the gap of the whole problem at the time
// of its choice.
constexpr double kGapLeft = 0.5;

// Data that all labels share.
struct SharedRows {
    explicit SharedRows(const Dataset& data, double c)
        : data(data), columns(data), total(data.x().n_features, 0.0) {
        for (size_t i = 0; i < data.n_rows(); ++i) {
            const double cost = c * double{data.weight(i)};
            costs.push_back(cost);
            total_cost += cost;
            for_each_entry(data.x(), i,
                           [&](uint32_t f, float v) { total[f] += cost * (v * data.factors()[i]); });
        }
    }
    const Dataset& data;
    const Columns columns;
    std::vector<double> costs;  // C c_i
    double total_cost = 0;
    std::vector<double> total;  // per column: Σ C c_i x_i
};

// The rows of a matrix with few columns.
class NarrowRows {
  public:
    struct Entry {
        uint32_t column;
        float value;
    };

    void assign(const Columns& columns, std::span<const uint32_t> chosen, size_t n_rows) {
        ptr_.assign(n_rows + 2, 0);
        for (const uint32_t f : chosen)
            for (const auto& e : columns[f]) ++ptr_[e.row + 2];
        for (size_t i = 2; i < ptr_.size(); ++i) ptr_[i] += ptr_[i - 1];
        entries_.resize(ptr_.back());
        for (uint32_t c = 0; c < chosen.size(); ++c)
            for (const auto& e : columns[chosen[c]]) entries_[ptr_[e.row + 1]++] = {c, e.value};
    }
    std::span<const Entry> operator[](size_t row) const {
        return {entries_.data() + ptr_[row], ptr_[row + 1] - ptr_[row]};
    }

  private:
    std::vector<size_t> ptr_;
    std::vector<Entry> entries_;
};

// Solves one label after the other. Working sets grow by the features with the largest violations of
// optimality. A working set is solved by Newton steps: the loss of the rows with a positive slack is a
// quadratic, which is minimised together with the L1 term by coordinate descent on its Gram matrix; an exact
// line search follows. Duality gaps end both loops.
class LabelSolver {
  public:
    LabelSolver(const SharedRows& shared, const L1HingeParams& params, const Control& control)
        : shared_(shared),
          params_(params),
          control_(control),
          n_rows_(shared.data.n_rows()),
          n_features_(shared.data.x().n_features),
          z_(n_rows_),
          step_(n_rows_),
          sign_(n_rows_, -1.0f),
          w_(n_features_, 0.0),
          gradient_(n_features_) {}

    SparseClassifier solve(std::span<const int32_t> positives) {
        for (const int32_t i : positives) sign_[i] = 1;
        SparseClassifier found = solve_signs(positives);
        for (const int32_t i : positives) sign_[i] = -1;
        for (const uint32_t f : support_) w_[f] = 0;
        support_.clear();
        return found;
    }

  private:
    struct Gap {
        double primal;
        double value;
    };

    SparseClassifier solve_signs(std::span<const int32_t> positives) {
        start(positives);
        SparseClassifier found;
        for (found.n_iter = 0;; ++found.n_iter) {
            const Gap gap = whole_gap();
            found.converged = gap.value <= params_.tol * gap.primal;
            if (found.converged || found.n_iter == params_.max_rounds) break;
            choose_features();
            solve_set(std::max(kGapLeft * gap.value, params_.tol / 2 * gap.primal));
            find_slack();
            find_gradient();
        }
        for (const uint32_t f : support_) {
            found.feature.push_back(f);
            found.value.push_back(static_cast<float>(w_[f]));
        }
        found.bias = static_cast<float>(bias_);
        return found;
    }

    // The optimum of the bias without weights, where every row has a slack. The gradient follows from sums
    // over all rows.
    void start(std::span<const int32_t> positives) {
        double positive_cost = 0;
        for (const int32_t i : positives) positive_cost += shared_.costs[i];
        const double n = shared_.total_cost;
        bias_ = soft_threshold(2 * (2 * positive_cost - n), params_.l1) / (2 * n + params_.l2);
        std::fill(z_.begin(), z_.end(), bias_);
        for (size_t f = 0; f < n_features_; ++f) gradient_[f] = 2 * (1 + bias_) * shared_.total[f];
        for (const int32_t i : positives)
            for_each_entry(shared_.data.x(), i, [&](uint32_t f, float v) {
                gradient_[f] -= 4 * shared_.costs[i] * (v * shared_.data.factors()[i]);
            });
        find_slack();
    }

    // The rows with a positive slack d_i = 1 − s_i z_i, and the sums over them that the objective needs.
    void find_slack() {
        slack_rows_.clear();
        loss_ = dual_sum_ = bias_gradient_ = 0;
        for (size_t i = 0; i < n_rows_; ++i) {
            const double d = 1 - sign_[i] * z_[i];
            if (!(d > 0)) continue;
            slack_rows_.push_back(static_cast<uint32_t>(i));
            const double cd = shared_.costs[i] * d;
            loss_ += cd * d;
            dual_sum_ += 2 * cd;
            bias_gradient_ -= 2 * cd * sign_[i];
        }
    }

    // −2 C c_i s_i d_i, the derivative of the loss of a row by its margin.
    double slope(size_t i) const { return -2 * shared_.costs[i] * sign_[i] * (1 - sign_[i] * z_[i]); }

    void find_gradient() {
        std::fill(gradient_.begin(), gradient_.end(), 0.0);
        for (const uint32_t i : slack_rows_) {
            const double r = slope(i) * shared_.data.factors()[i];
            for_each_entry(shared_.data.x(), i, [&](uint32_t f, float v) { gradient_[f] += r * v; });
        }
    }

    // The gap between the objective and the dual objective at a multiple of α_i = 2 C c_i d_i. for_each(fn)
    // calls fn(weight, gradient of the loss) for each feature and the bias.
    template <class ForEach>
    Gap gap_of(ForEach&& for_each) const {
        double norm1 = 0, norm2 = 0, largest = 0, thresholded2 = 0;
        for_each([&](double w, double g) {
            norm1 += std::abs(w);
            norm2 += w * w;
            largest = std::max(largest, std::abs(g));
            const double t = soft_threshold(g, params_.l1);
            thresholded2 += t * t;
        });
        const double primal = params_.l1 * norm1 + params_.l2 / 2 * norm2 + loss_;
        if (params_.l2 > 0) return {primal, primal - (dual_sum_ - loss_ - thresholded2 / (2 * params_.l2))};
        double scale = loss_ > 0 ? dual_sum_ / (2 * loss_) : 0;
        if (largest * scale > params_.l1) scale = params_.l1 / largest;
        return {primal, primal - (scale * dual_sum_ - scale * scale * loss_)};
    }
    Gap whole_gap() const {
        return gap_of([&](auto&& fn) {
            fn(bias_, bias_gradient_);
            for (size_t f = 0; f < n_features_; ++f) fn(w_[f], gradient_[f]);
        });
    }
    // The gap of the problem restricted to the working set; other features have no weight.
    Gap gap_of_set() const {
        return gap_of([&](auto&& fn) {
            for (size_t a = 0; a < u_.size(); ++a) fn(u_[a], g_[a]);
        });
    }

    // Features with a weight, and as many again with the largest violations of optimality.
    void choose_features() {
        struct Candidate {
            double violation;
            uint32_t feature;
        };
        std::vector<Candidate> candidates;
        for (uint32_t f = 0; f < n_features_; ++f)
            if (w_[f] == 0 && std::abs(gradient_[f]) > params_.l1)
                candidates.push_back({std::abs(gradient_[f]) - params_.l1, f});
        const size_t n = std::min(std::max(kFirstFeatures, support_.size()), candidates.size());
        const auto end = candidates.begin() + static_cast<int64_t>(n);
        std::nth_element(
            candidates.begin(), end, candidates.end(), [](const Candidate& a, const Candidate& b) {
                return a.violation != b.violation ? a.violation > b.violation : a.feature < b.feature;
            });
        features_ = support_;
        for (auto c = candidates.begin(); c != end; ++c) features_.push_back(c->feature);
        std::sort(features_.begin(), features_.end());
    }

    // Weights u: the bias, then the features. Column 0 of the Gram matrix is the bias.
    void solve_set(double largest_gap) {
        const size_t n = features_.size() + 1;
        narrow_.assign(shared_.columns, features_, n_rows_);
        u_.assign(1, bias_);
        for (const uint32_t f : features_) u_.push_back(w_[f]);
        for (int step = 0; step < kMaxNewtonSteps; ++step) {
            control_.check();
            find_slack();
            g_.assign(n, 0.0);
            g_[0] = bias_gradient_;
            for (const uint32_t i : slack_rows_) {
                const double r = slope(i);
                for (const auto& e : narrow_[i]) g_[e.column + 1] += r * e.value;
            }
            if (gap_of_set().value <= largest_gap) break;
            gather_columns();
            find_step();
            if (!take_step()) break;
        }
        bias_ = u_[0];
        support_.clear();
        for (size_t a = 1; a < n; ++a) {
            w_[features_[a - 1]] = u_[a];
            if (u_[a] != 0) support_.push_back(features_[a - 1]);
        }
    }

    // The entries of the rows with a slack, by column of the working set, times the square roots of the
    // second derivatives of the losses.
    void gather_columns() {
        const size_t n = u_.size();
        ptr_.assign(n + 2, 0);
        for (const uint32_t i : slack_rows_)
            for (const auto& e : narrow_[i]) ++ptr_[e.column + 2];
        for (size_t a = 2; a < ptr_.size(); ++a) ptr_[a] += ptr_[a - 1];
        entries_.resize(ptr_.back());
        curvature_.assign(n, params_.l2);
        roots_.clear();
        for (uint32_t r = 0; r < slack_rows_.size(); ++r) {
            const double root = std::sqrt(2 * shared_.costs[slack_rows_[r]]);
            roots_.push_back(root);
            curvature_[0] += root * root;
            for (const auto& e : narrow_[slack_rows_[r]]) {
                const auto value = static_cast<float>(root * e.value);
                entries_[ptr_[e.column + 1]++] = {r, value};
                curvature_[e.column + 1] += double{value} * value;
            }
        }
    }

    // Minimises the quadratic plus the L1 term by coordinate descent; the result is u + delta. Passes over
    // the columns with a weight are extrapolated (Bertrand and Massias, Anderson acceleration of coordinate
    // descent, 2021).
    void find_step() {
        const size_t n = u_.size();
        delta_.assign(n, 0.0);
        pull_.assign(slack_rows_.size(), 0.0);
        std::vector<uint32_t> all(n), some;
        std::iota(all.begin(), all.end(), 0u);
        double first = 0;
        for (int pass = 0; pass < kMaxPasses; ++pass) {
            const double largest = descend(all);
            if (pass == 0) first = largest;
            if (largest <= kPassesEnd * first) break;
            some.clear();
            for (uint32_t a = 0; a < n; ++a)
                if (u_[a] + delta_[a] != 0) some.push_back(a);
            history_.clear();
            while (++pass < kMaxPasses && descend(some) > kPassesEnd * first) extrapolate(some);
        }
    }

    // After every kHistory passes over these columns: takes the combination of the iterates with the smallest
    // differences, if it lowers the objective.
    void extrapolate(std::span<const uint32_t> columns) {
        std::vector<double> now;
        for (const uint32_t a : columns) now.push_back(delta_[a]);
        history_.push_back(std::move(now));
        if (history_.size() <= kHistory) return;
        std::array<double, kHistory> c;
        const bool solved = combination(c);
        std::vector<double> combined(columns.size(), 0.0);
        for (size_t k = 0; k < kHistory; ++k)
            for (size_t j = 0; j < columns.size(); ++j) combined[j] += c[k] * history_[k + 1][j];
        history_.clear();
        if (!solved) return;
        const double before = model_objective();
        const std::vector<double> old_delta = delta_, old_pull = pull_;
        for (size_t j = 0; j < columns.size(); ++j) {
            const double change = combined[j] - delta_[columns[j]];
            delta_[columns[j]] = combined[j];
            if (change != 0) add_pull(columns[j], change);
        }
        if (model_objective() < before) return;
        delta_ = old_delta;
        pull_ = old_pull;
    }

    // Coefficients with sum 1 that minimise the norm of the combined differences between consecutive
    // iterates.
    bool combination(std::array<double, kHistory>& c) const {
        std::array<std::array<double, kHistory>, kHistory> m{};
        for (size_t j = 0; j < history_[0].size(); ++j)
            for (size_t k = 0; k < kHistory; ++k)
                for (size_t l = 0; l <= k; ++l)
                    m[k][l] += (history_[k + 1][j] - history_[k][j]) * (history_[l + 1][j] - history_[l][j]);
        double trace = 0, sum = 0;
        for (size_t k = 0; k < kHistory; ++k) trace += m[k][k];
        // Cholesky
        for (size_t k = 0; k < kHistory; ++k) {
            m[k][k] += 1e-10 * trace;
            for (size_t l = 0; l <= k; ++l) {
                for (size_t i = 0; i < l; ++i) m[k][l] -= m[k][i] * m[l][i];
                if (k == l && !(m[k][k] > 0)) return false;
                m[k][l] = k == l ? std::sqrt(m[k][k]) : m[k][l] / m[l][l];
            }
        }
        for (size_t k = 0; k < kHistory; ++k) {
            c[k] = 1;
            for (size_t i = 0; i < k; ++i) c[k] -= m[k][i] * c[i];
            c[k] /= m[k][k];
        }
        for (size_t k = kHistory; k-- > 0;) {
            for (size_t i = k + 1; i < kHistory; ++i) c[k] -= m[i][k] * c[i];
            c[k] /= m[k][k];
            sum += c[k];
        }
        for (double& weight : c) weight /= sum;
        return std::isfinite(sum) && sum != 0;
    }

    double model_objective() const {
        double sum = 0;
        for (size_t a = 0; a < u_.size(); ++a) {
            const double w = u_[a] + delta_[a];
            sum += g_[a] * delta_[a] + params_.l1 * std::abs(w) + params_.l2 / 2 * w * w;
        }
        for (size_t i = 0; i < pull_.size(); ++i) sum += pull_[i] * pull_[i] / 2;
        return sum;
    }

    // Four independent sums shorten the chain of additions.
    double dot_pull(size_t a) const {
        double sum[4] = {0, 0, 0, 0};
        if (a == 0) {
            for (size_t i = 0; i < pull_.size(); ++i) sum[i % 4] += roots_[i] * pull_[i];
        } else {
            const Columns::Entry* e = entries_.data() + ptr_[a - 1];
            const Columns::Entry* const end = entries_.data() + ptr_[a];
            for (; end - e >= 4; e += 4)
                for (size_t k = 0; k < 4; ++k) sum[k] += e[k].value * pull_[e[k].row];
            for (; e != end; ++e) sum[0] += e->value * pull_[e->row];
        }
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }

    void add_pull(size_t a, double change) {
        if (a == 0)
            for (size_t i = 0; i < pull_.size(); ++i) pull_[i] += change * roots_[i];
        else
            for (size_t e = ptr_[a - 1]; e < ptr_[a]; ++e)
                pull_[entries_[e].row] += change * entries_[e].value;
    }

    // Makes one pass over these columns. Returns the largest change of a weight, times its curvature.
    double descend(std::span<const uint32_t> columns) {
        double largest = 0;
        for (const uint32_t a : columns) {
            const double h = curvature_[a], now = u_[a] + delta_[a];
            const double r = g_[a] + params_.l2 * now + dot_pull(a);
            const double target = h > 1e-12 ? soft_threshold(now - r / h, params_.l1 / h) : 0.0;
            const double change = target - now;
            if (change == 0) continue;
            delta_[a] = target == 0 ? -u_[a] : delta_[a] + change;
            largest = std::max(largest, std::abs(change) * h);
            add_pull(a, change);
        }
        return largest;
    }

    // Moves along delta to the minimum of the objective, at most to u + delta. Returns false if no step
    // lowers it.
    bool take_step() {
        for (size_t i = 0; i < n_rows_; ++i) {
            double sum = delta_[0];
            for (const auto& e : narrow_[i]) sum += delta_[e.column + 1] * e.value;
            step_[i] = sum;
        }
        // rows that have a slack anywhere in between
        line_.clear();
        for (size_t i = 0; i < n_rows_; ++i) {
            const double d = 1 - sign_[i] * z_[i], change = -sign_[i] * step_[i];
            if (change != 0 && std::max(d, d + change) > 0) line_.push_back({d, change, shared_.costs[i]});
        }
        if (!(slopes_at(0).first < 0)) return false;
        double t = 1;
        if (slopes_at(1).first > 0) {
            double low = 0, high = 1;
            t = 0.5;
            for (int k = 0; k < 30 && high - low > 1e-4 * high; ++k) {
                const auto [first, second] = slopes_at(t);
                (first > 0 ? high : low) = t;
                const double newton = second > 0 ? t - first / second : -1;
                if (std::abs(newton - t) < 1e-4 * t) break;
                t = newton > low && newton < high ? newton : (low + high) / 2;
            }
        }
        for (size_t i = 0; i < n_rows_; ++i) z_[i] += t * step_[i];
        for (size_t a = 0; a < u_.size(); ++a)
            u_[a] = t == 1 && delta_[a] == -u_[a] ? 0.0 : u_[a] + t * delta_[a];
        return true;
    }

    // First and second derivative of the objective at u + t delta; at kinks of the L1 term from the left, at
    // t = 0 from the right.
    std::pair<double, double> slopes_at(double t) const {
        double first = 0, second = 0;
        for (const auto& row : line_) {
            const double d = row.slack + t * row.change;
            if (!(d > 0)) continue;
            first += 2 * row.cost * d * row.change;
            second += 2 * row.cost * row.change * row.change;
        }
        for (size_t a = 0; a < u_.size(); ++a) {
            if (delta_[a] == 0) continue;
            const double u = u_[a] + t * delta_[a];
            const double before = t == 0 ? u : u_[a] + t * (1 - 1e-12) * delta_[a];
            const double sign = before != 0 ? std::copysign(1.0, before) : std::copysign(1.0, delta_[a]);
            first += params_.l1 * sign * delta_[a] + params_.l2 * u * delta_[a];
            second += params_.l2 * delta_[a] * delta_[a];
        }
        return {first, second};
    }

    struct LineRow {
        double slack, change, cost;
    };

    const SharedRows& shared_;
    const L1HingeParams& params_;
    const Control& control_;
    const size_t n_rows_, n_features_;
    std::vector<double> z_, step_;  // per row: the margin, and its change by a step
    std::vector<float> sign_;
    std::vector<double> w_, gradient_;  // per feature; the gradient is that of the loss
    double bias_ = 0, bias_gradient_ = 0;
    std::vector<uint32_t> support_;  // features with a weight
    std::vector<uint32_t> slack_rows_;
    double loss_ = 0, dual_sum_ = 0;
    std::vector<uint32_t> features_;  // in the working set
    NarrowRows narrow_;
    std::vector<double> u_, delta_, g_, curvature_, pull_, roots_;
    std::vector<std::vector<double>> history_;
    std::vector<size_t> ptr_;
    std::vector<Columns::Entry> entries_;
    std::vector<LineRow> line_;
};

}  // namespace

SparseWeights train_l1_hinge(const Dataset& data, const L1HingeParams& params, Pool& pool) {
    const SharedRows shared(data, params.c);
    std::vector<uint32_t> order(data.n_labels());
    std::iota(order.begin(), order.end(), 0u);
    const auto cost = [&](uint32_t label) { return 100 + data.rows_of(label).size(); };
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return cost(a) > cost(b); });
    uint64_t total = 0;
    for (const uint32_t label : order) total += cost(label);
    pool.control().done = 0;
    pool.control().total = total;
    std::vector<std::unique_ptr<LabelSolver>> solvers(pool.threads());
    std::vector<SparseClassifier> classifiers(order.size());
    pool.run(order.size(), [&](size_t i, unsigned worker) {
        auto& solver = solvers[worker];
        if (!solver) solver = std::make_unique<LabelSolver>(shared, params, pool.control());
        classifiers[order[i]] = solver->solve(data.rows_of(order[i]));
        pool.control().done += cost(order[i]);
    });
    SparseWeights weights;
    for (auto& classifier : classifiers) weights.add(std::exchange(classifier, {}), data);
    return weights;
}

}  // namespace bonsai
