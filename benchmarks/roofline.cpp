// Measures the limits of this machine on one thread, and the kernels against them: JSON on standard output.
// `python -m benchmarks.roofline` builds and runs it, and makes a table and a picture.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/memory.hpp"
#include "base/random.hpp"
#include "kernels/kernels.hpp"
#include "model/forest.hpp"

using namespace bonsai;

namespace {

struct Probes {
    size_t lanes;
    size_t flop_per_round;
    float (*multiply_add)(size_t rounds, float factor, float summand);
    int32_t (*read64)(const char* memory, const uint32_t* order, size_t n);
    int32_t (*read256)(const char* memory, const uint32_t* order, size_t n);
    void (*update64)(char* memory, const uint32_t* order, size_t n, float summand);
    void (*update256)(char* memory, const uint32_t* order, size_t n, float summand);
};

#define PROBE_SET portable
#define PROBE_LANES 4
#define PROBE_TARGET
#include "roofline.hpp"
#ifdef __x86_64__
#define PROBE_SET avx2
#define PROBE_LANES 8
#define PROBE_TARGET __attribute__((target("avx2,fma")))
#include "roofline.hpp"
#define PROBE_SET avx512
#define PROBE_LANES 16
#define PROBE_TARGET __attribute__((target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl")))
#include "roofline.hpp"
#endif

// As wide as the kernels in use.
const Probes& probes() {
#ifdef __x86_64__
    if (std::strncmp(kernels().name, "avx512", 6) == 0) return avx512::kProbes;
    if (std::strcmp(kernels().name, "avx2") == 0) return avx2::kProbes;
#endif
    return portable::kProbes;
}

constexpr size_t kLanes = 64;
constexpr size_t kRowBytes = kLanes * sizeof(float);  // of a panel row
constexpr size_t kRows = 16384;
constexpr int kRepeats = 5;
constexpr double kTarget = 0.02;  // minimum seconds for one repetition of a probe

volatile float sink;  // results written here cannot be optimised away

double seconds_of(const std::function<void()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The time of the fastest repetition; `before`, called before each repetition, is not timed.
double best(const std::function<void()>& work, const std::function<void()>& before = [] {}) {
    double least = INFINITY;
    for (int r = 0; r < kRepeats; ++r) {
        before();
        least = std::min(least, seconds_of(work));
    }
    return least;
}

// The time per call, for calls that are too short to be timed singly.
double best_short(const std::function<void()>& work) {
    size_t calls = 1;
    const auto many = [&] {
        for (size_t c = 0; c < calls; ++c) work();
    };
    while (seconds_of(many) < kTarget) calls *= 2;
    return best(many) / static_cast<double>(calls);
}

// Panel memory, allocated as in the library.
template <class T>
using Buffer = std::vector<T, PanelAllocator<T>>;

// --- The machine ----------------------------------------------------------------------------------

struct Level {
    const char* name;
    size_t probe_bytes;  // a working set that certainly fits
    long cache_bytes;    // as reported by the system, or 0
};

// Reads the data caches of the first core. sysconf is unsuitable: it sums over cores.
long cache_bytes(int level) {
    for (int i = 0; i < 8; ++i) {
        const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) + "/";
        const auto word = [&](const char* name) {
            std::string text;
            std::ifstream(folder + name) >> text;
            return text;
        };
        if (word("level") != std::to_string(level) || word("type") == "Instruction") continue;
        const std::string size = word("size");  // 32K
        return std::strtol(size.c_str(), nullptr, 10) * (size.ends_with("M") ? 1 << 20 : 1 << 10);
    }
    return 0;
}

std::vector<Level> levels() {
    return {{"L1", 16 << 10, cache_bytes(1)},
            {"L2", 512 << 10, cache_bytes(2)},
            {"L3", 8 << 20, cache_bytes(3)},
            {"DRAM", 256 << 20, 0}};
}

void print_peak() {
    constexpr size_t rounds = 100000;
    const double seconds = best_short([] { sink = probes().multiply_add(rounds, 0.999f, 0.001f); });
    std::printf("\"peak\": %.6g,\n", static_cast<double>(rounds * probes().flop_per_round) / seconds);
}

void print_bandwidth(const Level& level, size_t chunk, bool random, bool last) {
    const size_t n = level.probe_bytes / chunk;
    std::vector<uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0u);
    if (random) Rng(1).shuffle(order);
    Buffer<char> memory(level.probe_bytes);
    const auto read = chunk == 64 ? probes().read64 : probes().read256;
    const auto update = chunk == 64 ? probes().update64 : probes().update256;
    const double reading =
        best_short([&] { sink = static_cast<float>(read(memory.data(), order.data(), n)); });
    const double updating = best_short([&] { update(memory.data(), order.data(), n, 1e-3f); });
    const auto bytes = static_cast<double>(level.probe_bytes);
    std::printf("  {\"level\": \"%s\", \"bytes\": %zu, \"chunk\": %zu, \"random\": %s, \"read\": %.6g, ",
                level.name, level.probe_bytes, chunk, random ? "true" : "false", bytes / reading);
    std::printf("\"update\": %.6g}%s\n", 2 * bytes / updating, last ? "" : ",");
}

