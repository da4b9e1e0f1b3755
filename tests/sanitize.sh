#!/usr/bin/env bash
# The core under sanitizers: the C++ tests with ASan and UBSan and with TSan, then the Python tests, but those that
# measure memory and those of clusters and pages, on a module built with ASan and UBSan. Run by `make sanitize`; needs gcc.
# Tests of limits are left out, too: under RLIMIT_AS, ASan's symbolizer deadlocks.
# Arguments go to pytest: tests/test_core.py -k … for some tests only.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin
export CXX=${CXX:-g++}

build() { # folder, sanitizers, further options
    "$bin/cmake" -S . -B "$1" -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DBONSAI_TESTS=ON -DBONSAI_SANITIZE="$2" "${@:3}" >/dev/null
    "$bin/cmake" --build "$1"
}

export UBSAN_OPTIONS=print_stacktrace=1
build build/tsan thread -DBONSAI_MODULE=OFF
"$bin/ctest" --test-dir build/tsan --output-on-failure
build build/asan address,undefined -DBONSAI_MODULE=ON -DBONSAI_TESTING=ON -DPython_EXECUTABLE="$bin/python"
"$bin/ctest" --test-dir build/asan --output-on-failure

# The package with the module just built. The editable installation redirects imports to its own module; Python
# reads sitecustomize after it, also in the processes that tests start.
package=$PWD/build/asan/package
rm -rf "$package"
mkdir -p "$package"
cp -r src/bonsai_xmc "$package/"
cp build/asan/_core*.so "$package/bonsai_xmc/"
cat >"$package/sitecustomize.py" <<'PYTHON'
import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
PYTHON

export PYTHONPATH=$package
"$bin/python" - "$package" <<'PYTHON'
import importlib.util, sys

found = importlib.util.find_spec("bonsai_xmc").origin
assert found.startswith(sys.argv[1]), f"the tests would import {found}"
PYTHON
libraries=()
for library in libasan.so libubsan.so libstdc++.so; do libraries+=("$("$CXX" -print-file-name="$library")"); done
# Python frees little at its end, so leaks are not looked for; memory that cannot be had is an error to be handled;
# a crash is reported by the sanitizer, not by pytest.
LD_PRELOAD="${libraries[*]}" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
    "$bin/python" -m pytest -q -p no:cacheprovider -p no:faulthandler -m "not real_data" -n 2 --dist loadfile \
    -rf --ignore tests/test_memory.py --ignore tests/test_limits.py --ignore tests/test_ray.py \
    --ignore tests/test_page.py "$@"
