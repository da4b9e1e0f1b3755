"""``python -m reproduce``: run experiments of the paper, or lay out a published data set for them."""

import argparse
import shlex
import sys

from bonsai_xmc._base.progress import ProgressBar

from . import experiments, known, recorded
from .bench import Factory, RankedFile


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code; ``--help`` and wrong usage exit from within."""
    args = _parser().parse_args(argv)
    args.command = f"python -m reproduce {shlex.join(sys.argv[1:] if argv is None else argv)}"
    try:
        print(args.run(args))
    except KeyboardInterrupt:
        print("reproduce: interrupted; the same command continues", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"reproduce: error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reproduce", description=__doc__.partition(": ")[2])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run experiments and write a report")
    run.set_defaults(run=_run)
    add = run.add_argument
    add("names", metavar="NAME", nargs="+", help=f"{', '.join(experiments.EXPERIMENTS)}, or all")
    add(
        "--data",
        metavar="DATA",
        nargs="+",
        required=True,
        help="a known data set (eurlex57k, amazon-670k, …), a folder with training and test files, "
        "TRAIN,TEST, or generated:SHAPE*FRACTION, data generated in the shape of a known set; NAME=… gives a "
        "folder or files of your own a name",
    )
    add("-o", "--output", metavar="DIR", required=True, help="folder for numbers, figures and the report")
    add("--systems", metavar="NAME", nargs="+", help="compare only these systems (default: all)")
    add(
        "--ranked",
        metavar="NAME=FILE",
        nargs="+",
        default=[],
        help="rankings of the test rows by other systems: a file that `bonsai evaluate` reads",
    )
    add("--seeds", type=int, metavar="N", help="seeds of each system (default: 5, quick 2)")
    add("--quick", action="store_true", help="two seeds")
    add("--n-jobs", type=int, metavar="N", help="threads (default: all)")
    add("--record", metavar="MACHINE", help="store the figures in benchmarks/results, cell by cell")
    prepare = commands.add_parser("prepare", help="lay out a published data set as the experiments read it")
    prepare.set_defaults(run=lambda args: known.prepare(args.name, args.source, args.output))
    add = prepare.add_argument
    add("name", metavar="NAME", choices=["eurlex57k"], help="eurlex57k")
    add("source", metavar="SOURCE", help="folder that the published archive unpacks to")
    add("-o", "--output", metavar="DIR", help="folder to write to (default: where `run --data` searches)")
    return parser


def _run(args: argparse.Namespace) -> object:
    ranked = [(name, file) for name, _, file in (text.partition("=") for text in args.ranked)]
    for name, file in ranked:
        if not name or not file:
            raise ValueError("--ranked takes NAME=FILE, such as ours=predictions.txt")
    return experiments.run(
        args.names,
        args.data,
        args.output,
        seeds=args.seeds,
        quick=args.quick,
        n_jobs=args.n_jobs,
        only=args.systems,
        systems={name: _reader(file) for name, file in ranked},
        report=lambda line: print(line, file=sys.stderr, flush=True),
        bar=ProgressBar(lines=False) if sys.stderr.isatty() else None,
        record=_recorder(args.record, args.command) if args.record else None,
    )


def _recorder(machine: str, command: str) -> recorded.Record:
    from benchmarks import figures  # builds on this package

    return lambda name, rows, beside: figures.record(machine, name, command, rows, beside)


def _reader(file: str) -> Factory:
    return lambda seed: RankedFile(file)


if __name__ == "__main__":
    sys.exit(main())