// --- Rows like texts ------------------------------------------------------------------------------

// Numbers below n, number f with a probability in proportion to 1 / (f + 1).
class Zipf {
  public:
    Zipf(size_t n, uint64_t key) : below_(n), seen_(n, 0), rng_(key) {
        double sum = 0;
        for (size_t f = 0; f < n; ++f) below_[f] = sum += 1.0 / static_cast<double>(f + 1);
    }
    // Draws `n` different numbers, in random order.
    std::vector<int32_t> draw(size_t n) {
        ++stamp_;
        std::vector<int32_t> drawn;
        while (drawn.size() < n) {
            const double at = rng_.uniform() * below_.back();
            const auto f =
                static_cast<size_t>(std::upper_bound(below_.begin(), below_.end(), at) - below_.begin());
            if (f < seen_.size() && std::exchange(seen_[f], stamp_) != stamp_)
                drawn.push_back(static_cast<int32_t>(f));
        }
        rng_.shuffle(drawn);
        return drawn;
    }

  private:
    std::vector<double> below_;
    std::vector<uint32_t> seen_;
    uint32_t stamp_ = 0;
    Rng rng_;
};

// Rows of length 1; frequent features have small numbers. Sorted rows hold the same features in ascending
// order.
Rows text_rows(size_t n_features, size_t nonzeros, bool sorted) {
    Zipf zipf(n_features, 7);
    Rows rows{.n_rows = kRows, .n_features = n_features};
    rows.ptr.push_back(0);
    for (size_t i = 0; i < kRows; ++i) {
        auto drawn = zipf.draw(nonzeros);
        if (sorted) std::sort(drawn.begin(), drawn.end());
        rows.index.insert(rows.index.end(), drawn.begin(), drawn.end());
        rows.ptr.push_back(static_cast<int64_t>(rows.index.size()));
    }
    rows.value.assign(rows.index.size(), 1.0f / std::sqrt(static_cast<float>(nonzeros)));
    return rows;
}

// --- The kernels ----------------------------------------------------------------------------------

struct Work {
    double seconds;
    double flop;
    double read_bytes;    // of the panel, and of sums kept in memory
    double update_bytes;  // read and written back: both count
    double row_bytes;     // data of the rows, read once: features, values and per-row state
};

// All measurements of one shape of rows.
class Bench {
  public:
    Bench(size_t n_features, size_t nonzeros)
        : shuffled_(text_rows(n_features, nonzeros, false)),
          sorted_(text_rows(n_features, nonzeros, true)),
          n_features_(n_features),
          nonzeros_(nonzeros),
          total_(static_cast<double>(kRows * nonzeros)) {}

    void print(bool last) {
        print("dual_squared_hinge", kRowBytes, [&] { return dual(); });
        print("margins", kRowBytes, [&] { return margins(); });
        print("scatter", kRowBytes, [&] { return scatter(); });
        print("accumulate_int8", kLanes, [&] { return accumulate_int8(); }, last);
    }

  private:
    void print(const char* kernel, size_t chunk, const std::function<Work()>& measure, bool last = false) {
        const Work work = measure();
        std::printf("  {\"kernel\": \"%s\", \"features\": %zu, \"nonzeros\": %zu, \"chunk\": %zu, ", kernel,
                    n_features_, nonzeros_, chunk);
        std::printf("\"seconds\": %.6g, \"flop\": %.6g, ", work.seconds, work.flop);
        std::printf("\"read_bytes\": %.6g, \"update_bytes\": %.6g, \"row_bytes\": %.6g, \"within\": {",
                    work.read_bytes, work.update_bytes, work.row_bytes);
        // The share of visits to the most frequent features that each cache can hold.
        const char* comma = "";
        for (const Level& level : levels()) {
            const auto held = static_cast<size_t>(level.cache_bytes) / chunk;
            const auto hits = std::count_if(shuffled_.index.begin(), shuffled_.index.end(),
                                            [&](int32_t f) { return static_cast<size_t>(f) < held; });
            if (level.cache_bytes == 0) continue;
            std::printf("%s\"%s\": %.4f", comma, level.name, static_cast<double>(hits) / total_);
            comma = ", ";
        }
        std::printf("}}%s\n", last ? "" : ",");
    }

