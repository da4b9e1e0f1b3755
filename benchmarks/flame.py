"""A flame graph of training on one core: time by function.

    python -m benchmarks.flame --data tibkat-core --preset bonsai-i -o docs/img/flame-trees.svg

Builds the core in build/flame with symbols and frame pointers, and samples a run with Linux's `perf` at 499
Hz. The width of a bar is its share of the time; a bar lies on its caller. Needs perf and, for real data,
BONSAI_DATA (see CONTRIBUTING.md); `amazon-670k*0.02` and the like are generated.
"""

import argparse
import html
import re
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path

from reproduce import known

from benchmarks._runs import generated

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "flame"
FIT = """
import pickle, sys
sys.path[:0] = [{package!r}]
sys.path.append({libraries!r})
from bonsai_xmc import Bonsai
from reproduce import known
X, Y = pickle.load(open({data!r}, "rb"))
Bonsai.preset({preset!r}, random_state=0, n_jobs=1).fit(X, Y)
"""
WIDTH, ROW, SMALLEST = 1200, 18, 0.002  # pixels; the share of the whole below which nothing is drawn


def build() -> Path:
    """Build the package with symbols; returns the folder to import it from."""
    tools = Path(sys.executable).parent
    options = {
        "CMAKE_BUILD_TYPE": "RelWithDebInfo",
        "CMAKE_CXX_FLAGS_RELWITHDEBINFO": "-O3 -DNDEBUG -g1 -fno-omit-frame-pointer",
        "CMAKE_MAKE_PROGRAM": tools / "ninja",
        "Python_EXECUTABLE": sys.executable,
    }
    configure: list[str | Path] = [tools / "cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja"]
    configure += [f"-D{name}={value}" for name, value in options.items()]
    build: list[str | Path] = [tools / "cmake", "--build", BUILD]
    for command in (configure, build):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    package = BUILD / "package"
    shutil.copytree(ROOT / "src" / "bonsai_xmc", package / "bonsai_xmc", dirs_exist_ok=True)
    for module in BUILD.glob("_core*.so"):
        shutil.copy(module, package / "bonsai_xmc")
    return package


def record(package: Path, name: str, preset: str) -> str:
    """The sampled stacks, as `perf script` prints them."""
    import pickle

    found = generated(name) or known.load(name)
    data, samples = BUILD / "data.pkl", BUILD / "perf.data"
    data.write_bytes(pickle.dumps((found.X_train, found.Y_train)))
    program = FIT.format(
        package=str(package), libraries=sysconfig.get_paths()["purelib"], data=str(data), preset=preset
    )
    sample: list[str | Path] = ["perf", "record", "-q", "-F", "499", "--call-graph", "fp", "-o", samples]
    subprocess.run([*sample, sys.executable, "-S", "-c", program], check=True)
    script: list[str | Path] = ["perf", "script", "-i", samples, "-F", "ip,sym"]
    return subprocess.run(script, check=True, capture_output=True, text=True).stdout


# Kernels that the compiler has inlined into the lambdas of the kernel table, recognised by their parameters.
KERNELS = {
    "signed char const*, unsigned long, unsigned int const*, short": "accumulate_int8",
    "float const*, float const*, unsigned long, unsigned long, double*": "lane_dots",
    "float const*, float const, unsigned long, unsigned long, double*": "lane_dots",
    "DualPass": None,
    "RowsView const&, float": "scatter",
    "RowsView const&": "margins",
}


def short(symbol: str) -> str | None:
    """A readable function name; None for wrappers."""
    if not symbol.startswith("bonsai::"):
        return None
    if "Kernels::{lambda" in symbol:
        return next((name for given, name in KERNELS.items() if given in symbol), None)
    plain = re.sub(r"\(anonymous namespace\)::|bonsai::", "", symbol)
    plain = re.sub(r"[<({].*$", "", plain).removesuffix("::")
    return None if plain.startswith("Pool::") else plain


def fold(script: str) -> Counter[tuple[str, ...]]:
    """Samples of each stack of the core, outermost function first; Python's own time is one bar."""
    stacks: Counter[tuple[str, ...]] = Counter()
    for sample in script.split("\n\n"):
        names = [short(line.strip().partition(" ")[2]) for line in sample.splitlines() if line.strip()]
        if not names:
            continue
        stack: list[str] = []
        for name in reversed(names):
            if name and (not stack or stack[-1] != name):
                stack.append(name)
        stacks["fit", *(stack or ["Python and numpy"])] += 1
    return stacks


def draw(stacks: Counter[tuple[str, ...]], title: str) -> str:
    total = stacks.total()
    bars: list[tuple[int, float, float, str]] = []  # level, left edge, width, name

    def place(prefix: tuple[str, ...], begin: float) -> None:
        level = len(prefix)
        below = Counter[str]()
        for stack, n in stacks.items():
            if stack[:level] == prefix and len(stack) > level:
                below[stack[level]] += n
        for name, n in below.most_common():
            if n / total >= SMALLEST:
                bars.append((level, begin, n / total, name))
                place((*prefix, name), begin)
            begin += n / total

    place((), 0.0)
    height = ROW * (max(level for level, *_ in bars) + 2)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<text x="4" y="{ROW - 5}" font-size="13">{html.escape(title)}</text>',
    ]
    for level, begin, share, name in bars:
        x, y, w = begin * WIDTH, height - ROW * (level + 1), share * WIDTH
        label = f"{name} {share:.1%}"
        room = int(w / 6.2)  # letters
        shown = label if len(label) <= room else name if len(name) <= room else name[: room - 1] + "…"
        text = f'<text x="{x + 3:.1f}" y="{y + 13}" font-size="11">{html.escape(shown)}</text>'
        colour = f"hsl({28 + 9 * (level % 3)} 85% {70 + 4 * (hash_of(name) % 4)}%)"
        box = f'x="{x:.1f}" y="{y}" width="{max(w - 0.5, 0.5):.1f}" height="{ROW - 1}" fill="{colour}"'
        out.append(f"<g><title>{html.escape(label)}</title><rect {box}/>{text if room > 3 else ''}</g>")
    return "\n".join([*out, "</svg>", ""])


def hash_of(name: str) -> int:
    return sum(name.encode())  # the same in every process, as hash() is not


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="tibkat-core")
    parser.add_argument("--preset", default="bonsai-i")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build" / "flame.svg")
    args = parser.parse_args()
    if shutil.which("perf") is None:
        raise SystemExit("perf is not installed: it comes with the Linux tools of your distribution")
    stacks = fold(record(build(), args.data, args.preset))
    if not stacks:
        raise SystemExit("perf has no samples: is it allowed to profile (kernel.perf_event_paranoid)?")
    title = f"{args.data}, preset {args.preset}, one thread: {stacks.total() / 499:.1f} s"
    args.output.write_text(draw(stacks, title), encoding="utf-8")
    print(args.output)


if __name__ == "__main__":
    main()
