// A stage of training: units of work that are independent of each other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/parallel.hpp"

namespace bonsai {

// A unit's result depends on the data, the parameters and the unit's number alone: units may be solved in any
// order, by any number of threads, in any process. The stage keeps the results. A result can be exported as
// bytes and added to another stage of the same data and parameters, which checks it as far as memory safety
// requires.
class Stage {
  public:
    // Called once for each unit, by any thread of the pool.
    using Save = std::function<void(size_t unit, Bytes&& result)>;

    virtual ~Stage() = default;
    Stage(const Stage&) = delete;
    Stage& operator=(const Stage&) = delete;

    size_t n_units() const { return costs_.size(); }
    // The work of each unit, in the measure of the progress.
    std::span<const uint64_t> costs() const { return costs_; }
    bool has(size_t unit) const { return has_[unit] != 0; }
    bool complete() const;
    // Whether a result was added from outside.
    bool has_foreign() const { return has_foreign_; }
    std::vector<uint32_t> missing() const;

    // Solves those of `units` that are missing. Units use all threads of the pool, side by side or inside. If
    // it throws, the results of finished units stay.
    void solve(std::span<const uint32_t> units, Pool& pool, const Save& save = nullptr) {
        solve(units, pool, save, {.keep = true, .as_bytes = save != nullptr});
    }
    // Solves units for another stage of the same kind: the results go to `save` alone, and the units stay
    // missing here.
    void solve_for_others(std::span<const uint32_t> units, Pool& pool, const Save& save) {
        solve(units, pool, save, {.keep = false, .as_bytes = true});
    }
    void solve_all(Pool& pool) { solve(missing(), pool); }
    // Adds a result of the same unit that was solved elsewhere; an existing result is kept. Throws
    // std::invalid_argument if the bytes cannot be such a result. Several threads may add different units.
    void add(size_t unit, std::span<const uint8_t> result);

  protected:
    Stage() = default;
    void set_costs(std::vector<uint64_t> costs);
    // Throws std::invalid_argument unless all results are there.
    void require_complete() const;

    // State that the units of one call of `solve` share.
    virtual void prepare(std::span<const uint32_t> /*units*/, Pool&) {}
    // Called at the end of `solve`.
    virtual void release() {}
    virtual uint64_t preparation_cost() const { return 0; }
    // Units whose work does not parallelise well come first: the others fill the gaps at the end.
    virtual void sort_units(std::vector<uint32_t>& units) const;
    // Units may begin with a part that needs much memory: the maximum number of units that run it at the same
    // time.
    virtual size_t most_beginning(unsigned /*threads*/) const { return static_cast<size_t>(-1); }
    // Runs that part, on all threads of the pool.
    virtual void begin_unit(size_t /*unit*/, Pool&) {}
    // Receives a result.
    struct Wanted {
        bool keep;
        bool as_bytes;
    };
    // Solves a unit; returns nothing if no bytes are requested.
    virtual Bytes solve_unit(size_t unit, Pool& pool, unsigned worker, Wanted wanted) = 0;
    virtual void add_unit(size_t unit, std::span<const uint8_t> result) = 0;

  private:
    void check_unit(size_t unit) const;
    void solve(std::span<const uint32_t> units, Pool& pool, const Save& save, Wanted wanted);

    std::vector<uint64_t> costs_;
    std::vector<uint8_t> has_;
    std::atomic<bool> has_foreign_ = false;
};

}  // namespace bonsai