    // A pass of dual coordinate descent, after a first pass from zero; rows without effect are not updated.
    Work dual() {
        Buffer<float> w(n_features_ * kLanes), alpha(kRows * kLanes);
        std::vector<float> bias(kLanes, -0.9f), high(kLanes), low(kLanes), sum(kLanes), support(kLanes),
            old(kRows * kLanes);
        const std::vector<float> inv_q(kRows, 1 / 1.5f), diagonal(kRows, 0.5f);
        std::vector<uint64_t> positive(kRows, ~uint64_t{0});
        std::vector<uint32_t> order(kRows);
        std::iota(order.begin(), order.end(), 0u);
        Rng rng(3);
        for (auto& bits : positive)
            for (int i = 0; i < 5; ++i) bits &= rng.next();  // every 32nd
        const DualPass pass{.rows = shuffled_.view(),
                            .order = order.data(),
                            .n = kRows,
                            .positive = positive.data(),
                            .inv_q = inv_q.data(),
                            .diagonal = diagonal.data(),
                            .active = ~uint64_t{0},
                            .width = kLanes,
                            .learn_bias = false,
                            .min_gradient = 0.02f,
                            .w = w.data(),
                            .bias = bias.data(),
                            .alpha = alpha.data(),
                            .gradient_max = high.data(),
                            .gradient_min = low.data(),
                            .alpha_sum = sum.data(),
                            .support = support.data()};
        kernels().dual_squared_hinge(pass);
        double seconds = INFINITY, moved = 0;
        for (int r = 0; r < kRepeats; ++r) {
            rng.shuffle(order);
            std::copy_n(alpha.data(), old.size(), old.data());
            const double mine = seconds_of([&] { kernels().dual_squared_hinge(pass); });
            if (mine >= seconds) continue;
            seconds = mine;
            moved = 0;
            for (size_t a = 0; a < old.size();
                 a += kLaneStep)  // groups of lanes without an update are not written
                moved += !std::equal(&old[a], &old[a] + kLaneStep, alpha.data() + a);
            moved /= kLanes / kLaneStep;
        }
        const double visits = total_ + moved * static_cast<double>(nonzeros_);
        return {seconds, 2 * kLanes * visits, kRowBytes * total_, 2 * kRowBytes * (visits - total_),
                row_bytes(2 * kRowBytes)};
    }

    Work margins() {
        Buffer<float> w(n_features_ * kLanes), out(kRows * kLanes);
        std::fill_n(w.data(), n_features_ * kLanes, 0.5f);
        const double seconds = best(
            [&] { kernels().margins(shuffled_.view(), 0, kRows, w.data(), kLanes, out.data(), kLanes); });
        return {seconds, 2 * kLanes * total_, kRowBytes * total_, 0, row_bytes(kRowBytes)};
    }

    Work scatter() {
        Buffer<float> w(n_features_ * kLanes);
        const std::vector<float> coef(kRows * kLanes, 1e-3f);
        const double seconds =
            best([&] { kernels().scatter(shuffled_.view(), 0, kRows, coef.data(), kLanes, w.data()); });
        return {seconds, 2 * kLanes * total_, 0, 2 * kRowBytes * total_, row_bytes(kRowBytes)};
    }

    // Prediction from an unpacked block of 64 children with a slot for every feature; similarities to 64
    // centres.
    Work accumulate_int8() {
        Buffer<int8_t> panel(n_features_ * kLanes);
        std::fill_n(panel.data(), n_features_ * kLanes, int8_t{3});
        const std::vector<uint32_t> place(sorted_.index.begin(), sorted_.index.end());
        const std::vector<int16_t> value(place.size(), 5);
        alignas(64) int32_t out[kLanes];
        const double seconds = best([&] {
            for (size_t i = 0; i < kRows; ++i) {
                std::fill_n(out, kLanes, 0);
                kernels().accumulate_int8(panel.data(), kLanes, place.data() + i * nonzeros_,
                                          value.data() + i * nonzeros_, nonzeros_, out);
            }
        });
        sink = static_cast<float>(out[0]);
        return {seconds, 2 * kLanes * total_, kLanes * total_, 0, row_bytes(0)};
    }

