"""The kernels against the roofline of the machine: `python -m benchmarks.roofline`.

Builds `roofline.cpp`, runs it on one thread (half a minute) and prints a table; the numbers go to
`build/bench/roofline.json` and a figure to `docs/img/roofline.svg`. `BONSAI_ISA` chooses the
instruction set.

Panels have 64 lanes. Rows have feature frequencies as in texts: a few features in every row, most in few
rows. Traffic counts the panel entries that a kernel reads and writes and the sums that it keeps in memory,
not the rows themselves. Frequent features stay in the nearer caches, so that a kernel may exceed the
bandwidth of the level that holds its panel.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "bench"
RESULT = BUILD / "roofline.json"
PICTURE = ROOT / "docs" / "img" / "roofline.svg"
LEVELS = ("L1", "L2", "L3", "DRAM")
NEAR = 1.6  # times the modelled time: up to here its largest part is the bottleneck
FLAT = 1.3  # times the time on the smallest panel: up to here memory is not the bottleneck
PLOTTED_NONZEROS = 100
# Okabe and Ito's colours, safe for colour-blind readers; markers repeat what the colours say.
STYLES = {
    "dual_squared_hinge": ("#D55E00", "o"),
    "scatter": ("#0072B2", "s"),
    "margins": ("#009E73", "^"),
    "accumulate_int8": ("#E69F00", "P"),
}


def build() -> Path:
    """Build with the tools of this environment, as `make cpptest` does."""
    tools = Path(sys.executable).parent
    options = [f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}", "-DBONSAI_BENCH=ON", "-DBONSAI_MODULE=OFF"]
    cmake = str(tools / "cmake")
    configure = [cmake, "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja", *options]
    for command in (configure, [cmake, "--build", str(BUILD), "--target", "roofline"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return BUILD / "roofline"


class Machine:
    """The ceilings: operations per second, and bytes per second of a cache level for an access pattern."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.peak: float = raw["peak"]
        self.caches: dict[str, int] = raw["caches"]
        self._rates = {(b["level"], b["chunk"], b["random"]): b for b in raw["bandwidth"]}

    def rate(self, level: str, chunk: int = 256, *, random: bool, update: bool = False) -> float:
        return float(self._rates[level, chunk, random]["update" if update else "read"])

    def level_of(self, size: float) -> str:
        """Return the fastest level that holds this many bytes."""
        return next((level for level in LEVELS[:-1] if size <= self.caches[level]), LEVELS[-1])


def model(run: dict[str, Any], machine: Machine) -> dict[str, float]:
    """Return the seconds that a run needs of each resource, if caches hold the most frequent features."""
    seconds = {"arithmetic": run["flop"] / machine.peak}
    # After the product with a row, the panel rows to update are in a near cache.
    near = machine.level_of(run["chunk"] * run["nonzeros"])
    again = run["read_bytes"] > 0
    below = 0.0
    for level in LEVELS:
        share = run["within"].get(level, 1.0) - below
        below += share
        seconds[level] = share * run["read_bytes"] / machine.rate(level, run["chunk"], random=True)
        updates = float(level == near) if again else share
        seconds[level] += updates * run["update_bytes"] / machine.rate(level, random=True, update=True)
    in_order = run["kernel"] != "dual_squared_hinge"
    rows = machine.rate(machine.level_of(run["row_bytes"]), random=not in_order)
    seconds["rows"] = run["row_bytes"] / rows
    return seconds


def bound(run: dict[str, Any], smallest: dict[str, Any], machine: Machine) -> str:
    """Return the bottleneck of a kernel; `smallest` is the same work on the smallest panel."""
    taken = run["seconds"]
    parts = model(run, machine)
    arithmetic = parts.pop("arithmetic")
    if taken < NEAR * arithmetic:
        return "arithmetic"
    if taken < NEAR * sum(parts.values()):
        return max(parts, key=lambda part: parts[part])
    return "instructions" if taken < FLAT * smallest["seconds"] else "latency"


def evaluate(run: dict[str, Any], smallest: dict[str, Any], machine: Machine) -> dict[str, Any]:
    """Return the run with the columns of the table."""
    moved = run["read_bytes"] + run["update_bytes"]
    level = machine.level_of(run["features"] * run["chunk"])
    at_level = run["read_bytes"] / machine.rate(level, run["chunk"], random=True)
    at_level += run["update_bytes"] / machine.rate(level, random=True, update=True)
    return run | {
        "gflops": run["flop"] / run["seconds"] / 1e9,
        "gbytes": moved / run["seconds"] / 1e9,
        "intensity": run["flop"] / moved,
        "of_peak": run["flop"] / run["seconds"] / machine.peak,
        "level": level,
        "of_level": at_level / run["seconds"],
        "bound": bound(run, smallest, machine),
    }


