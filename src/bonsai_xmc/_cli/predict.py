"""``bonsai predict``: the best labels of each row."""

import argparse

from bonsai_xmc._base.params import PARAMETERS

from .parser import LABELS, add_data, add_model, add_prediction_parameters, add_table

SUMMARY = "find the best labels of a text, or of each row of a file"
EXAMPLES = (
    'bonsai predict model.bonsai "Thermal insulation of old brick houses" -k 3',
    "bonsai predict model.bonsai documents.csv --threshold auto -o labels.csv",
)
COMMON = (
    "k", "output", "output_format", "threshold", "restrict", "exclude", "label_names", "text", "json",
    "quiet",
)  # fmt: skip
#: For people, programs, spreadsheets, and as in the Extreme Classification Repository.
OUTPUT_FORMATS = ("table", "jsonl", "csv", "tsv", "sheet", "xlsx", "xc")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_data(parser, "INPUT", "tst", labels=False)
    # --restrict has one value: with several, the text that follows would be one of them
    add_table(
        parser,
        f"""
-k K  labels for each row, if the model has as many (default: 5)
-o --output OUT  file to write (default: -, standard output)
--output-format  what to write: csv and tsv have a line for each label, sheet (CSV) and xlsx a line for each
    row with all of its labels (default: by the name of OUT: .jsonl, .csv, .tsv, .xlsx, or .txt for xc,
    numbers of labels as in the Extreme Classification Repository; otherwise a table for a text and on a
    terminal, JSON lines for documents, xc for matrices)
--threshold  only labels of at least this score; auto: the threshold of the model; per_label: the one of each
    label (default: the -k best)
--restrict {LABELS}  find only this label; may be repeated; @FILE: one on each line (default: all)
--exclude {LABELS}  do not find this label; given as for --restrict
--label-names FILE  names of the labels: lines id<TAB>name, JSON objects, or one on each line (default: those
    of the model)
""",
        k={"type": int, "default": 5},
        output_format={"choices": OUTPUT_FORMATS},
        threshold=PARAMETERS["threshold"].rule.options,
        restrict={"action": "append"},
        exclude={"action": "append"},
    )
    add_prediction_parameters(parser)


def run(args: argparse.Namespace) -> None:
    from . import models, predictions, source
    from .io import Inputs, writing

    inputs = Inputs(args.model, args.data, args.label_names, *args.list, output=args.output, split=args.split)
    model = models.load(args, inputs, light=True)
    rows = source.for_model(args, model, inputs, labels=False)
    kind = "matrix" if isinstance(rows, source.Matrices) else "documents" if rows.text is None else "text"
    format = predictions.format_of(args, kind)
    names = predictions.names_of(model, inputs, args.label_names)
    ranked = models.rank(args, model, rows, args.k, least=args.threshold)
    lines = predictions.lines_of(format, ranked, names, kind != "text", args.threshold is not None)
    with writing(args.output) as file:
        file.writelines(lines)