    double row_bytes(size_t kept) const {
        return (sizeof(int32_t) + sizeof(float)) * total_ + static_cast<double>(kRows * kept);
    }

    Rows shuffled_, sorted_;
    size_t n_features_, nonzeros_;
    double total_;  // non-zeros of all rows
};

// Look-ups in a packed block of 128 children, for rows with random feature numbers.
void print_find(size_t used, bool last) {
    constexpr size_t n_features = 115000, nonzeros = 100;
    std::vector<int32_t> number(n_features);
    std::iota(number.begin(), number.end(), 0);
    Rng rng(5);
    rng.shuffle(number);
    const auto numbered = [&](std::vector<int32_t> drawn) {
        for (auto& f : drawn) f = number[static_cast<size_t>(f)];
        std::sort(drawn.begin(), drawn.end());
        return drawn;
    };
    OwnedForest made;
    made.tree_ptr = {0, 1};
    made.child_ptr = {0, kBlockChildren};
    made.children.resize(kBlockChildren);
    std::iota(made.children.begin(), made.children.end(), 0);
    made.is_leaf = {1};
    made.bias.assign(kBlockChildren, 0.0f);
    made.scale.assign(kBlockChildren, 1.0f);
    made.block_ptr = {0, 1};
    made.bucket_ptr = made.record_ptr = {0};
    std::vector<uint32_t> features, ptr = {0};
    std::vector<uint8_t> child;
    for (const int32_t f : numbered(Zipf(n_features, 9).draw(used))) {
        const size_t n = 1 + rng.below(8), first = rng.below(kBlockChildren - n);
        for (size_t c = 0; c < n; ++c) child.push_back(static_cast<uint8_t>(first + c));
        features.push_back(static_cast<uint32_t>(f));
        ptr.push_back(static_cast<uint32_t>(child.size()));
    }
    made.add_block(features, ptr, child, std::vector<StoredWeight>(child.size(), 3));
    const Forest forest(made.arrays(), n_features, kBlockChildren);
    forest.verify();
    Zipf zipf(n_features, 11);
    std::vector<int32_t> wanted;
    for (size_t i = 0; i < 4096; ++i) {
        const auto row = numbered(zipf.draw(nonzeros));
        wanted.insert(wanted.end(), row.begin(), row.end());
    }
    size_t hits = 0;
    const double seconds = best([&] {
        hits = 0;
        uintptr_t places = 0;
        const PackedBlock block = forest.block(0);
        for (const int32_t f : wanted) {
            const FeatureWeights found = block.find(static_cast<uint32_t>(f));
            hits += found.size > 0;
            places ^= reinterpret_cast<uintptr_t>(found.bytes);
        }
        sink = static_cast<float>(places);
    });
    const auto n = static_cast<double>(wanted.size());
    std::printf("  {\"features\": %zu, \"weights\": %zu, \"block_bytes\": %zu, ", used, child.size(),
                made.buckets.size() * 4 + made.records.size());
    std::printf("\"per_second\": %.6g, \"found\": %.4f}%s\n", n / seconds, static_cast<double>(hits) / n,
                last ? "" : ",");
}

}  // namespace

int main() {
    std::printf("{\"isa\": \"%s\", \"vector_lanes\": %zu, \"panel_lanes\": %zu, \"rows\": %zu,\n",
                kernels().name, probes().lanes, kLanes, kRows);
    print_peak();
    std::printf("\"caches\": {");
    const std::vector<Level> all = levels();
    for (size_t l = 0; l + 1 < all.size(); ++l)
        std::printf("%s\"%s\": %ld", l ? ", " : "", all[l].name, all[l].cache_bytes);
    std::printf("},\n\"bandwidth\": [\n");
    for (const Level& level : all) {
        print_bandwidth(level, 256, false, false);
        print_bandwidth(level, 256, true, false);
        print_bandwidth(level, 64, true, &level == &all.back());
    }
    std::printf("],\n\"kernels\": [\n");
    for (const size_t nonzeros : {100, 184})
        for (const size_t n_features : {500, 4000, 40000, 115000})
            Bench(n_features, nonzeros).print(nonzeros == 184 && n_features == 115000);
    std::printf("],\n\"find\": [\n");
    print_find(2000, false);
    print_find(20000, true);
    std::printf("]}\n");
}