def tables(raw: dict[str, Any], runs: list[dict[str, Any]], machine: Machine) -> str:
    lines = [
        f"One thread, {raw['isa']}: {machine.peak / 1e9:.0f} GFLOP/s in single precision.",
        "",
        "| GB/s | sequential read | read + write | random 256 B read | read + write | random 64 B read |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for level in LEVELS:
        rates = [
            machine.rate(level, random=random, update=update)
            for random in (False, True)
            for update in (False, True)
        ]
        rates.append(machine.rate(level, 64, random=True))
        lines.append(f"| {level} | " + " | ".join(f"{rate / 1e9:.0f}" for rate in rates) + " |")
    lines += [
        "",
        "| kernel | non-zeros | features | GFLOP/s | GB/s | FLOP/byte | of peak | panel in "
        "| of that level | bound by |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | --- |",
    ]
    for run in sorted(runs, key=lambda run: (list(STYLES).index(run["kernel"]), run["nonzeros"])):
        lines.append(
            f"| `{run['kernel']}` | {run['nonzeros']} | {run['features']:,} | {run['gflops']:.1f} "
            f"| {run['gbytes']:.0f} | {run['intensity']:.2f} "
            f"| {run['of_peak']:.0%} | {run['level']} | {run['of_level']:.0%} | {run['bound']} |"
        )
    lines += ["", "| `PackedBlock::find`: features of the block | KB | found | million/s | ns |"]
    lines.append("| ---: | ---: | ---: | ---: | ---: |")
    for find in raw["find"]:
        rate = find["per_second"]
        lines.append(
            f"| {find['features']:,} | {find['block_bytes'] / 1e3:.0f} | {find['found']:.0%} "
            f"| {rate / 1e6:.0f} | {1e9 / rate:.0f} |"
        )
    return "\n".join(lines)


def draw(raw: dict[str, Any], runs: list[dict[str, Any]], machine: Machine, path: Path) -> None:
    """Write the roofline as an SVG; equal numbers give equal bytes."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    plt.rcParams.update({"svg.hashsalt": "roofline", "font.size": 10.5, "axes.axisbelow": True})
    figure, axes = plt.subplots(figsize=(9.375, 5.8), layout="constrained")
    left, right, bottom, top = 0.1, 8.0, 2.0, 1.8 * machine.peak / 1e9
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top))
    peak = machine.peak / 1e9
    axes.plot([peak / (machine.rate("L1", random=False) / 1e9), right], [peak, peak], color="0.25", lw=1.6)
    axes.text(right * 0.96, peak * 1.05, f"peak {peak:.0f} GFLOP/s ({raw['isa']})", ha="right", va="bottom")
    labels = []
    for level, line in zip(LEVELS, ("-", "--", "-.", ":"), strict=True):
        rate = machine.rate(level, random=False) / 1e9
        start = max(left, bottom / rate)
        axes.plot([start, peak / rate], [start * rate, peak], color="0.45", lw=1.3, ls=line)
        label = axes.text(start * 1.04, start * 1.04 * rate * 1.05, f"{level} {rate:.0f} GB/s", fontsize=9.5)
        labels.append(label)
    shown = [run for run in runs if run["nonzeros"] == PLOTTED_NONZEROS]
    sizes = sorted({run["features"] for run in shown})
    area = {features: 28.0 + 34.0 * i for i, features in enumerate(sizes)}
    for kernel, (colour, shape) in STYLES.items():
        mine = [run for run in shown if run["kernel"] == kernel]
        x, y = [run["intensity"] for run in mine], [run["gflops"] for run in mine]
        axes.plot(x, y, color=colour, lw=0.8, alpha=0.6)
        axes.scatter(
            x,
            y,
            s=[area[run["features"]] for run in mine],
            color=colour,
            marker=shape,
            edgecolors="white",
            linewidths=0.8,
            zorder=3,
        )
    kernels = [
        Line2D([], [], color=colour, marker=shape, ls="", ms=8, label=kernel)
        for kernel, (colour, shape) in STYLES.items()
    ]
    panels = [
        Line2D([], [], color="0.5", marker="o", ls="", ms=area[n] ** 0.5, label=f"{n:,} features")
        for n in sizes
    ]
    first = axes.legend(handles=kernels, title="kernel", loc="lower right", bbox_to_anchor=(0.77, 0.01))
    axes.add_artist(first)
    axes.legend(handles=panels, title="panel of 64 lanes", loc="lower right", bbox_to_anchor=(1.0, 0.01))
    ticks_x, ticks_y = (0.1, 0.25, 0.5, 1, 2, 4, 8), (2, 5, 10, 20, 50, 100)
    axes.set_xticks(ticks_x, [f"{tick:g}" for tick in ticks_x])
    axes.set_yticks(ticks_y, [f"{tick:g}" for tick in ticks_y])
    axes.minorticks_off()
    axes.grid(color="0.92")
    axes.set_xlabel("arithmetic intensity (FLOP per byte of panel traffic)")
    axes.set_ylabel("GFLOP/s")
    axes.set_title(f"Kernels on one thread, rows with {PLOTTED_NONZEROS} non-zeros; lines: sequential read")
    figure.canvas.draw()  # the axes have their final size only here
    box = axes.get_window_extent()
    slope = (box.height / math.log(top / bottom)) / (box.width / math.log(right / left))
    for label in labels:  # rotated along their lines
        label.set(rotation=math.degrees(math.atan(slope)), rotation_mode="anchor", color="0.25")
        label.set_in_layout(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None}, facecolor="white")
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--again", action="store_true", help="print the stored results without measuring")
    if parser.parse_args().again:
        raw = json.loads(RESULT.read_text())
    else:
        output = subprocess.run([str(build())], check=True, capture_output=True, text=True, env=os.environ)
        raw = json.loads(output.stdout)
    machine = Machine(raw)
    work = lambda run: (run["kernel"], run["nonzeros"])
    smallest: dict[tuple[str, int], dict[str, Any]] = {}
    for run in sorted(raw["kernels"], key=lambda run: run["features"]):
        smallest.setdefault(work(run), run)
    runs = [evaluate(run, smallest[work(run)], machine) for run in raw["kernels"]]
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(raw | {"kernels": runs}, indent=1) + "\n")
    print(tables(raw, runs, machine))
    try:
        draw(raw, runs, machine, PICTURE)
    except ImportError:
        print("(no figure: matplotlib is not installed)")


if __name__ == "__main__":
    main()
