#include "python/params.hpp"

#include <nanobind/stl/string.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <stdexcept>

namespace nb = nanobind;

namespace bonsai {
namespace {

// Reads a dict of parameters by name.
class Reader {
  public:
    explicit Reader(const nb::dict& params) : params_(params) {}

    template <class Integer>
    Integer integer(const char* name, Integer least) const {
        const nb::object value = get(name);
        const nb::object index = nb::steal(PyNumber_Index(value.ptr()));  // numpy's integers too
        if (!index.is_valid()) {
            PyErr_Clear();
            fail(name, value, "an integer");
        }
        int overflow = 0;
        const long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
        constexpr auto most = std::numeric_limits<Integer>::max();
        const bool fits =
            overflow == 0 && number >= static_cast<long long>(least) &&
            (number < 0 || static_cast<unsigned long long>(number) <= static_cast<unsigned long long>(most));
        if (!fits)
            fail(name, value, "an integer from " + std::to_string(least) + " to " + std::to_string(most));
        return static_cast<Integer>(number);
    }
    double number(const char* name, double least, double most) const {
        const nb::object value = get(name);
        const double number = PyFloat_AsDouble(value.ptr());
        if (number == -1.0 && PyErr_Occurred()) {
            PyErr_Clear();
            fail(name, value, "a number");
        }
        if (!(number >= least && number <= most)) {
            std::ostringstream range;
            range << "from " << least << " to " << most;
            fail(name, value, range.str());
        }
        return number;
    }
    bool flag(const char* name) const {
        const nb::object value = get(name);
        if (!PyBool_Check(value.ptr())) fail(name, value, "True or False");
        return value.ptr() == Py_True;
    }
    template <class T>
    T one_of(const char* name, const Choices<T>& choices) const {
        const nb::object value = get(name);
        std::string text;
        if (!nb::try_cast(value, text)) fail(name, value, "text");
        return choice<T>(name, text, choices);
    }

  private:
    nb::object get(const char* name) const {
        if (!params_.contains(name))
            throw std::invalid_argument(std::string("the parameter ") + name + " is missing");
        return params_[name];
    }
    [[noreturn]] static void fail(const char* name, const nb::object& value, const std::string& wanted) {
        throw std::invalid_argument(std::string(name) + " is " + nb::cast<std::string>(nb::repr(value)) +
                                    ", but must be " + wanted);
    }

    const nb::dict& params_;
};

Choices<Loss> losses() {
    Choices<Loss> all;
    for_each_loss([&](auto loss) { all.emplace_back(loss.name, loss); });
    return all;
}

}  // namespace

Loss loss_named(const std::string& name) {
    return choice<Loss>("loss", name, losses());
}

LinearParams linear_params(const nb::dict& params) {
    const Reader read(params);
    constexpr double largest = std::numeric_limits<float>::max();
    return {.loss = read.one_of<Loss>("loss", losses()),
            .solver = read.one_of<Solver>("solver", {{"dual", Solver::dual}, {"newton", Solver::newton}}),
            .c = read.number("C", std::numeric_limits<float>::min(), largest),
            .tol = read.number("tol", 0, largest),
            .max_iter = read.integer<int>("max_iter", 1),
            .learn_bias = read.flag("learn_bias"),
            .fixed_bias = static_cast<float>(read.number("fixed_bias", -largest, largest)),
            .prune = static_cast<float>(read.number("prune", -largest, largest))};
}

KMeansParams kmeans_params(const nb::dict& params) {
    const Reader read(params);
    return {.k = read.integer<uint32_t>("branching_factor", 2),
            .tol = read.number(
                "kmeans_tol", -1,
                std::numeric_limits<double>::max()),  // < 0: k-means always runs kmeans_max_iter iterations
            .max_iter = read.integer<int>("kmeans_max_iter", 1),
            .plus_plus = read.flag("plus_plus"),
            .balanced = read.flag("balanced")};
}

TreeParams tree_params(const nb::dict& params, uint64_t seed) {
    const Reader read(params);
    return {.kmeans = kmeans_params(params),
            .max_leaf_size = read.integer<uint32_t>("max_leaf_size", 1),
            .max_depth = read.integer<uint32_t>("max_depth", 0),
            .split_oversized = read.flag("split_oversized"),
            .bounded = read.flag("bounded"),
            .seed = seed};
}

}  // namespace bonsai
