#include "base/stage.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

namespace bonsai {
namespace {

// A unit is solved by one thread if each thread has work for at least this many such units.
constexpr size_t kSmallUnits = 8;

}  // namespace

void Stage::set_costs(std::vector<uint64_t> costs) {
    costs_ = std::move(costs);
    has_.assign(costs_.size(), 0);
}

bool Stage::complete() const {
    return std::all_of(has_.begin(), has_.end(), [](uint8_t has) { return has != 0; });
}

void Stage::require_complete() const {
    if (!complete()) throw std::invalid_argument("the stage has unsolved units");
}

std::vector<uint32_t> Stage::missing() const {
    std::vector<uint32_t> units;
    for (uint32_t u = 0; u < has_.size(); ++u)
        if (!has_[u]) units.push_back(u);
    return units;
}

void Stage::check_unit(size_t unit) const {
    if (unit >= n_units())
        throw std::invalid_argument("unit " + std::to_string(unit) + " is not one of the stage's " +
                                    std::to_string(n_units()));
}

void Stage::sort_units(std::vector<uint32_t>& units) const {
    std::stable_sort(units.begin(), units.end(),
                     [&](uint32_t a, uint32_t b) { return costs_[a] > costs_[b]; });
}

void Stage::solve(std::span<const uint32_t> units, Pool& pool, const Save& save, Wanted wanted) {
    std::vector<uint32_t> order;
    std::vector<uint8_t> chosen(n_units(), 0);
    for (const uint32_t unit : units) {
        check_unit(unit);
        if (!has_[unit] && !chosen[unit]) order.push_back(unit);
        chosen[unit] = 1;
    }
    sort_units(order);
    uint64_t done = 0, total = 0;
    for (size_t u = 0; u < n_units(); ++u)
        if (has_[u]) done += costs_[u];
    total = done;
    for (const uint32_t unit : order) total += costs_[unit];
    pool.control().done = done;
    pool.control().total = total + (order.empty() ? 0 : preparation_cost());
    if (order.empty()) return;
    struct Release {
        Stage& stage;
        ~Release() { stage.release(); }
    } const at_end{*this};
    prepare(order, pool);
    pool.control().done += preparation_cost();
    const auto solve_one = [&](size_t i, unsigned worker) {
        const uint32_t unit = order[i];
        std::optional<Pool::Alone> alone;
        if (costs_[unit] < (total - done) / (kSmallUnits * pool.threads())) alone.emplace();
        Bytes result = solve_unit(unit, pool, worker, wanted);
        if (wanted.keep) has_[unit] = 1;
        if (wanted.as_bytes) save(unit, std::move(result));
    };
    const size_t at_once = most_beginning(pool.threads());
    if (at_once > 1) {
        for (size_t first = 0, n = 0; first < order.size(); first += n) {
            n = std::min(at_once, order.size() - first);
            pool.run(n, [&](size_t i, unsigned worker) {
                begin_unit(order[first + i], pool);
                solve_one(first + i, worker);
            });
        }
        return;
    }
    begin_unit(order[0], pool);
    for (size_t i = 0; i < order.size(); ++i)  // the next unit may begin before the previous one ends
        pool.run(2, [&](size_t task, unsigned worker) {
            if (task == 0)
                solve_one(i, worker);
            else if (i + 1 < order.size())
                begin_unit(order[i + 1], pool);
        });
}

void Stage::add(size_t unit, std::span<const uint8_t> result) {
    check_unit(unit);
    if (has_[unit]) return;
    add_unit(unit, result);
    has_[unit] = 1;
    has_foreign_ = true;
}

}  // namespace bonsai
