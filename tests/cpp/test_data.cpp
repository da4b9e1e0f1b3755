#include "data/rows.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "base/parallel.hpp"
#include "base/random.hpp"
#include "check.hpp"
#include "data/dataset.hpp"
#include "data/label_vectors.hpp"
#include "data/slice.hpp"

using namespace bonsai;

namespace {

template <class T>
using List = std::vector<T>;

// 0 2 0 0 1
// 0 0 0 0 0
// 3 4 0 0 0
// 0 0 0 5 6
Rows sparse_rows() {
    return {.n_rows = 4,
            .n_features = 5,
            .ptr = {0, 2, 2, 4, 6},
            .index = {1, 4, 0, 1, 3, 4},
            .value = {2, 1, 3, 4, 5, 6},
            .dense = {}};
}

Rows dense_rows() {
    Rows rows{.n_rows = 4, .n_features = 5};
    rows.dense = {0, 2, 0, 0, 1, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0, 5, 6};
    return rows;
}

List<float> spelled_out(const RowsView& rows, size_t i, size_t n_features) {
    List<float> out(n_features, 0.0f);
    for_each_entry(rows, i, [&](uint32_t f, float v) { out[f] += v; });
    return out;
}

void test_views() {
    const Rows sparse = sparse_rows(), dense = dense_rows();
    for (size_t i = 0; i < 4; ++i) CHECK(spelled_out(sparse.view(), i, 5) == spelled_out(dense.view(), i, 5));
    CHECK(row_norm(sparse.view(), 2) == 5 && row_norm(dense.view(), 2) == 5);
    CHECK(row_norm(sparse.view(), 1) == 0);
    CHECK(sparse.view().row_size(0) == 2 && dense.view().row_size(0) == 5);
    // squares beyond the range of float
    Rows large{.n_rows = 1, .n_features = 2};
    large.dense = {3e30f, 4e30f};
    CHECK(std::abs(row_norm(large.view(), 0) / 5e30 - 1) < 1e-6);
}

// A pool of the calling thread alone.
Pool& alone() {
    static Control control;
    static Pool pool(1, control);
    return pool;
}

void test_sparse_slice() {
    const Rows rows = sparse_rows();
    const List<float> factors = {10, 100, 1000, 10000};
    Slice::Scratch scratch;
    for (int repeat = 0; repeat < 2; ++repeat) {  // the scratch is left clean
        const Slice slice(rows.view(), List<uint32_t>{3, 0, 1}, factors, scratch, alone());
        // feature 4 occurs twice; of the others 3 is met first; 0 and 2 do not occur
        CHECK(List<uint32_t>(slice.features().begin(), slice.features().end()) == List<uint32_t>{4, 3, 1});
        CHECK(slice.rows().n_rows == 3 && slice.rows().n_features == 3);
        CHECK(spelled_out(slice.rows(), 0, 3) == List<float>{60000, 50000, 0});
        CHECK(spelled_out(slice.rows(), 1, 3) == List<float>{10, 0, 20});
        CHECK(spelled_out(slice.rows(), 2, 3) == List<float>{0, 0, 0});
    }
    const Slice plain(rows.view(), List<uint32_t>{2}, {}, scratch, alone());
    CHECK(spelled_out(plain.rows(), 0, 2) == List<float>{3, 4});
    const Slice all(rows.view(), List<uint32_t>{0, 1, 2, 3}, {}, scratch, alone());
    CHECK(List<uint32_t>(all.features().begin(), all.features().end()) == List<uint32_t>{1, 4, 0, 3});
    CHECK(scratch.local == List<uint32_t>(5, 0));
    const Slice empty(rows.view(), {}, factors, scratch, alone());
    CHECK(empty.rows().n_rows == 0 && empty.rows().n_features == 0 && empty.features().empty());
}

// Singleton features come last, row by row, and their entries are stored separately.
void test_singleton_features() {
    const Rows rows = sparse_rows();
    Slice::Scratch scratch;
    for (int repeat = 0; repeat < 2; ++repeat) {
        const Slice slice(rows.view(), List<uint32_t>{3, 1, 0}, List<float>{10, 100, 1000, 10000}, scratch,
                          alone(), true);
        CHECK(List<uint32_t>(slice.features().begin(), slice.features().end()) == List<uint32_t>{4, 3, 1});
        CHECK(slice.rows().n_features == 1 && slice.rows().ptr[3] == 2);
        CHECK(spelled_out(slice.rows(), 0, 1) == List<float>{60000});
        CHECK(spelled_out(slice.rows(), 1, 1) == List<float>{0});
        CHECK(spelled_out(slice.rows(), 2, 1) == List<float>{10});
        CHECK(slice.singletons().first_feature == 1);
        CHECK(slice.singletons().ptr == List<int64_t>{0, 1, 1, 2});
        CHECK(slice.singletons().value == List<float>{50000, 20});
        CHECK(slice.singletons()[1].empty() && slice.singletons()[2][0] == 20);
    }
    CHECK(scratch.local == List<uint32_t>(5, 0));
    const Rows dense = dense_rows();
    const Slice view(dense.view(), List<uint32_t>{2}, {}, scratch, alone(), true);
    CHECK(view.rows().n_features == 5 && view.singletons()[0].empty());
}

// Rows with enough entries for several threads. Each third row has one feature of its own, each seventh row
// two.
Rows many_rows(size_t n_rows, size_t n_features) {
    Rng rng(5);
    Rows rows{.n_rows = n_rows, .n_features = n_features, .ptr = {0}};
    const auto add = [&](size_t f) {
        rows.index.push_back(static_cast<int32_t>(f));
        rows.value.push_back(static_cast<float>(rng.uniform()));
    };
    for (size_t i = 0; i < n_rows; ++i) {
        const size_t one_in = 1 + rng.below(8);
        for (size_t f = 0; f < n_features; ++f) {
            if (i % 100 == 9 || f % 7 == 3 || rng.below(one_in + f / 300) > 0) continue;
            add(f);
        }
        for (size_t own = 0; own < (i % 7 == 0 ? 2 : i % 3 == 0); ++own) add(rows.n_features++);
        rows.ptr.push_back(static_cast<int64_t>(rows.index.size()));
    }
    CHECK(rows.index.size() > 600000);
    return rows;
}

// Equal for several threads and one.
void test_large_slice() {
    const Rows rows = many_rows(6000, 900);
    List<uint32_t> ids(5900);
    std::iota(ids.begin(), ids.end(), 17u);
    Rng(6).shuffle(ids);
    List<float> factors(6000);
    for (size_t i = 0; i < factors.size(); ++i) factors[i] = static_cast<float>(i % 13);
    for (const bool apart : {false, true}) {
        Slice::Scratch scratch;
        const Slice expected(rows.view(), ids, factors, scratch, alone(), apart);
        const auto entries = static_cast<size_t>(expected.rows().ptr[ids.size()]);
        CHECK(expected.singletons().value.empty() != apart);
        for (const unsigned threads : {2u, 3u, 5u}) {
            Control control;
            Pool pool(threads, control);
            const Slice found(rows.view(), ids, factors, scratch, pool, apart);
            CHECK(found.rows().n_rows == ids.size());
            CHECK(found.rows().n_features == expected.rows().n_features);
            CHECK(std::ranges::equal(found.features(), expected.features()));
            CHECK(std::equal(found.rows().ptr, found.rows().ptr + ids.size() + 1, expected.rows().ptr));
            CHECK(std::equal(found.rows().index, found.rows().index + entries, expected.rows().index));
            CHECK(std::equal(found.rows().value, found.rows().value + entries, expected.rows().value));
            CHECK(found.singletons().ptr == expected.singletons().ptr);
            CHECK(found.singletons().value == expected.singletons().value);
            CHECK(scratch.local == List<uint32_t>(rows.n_features, 0));
        }
    }
}

// Compared with sorting: features in descending order of frequency, then by first occurrence; rows by these
// numbers.
void test_sorted_slice() {
    const Rows rows = many_rows(6000, 900);
    const size_t n_rows = rows.n_rows, n_features = rows.n_features;
    Rng rng(7);
    const RowsView all = rows.view();
    List<uint32_t> ids(n_rows);
    std::iota(ids.begin(), ids.end(), 0u);
    rng.shuffle(ids);
    ids.resize(n_rows - 100);

    List<uint32_t> count(n_features, 0), met;
    for (const uint32_t i : ids)
        for_each_entry(all, i, [&](uint32_t f, float) {
            if (count[f]++ == 0) met.push_back(f);
        });
    std::stable_sort(met.begin(), met.end(), [&](uint32_t a, uint32_t b) { return count[a] > count[b]; });
    List<uint32_t> number(n_features, 0);
    for (size_t n = 0; n < met.size(); ++n) number[met[n]] = static_cast<uint32_t>(n);

    for (const unsigned threads : {1u, 2u, 5u}) {
        Control control;
        Pool pool(threads, control);
        const SortedSlice slice(all, ids, pool);
        bool same = slice.rows().n_rows == ids.size() && slice.rows().n_features == met.size();
        for (size_t r = 0; r < ids.size(); ++r) {
            List<std::pair<uint32_t, float>> expected, found;
            for_each_entry(all, ids[r], [&](uint32_t f, float v) { expected.emplace_back(number[f], v); });
            std::sort(expected.begin(), expected.end());
            for_each_entry(slice.rows(), r, [&](uint32_t f, float v) { found.emplace_back(f, v); });
            same &= found == expected;
        }
        CHECK(same);
        const SortedSlice empty(all, {}, pool);
        CHECK(empty.rows().n_rows == 0 && empty.rows().n_features == 0);
    }
}

bool same_rows(const RowsView& a, const RowsView& b) {
    const auto n = a.ptr[a.n_rows];
    return a.n_rows == b.n_rows && a.n_features == b.n_features &&
           std::equal(a.ptr, a.ptr + a.n_rows + 1, b.ptr) && std::equal(a.index, a.index + n, b.index) &&
           std::equal(a.value, a.value + n, b.value);
}

// Slices do not depend on how the features of their source are numbered; the one of all rows is no copy.
void test_numbered_by_frequency() {
    const Rows rows = many_rows(6000, 900);
    List<uint32_t> all(rows.n_rows), some(rows.n_rows);
    std::iota(all.begin(), all.end(), 0u);
    some = all;
    Rng rng(8);
    rng.shuffle(some);
    some.resize(2000);
    for (const unsigned threads : {1u, 2u, 5u}) {
        Control control;
        Pool pool(threads, control);
        Rows numbered = rows;
        number_by_frequency(numbered, pool);
        const SortedSlice whole(numbered.view(), all, pool);
        CHECK(whole.rows().value == numbered.value.data());
        CHECK(same_rows(whole.rows(), SortedSlice(rows.view(), all, pool).rows()));
        for (const auto& ids : {some, List<uint32_t>(all.rbegin(), all.rend())}) {
            const SortedSlice part(numbered.view(), ids, pool);
            CHECK(part.rows().value != numbered.value.data());
            CHECK(same_rows(part.rows(), SortedSlice(rows.view(), ids, pool).rows()));
        }
        bool same = true;
        for (size_t i = 0; i < rows.n_rows; ++i) {
            List<std::pair<uint32_t, float>> expected, found;
            for_each_entry(rows.view(), i, [&](uint32_t f, float v) { expected.emplace_back(f, v); });
            for_each_entry(numbered.view(), i,
                           [&](uint32_t f, float v) { found.emplace_back(numbered.features[f], v); });
            std::sort(found.begin(), found.end());
            same &= found == expected;
        }
        CHECK(same);
    }
}

// Vectors that are cut against sorting the entries of whole ones.
void test_largest_entries() {
    const Rows x = many_rows(6000, 900);
    List<int64_t> ptr = {0};
    List<int32_t> labels;
    Rng rng(9);
    for (size_t i = 0; i < x.n_rows; ++i) {
        for (int32_t label = 0; label < 40; ++label)
            if (rng.below(8) == 0) labels.push_back(label);
        ptr.push_back(static_cast<int64_t>(labels.size()));
    }
    const Dataset data(x.view(), ptr, labels, 40, {}, true);
    const auto vectors = [&](Representation kind, size_t most) {
        const auto stage = label_vector_stage(data, kind, most);
        stage->solve_all(alone());
        return stage->finish(alone());
    };
    for (const Representation kind : {Representation::input, Representation::output, Representation::joint}) {
        const Rows whole = vectors(kind, ~size_t{0}), same = vectors(kind, 1 << 20), cut = vectors(kind, 7);
        CHECK(whole.value == same.value && whole.index == same.index);
        bool fits = true;
        for (size_t label = 0; label < 40; ++label) {
            List<std::pair<uint32_t, double>> expected, found;
            for (const bool second : {false, true}) {  // the sides of `joint`
                List<std::pair<uint32_t, double>> side;
                for_each_entry(whole.view(), label, [&](uint32_t number, float v) {
                    const uint32_t f = whole.features[number];
                    if ((kind != Representation::output && f >= x.n_features) == second)
                        side.emplace_back(f, v);
                });
                std::sort(side.begin(), side.end(), [](const auto& a, const auto& b) {
                    return std::abs(a.second) != std::abs(b.second) ? std::abs(a.second) > std::abs(b.second)
                                                                    : a.first < b.first;
                });
                side.resize(std::min<size_t>(side.size(), 7));
                double norm2 = 0;
                for (const auto& [f, v] : side) norm2 += v * v;
                const double share = kind == Representation::joint ? 0.5 : 1.0;
                for (const auto& [f, v] : side) expected.emplace_back(f, v * std::sqrt(share / norm2));
            }
            for_each_entry(cut.view(), label,
                           [&](uint32_t n, float v) { found.emplace_back(cut.features[n], v); });
            std::sort(expected.begin(), expected.end());
            std::sort(found.begin(), found.end());
            fits &= found.size() == expected.size();
            for (size_t e = 0; fits && e < found.size(); ++e)
                fits &= found[e].first == expected[e].first &&
                        std::abs(found[e].second - expected[e].second) < 1e-5;
        }
        CHECK(fits);
    }
    CHECK(most_entries(kLargestWhole) > 1000000 && most_entries(kLargestWhole + 1) == kKeptEntries);
    double products = 0;
    for (size_t i = 0; i < x.n_rows; ++i)
        products += static_cast<double>((x.ptr[i + 1] - x.ptr[i]) * (ptr[i + 1] - ptr[i]));
    CHECK(n_products(data) == products);
}

void test_dense_slice() {
    const Rows rows = dense_rows();
    Slice::Scratch scratch;
    const Slice slice(rows.view(), List<uint32_t>{3, 0}, List<float>{10, 100, 1000, 10000}, scratch, alone());
    CHECK(slice.rows().dense == rows.dense.data());  // not copied
    CHECK(List<uint32_t>(slice.features().begin(), slice.features().end()) == List<uint32_t>{0, 1, 2, 3, 4});
    CHECK(spelled_out(slice.rows(), 0, 5) == List<float>{0, 0, 0, 50000, 60000});
    CHECK(spelled_out(slice.rows(), 1, 5) == List<float>{0, 20, 0, 0, 10});
    const Slice plain(rows.view(), List<uint32_t>{2}, {}, scratch, alone());
    CHECK(spelled_out(plain.rows(), 0, 5) == List<float>{3, 4, 0, 0, 0});
}

void test_transpose() {
    const List<int64_t> ptr = {0, 2, 2, 5};
    const List<int32_t> id = {1, 3, 0, 1, 4};
    const IdLists lists = transpose(ptr.data(), id.data(), 3, 6);
    CHECK(lists.size() == 6);
    CHECK(lists.ptr == List<int64_t>{0, 1, 3, 3, 4, 5, 5});
    CHECK(lists.id == List<int32_t>{2, 0, 2, 0, 2});
    CHECK(lists[1].size() == 2 && lists[1][0] == 0 && lists[1][1] == 2);
    CHECK(lists[5].empty());
    const IdLists back = transpose(lists.ptr.data(), lists.id.data(), 6, 3);
    CHECK(back.ptr == ptr && back.id == id);
}

void test_check_csr() {
    using Ptr = List<int64_t>;
    using Ids = List<int32_t>;
    const auto check = [](const Ptr& ptr, const Ids& id, size_t rows) {
        return check_csr(ptr, id, rows, 4, "Q");
    };
    check({0, 2, 2, 3}, {0, 3, 1}, 3);
    check({0}, {}, 0);
    check_csr(Ptr{0, 0}, Ids{}, 1, 0, "Q");
    const char* span = "Q: row pointers do not span the entries";
    CHECK_THROWS((check({}, {}, 0), 0), span);
    CHECK_THROWS((check({0, 1}, {0}, 2), 0), span);
    CHECK_THROWS((check({0, 1, 1}, {0}, 1), 0), span);
    CHECK_THROWS((check({1, 1}, {0}, 1), 0), span);
    CHECK_THROWS((check({0, 2}, {0}, 1), 0), span);
    CHECK_THROWS((check({0, 1}, {0, 1}, 1), 0), span);
    CHECK_THROWS((check({0, 2, 1, 3}, {0, 1, 2}, 3), 0), "Q: row pointers decrease at row 1");
    CHECK_THROWS((check({0, 9, 1}, {0}, 2), 0), "Q: row pointers decrease at row 0");
    CHECK_THROWS((check({0, -5, 1}, {0}, 2), 0), "Q: row pointers decrease at row 0");
    const char* order = "in row 1 is out of range or out of order";
    CHECK_THROWS((check({0, 1, 2}, {0, 4}, 2), 0), std::string("Q: index 4 ") + order);
    CHECK_THROWS((check({0, 1, 2}, {0, -1}, 2), 0), std::string("Q: index -1 ") + order);
    CHECK_THROWS((check({0, 1, 3}, {3, 2, 1}, 2), 0), std::string("Q: index 1 ") + order);
    CHECK_THROWS((check({0, 1, 3}, {3, 2, 2}, 2), 0), std::string("Q: index 2 ") + order);
    CHECK_THROWS((check_csr(Ptr{0, 1}, Ids{0}, 1, 0, "Q"), 0), "Q: index 0 in row 0");
}

void test_dataset() {
    const Rows rows = sparse_rows();
    const List<int64_t> ptr = {0, 1, 3, 3, 4};
    const List<int32_t> labels = {2, 0, 2, 1};
    const List<float> weights = {1, 2, 3, 4};
    const Dataset data(rows.view(), ptr, labels, 4, weights, true);
    CHECK(data.n_rows() == 4 && data.n_features() == 5 && data.n_labels() == 4);
    CHECK(data.factors()[2] == 0.2f && data.factors()[1] == 1.0f);  // a zero row stays as it is
    CHECK(data.weighted() && data.weight(3) == 4);
    CHECK(data.labels_of(1).size() == 2 && data.labels_of(2).empty());
    CHECK(data.rows_of(2).size() == 2 && data.rows_of(2)[1] == 1 && data.rows_of(3).empty());
    const Dataset plain(rows.view(), ptr, labels, 4, {}, false);
    CHECK(!plain.weighted() && plain.weight(3) == 1 && plain.factors()[2] == 1.0f);
    CHECK_THROWS(Dataset(rows.view(), ptr, labels, 2, {}, true), "Y: index 2 in row 0");
    CHECK_THROWS(Dataset(rows.view(), List<int64_t>{0, 4}, labels, 4, {}, true), "Y: row pointers");
    CHECK_THROWS(Dataset(rows.view(), ptr, labels, 4, List<float>{1, 2}, true),
                 "2 for 4 rows; one weight is needed");
}

// The reciprocal of a norm must stay within the range of float.
void test_tiny_rows() {
    Rows rows{.n_rows = 2, .n_features = 1};
    rows.dense = {1e-40f, 1e-25f};
    const List<int64_t> ptr = {0, 0, 0};
    const Dataset data(rows.view(), ptr, {}, 1, {}, true);
    CHECK(data.factors()[0] == 1.0f);
    CHECK(std::abs(data.factors()[1] * 1e-25 - 1) < 1e-6);
}

}  // namespace

int main() {
    test_views();
    test_sparse_slice();
    test_singleton_features();
    test_large_slice();
    test_sorted_slice();
    test_numbered_by_frequency();
    test_largest_entries();
    test_dense_slice();
    test_transpose();
    test_check_csr();
    test_dataset();
    test_tiny_rows();
    return check::report("data");
}
