"""The parser: verbs and their options, a short and a full help, and hints for misspelt words."""

import argparse
import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from bonsai_xmc._base.hints import did_you_mean
from bonsai_xmc._base.params import PARAMETERS, TEXT_PARAMETERS, TEXTS, Parameter
from bonsai_xmc._base.rules import integer

#: The verbs, in the order of the help; each is a module here ("import" is import_).
VERBS = (
    "train", "evaluate", "predict", "explain", "serve", "calibrate", "fuse", "learn", "labels", "info",
    "convert", "import", "demo",
)  # fmt: skip

BONSAI = "bonsai"  # the system
OWN = "classifier__"  # prefix of parameters of a system that have the name of a text parameter
MATRICES = "matrices"
LABELS = "LABEL|@FILE"  # metavar of several options
#: Options for documents, matrices, files and models only, by the names of their values.
OF_DOCUMENTS = (
    "text", "label_field", "label_separator", "strict", "max_line", "encoding", "label_texts", "encoder",
    "tune", "by", "all_labels", *TEXT_PARAMETERS,
)  # fmt: skip
OF_MATRICES = ("labels", "n_features", "n_labels", "base", "label_base", "split", "train")
OF_FILES = ("format", "text", "strict", "max_line", "encoding")
OF_MODELS = ("exact", "beam_size", "n_probe", "n_jobs")

_WAY = """\
from a CSV file to a served model:
  bonsai train documents.csv -o model.bonsai   find the columns of texts and labels, train, report
  bonsai evaluate model.bonsai test.csv        measure the accuracy on documents with known labels
  bonsai predict model.bonsai "a new text"     find labels for a text, or for a file of documents
  bonsai serve model.bonsai                    a page to try it, and HTTP: pip install 'bonsai-xmc[serve]'

`bonsai demo` shows all this on generated texts, `bonsai COMMAND --help` the options of a command.
"""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a command; `verb` is its module, `progress` its progress bar."""
    parser = make_parser(_system(sys.argv[1:] if argv is None else argv))
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        verb = parser.verbs[args.command]
        known = [option for action in verb._actions for option in action.option_strings]
        hint = did_you_mean(unknown[0].partition("=")[0], known)
        verb.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    args.progress = None
    if sys.stderr.isatty() and not args.quiet:
        from bonsai_xmc._base.progress import ProgressBar

        args.progress = ProgressBar(lines=False)
    return args


def _system(argv: Sequence[str]) -> str:
    """Return the system that a command line names, which determines the options."""
    from bonsai_xmc.systems import SYSTEMS

    found = re.search(r"--system[= ](\S+)", " ".join(argv))
    return found[1] if found is not None and found[1] in SYSTEMS else BONSAI


class Parser(argparse.ArgumentParser):
    """A parser with a short help, of the `common` options, and a full one."""

    verbs: dict[str, "Parser"]
    common: tuple[str, ...] | None = None  # names of values; None for all
    system = BONSAI  # whose parameters are options

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Formatter, **options)

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        hint = "" if wrong is None else did_you_mean(wrong[1], re.findall(r"[\w.+-]+", wrong[2]))
        super().error(message + hint)

    def format_help(self, everything: bool = False) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for group in self._action_groups:
            shown = [a for a in group._group_actions if everything or self._is_common(a)]
            if shown:
                formatter.start_section(group.title)
                formatter.add_text(group.description)
                formatter.add_arguments(shown)
                formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def _is_common(self, action: argparse.Action) -> bool:
        return self.common is None or not action.option_strings or action.dest in (*self.common, "help")

    def short_usage(self) -> str:
        """Return the required arguments."""
        words = []
        for action in self._actions:
            if action.required and action.option_strings:
                words.append(f"{action.option_strings[0]} {action.metavar}")
            elif not action.option_strings:
                form = {"?": "[{}]", "+": "{0} [{0} …]"}.get(str(action.nargs), "{}")
                words.append(form.format(action.metavar))
        return " ".join([self.prog, *words, "[options]"])


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help with the default of each option."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, max_help_position=28, **options)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help or ""
        if "(default" in text or action.required or not action.option_strings or action.dest == "help":
            return text
        return f"{text} (default: {'no' if action.const is True else 'none'})"


class _HelpAll(argparse.Action):
    def __call__(self, parser: Any, *_: Any) -> None:
        parser._print_message(parser.format_help(everything=True), sys.stdout)
        parser.exit()


class _Version(argparse.Action):
    def __call__(self, parser: Any, *_: Any) -> None:
        from bonsai_xmc import __version__

        parser._print_message(f"bonsai-xmc {__version__}\n", sys.stdout)
        parser.exit()


def make_parser(system: str = BONSAI) -> Parser:
    """Return the parser of the command ``bonsai``; its result has the name of the verb in `command`."""
    parser = Parser(
        prog="bonsai", description="Extreme multi-label classification: labels for texts.", epilog=_WAY
    )
    ending = {"nargs": 0, "dest": "help"}
    add_table(parser, "--version  print the version, and exit", version={"action": _Version, **ending})
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=Parser, title="commands", prog="bonsai"
    )
    parser.usage = "bonsai COMMAND …"
    parser.verbs = {}
    for name in VERBS:
        verb = importlib.import_module(f"bonsai_xmc._cli.{name}{'_' * (name == 'import')}")
        more = getattr(verb, "MORE", "")
        command = commands.add_parser(
            name,
            help=verb.SUMMARY,
            description=f"{verb.SUMMARY[0].upper()}{verb.SUMMARY[1:]}.",
            epilog="\n".join(["examples:", *(f"  {line}" for line in verb.EXAMPLES), "", more]).rstrip(),
        )
        command.set_defaults(verb=verb, parser=command)
        command.common, command.system = getattr(verb, "COMMON", None), system
        verb.add_options(command)
        add_table(command, "--json  print JSON\n-q --quiet  print no progress and no summary")
        if command.common is not None:
            help_all = {"action": _HelpAll, **ending}
            add_table(command, "--help-all  show all options, and exit", help_all=help_all)
        command.usage = command.short_usage()
        parser.verbs[name] = command
    return parser


# Options that several verbs have


def add_table(parser: Any, table: str, **more: Any) -> None:
    """Add options and arguments from a table: on each line names and metavar, two blanks, and the help.

    A line that begins with blanks continues the help above it. An option without a metavar is a switch; a
    metavar such as ``csv|tsv`` lists all values. `more` maps names of options to a type, or to keyword
    arguments of `add_argument`.
    """
    for entry in re.split(r"\n(?=\S)", table.strip()):
        words, _, help = entry.partition("  ")
        names = re.findall(r"(?<!\S)-\S+", words) or words.split()[:1]
        metavar = " ".join(words.split()[len(names) :])
        given = more.get(names[-1].lstrip("-").replace("-", "_"), {})
        options = dict(given) if isinstance(given, dict) else {"type": given}
        if re.fullmatch(r"[a-z-]+(\|[a-z-]+)+", metavar) and "type" not in options:
            options["choices"] = tuple(metavar.split("|"))
        elif metavar:
            options["metavar"] = metavar
        elif names[0].startswith("-") and not options:
            options["action"] = "store_true"
        parser.add_argument(*names, help=" ".join(help.split()).replace("%", "%%"), **options)


def add_model(parser: Any, metavar: str = "MODEL", help: str = "model file") -> None:
    add_table(parser, f"model {metavar}  {help}; -: standard input")


def add_output(parser: Any, metavar: str = "MODEL") -> None:
    table = f"-o --output {metavar}  model file to write; -: standard output"
    add_table(parser, table, output={"required": True})


def add_data(
    parser: Any,
    name: str,
    split: str,
    labels: bool = True,
    sizes: bool = False,
    option: str = "data",
    only_matrices: bool = False,
) -> None:
    """Add the arguments and options for the rows that a verb reads, documents or matrices.

    `option` names an option instead of the argument ``data``; it cannot be followed by a file of labels.
    """
    what = "file or folder: " if labels else "a text (with a text model), or a file or folder: "
    if not only_matrices:
        what += "documents (JSON lines, CSV, TSV, Parquet, Excel, or as for Annif, PECOS, LibMultiLabel, "
        what += "fastText), or "
    # models store the base of their svmlight training file
    fallback = "an error" if sizes else "as in the training file"
    data = f"""
{option} {name}  {what}features in a format of the Extreme Classification Repository, svmlight or .npz; may
    be compressed by gzip, bzip2 or xz; -: standard input
"""
    own_labels = f"""
labels LABELS  matrices: file with the labels, if {name} has none
"""
    format = """
--format  format of the file (default: auto, by its content and its name)
"""
    documents = """
--text FIELD,…  fields that hold texts, optionally with weights as in title=0.7,abstract (default: detected,
    or those of the model)
--encoding NAME  encoding of the text, such as windows-1252 (default: UTF-8, or UTF-16 with a byte order mark)
--strict  stop with an error at the first faulty row
--max-line BYTES  maximum length of a line, or of a row of a CSV file; a longer one is an error (default:
    67108864)
"""
    fields = """
--labels FIELD  field that holds the labels (default: detected)
--label-separator TEXT  separator of labels in a string, or one of the words space, none (default: detected)
"""
    matrices = f"""
--base 0|1|auto  id of the first feature (default: auto: 0 if there is a header or the id 0 occurs, otherwise
    {fallback})
--label-base 0|1  id of the first label (default: 0)
--split NAME  part of a folder: trn, tst, … (default: {split})
"""
    counts = f"""
--n-features N  number of features, if {name} does not state it
--n-labels N  number of labels, if {name} does not state it
"""
    choices = {"choices": ("auto", *_OF_MATRICES) if only_matrices else FORMATS, "default": "auto"}
    beside = labels and option == "data"
    add_table(
        parser,
        data + own_labels * beside + format,
        on={"dest": "data", "required": True},
        labels={"nargs": "?"},
        format=choices,
    )
    if only_matrices:
        parser.set_defaults(text=None, label_field=None, encoding=None)
    else:
        add_table(
            parser.add_argument_group(TEXTS),
            documents + fields * labels,
            text=_fields,
            labels={"dest": "label_field"},
            max_line=int,
        )
    base = {"type": integer(0, "auto").options["type"]}
    add_table(
        parser.add_argument_group(MATRICES),
        matrices + counts * sizes,
        base=base,
        **dict.fromkeys(("label_base", "n_features", "n_labels"), int),
    )
    parser.set_defaults(usual_split=split, **{} if beside else {"labels": None})


_OF_MATRICES = ("xc", "split", "svmlight")
#: Formats of `datasets.read_documents` and `datasets.load_xc`.
FORMATS = (
    "auto", "jsonl", "json", "csv", "tsv", "annif", "pecos", "libmultilabel", "fasttext", "parquet", "xlsx",
    "lines", *_OF_MATRICES,
)  # fmt: skip


def _fields(text: str) -> dict[str, float | None]:
    """Parse ``title=0.7,abstract`` as names with weights; None if not given."""
    fields: dict[str, float | None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, weight = part.rpartition("=")
        fields[name if sign else part] = float(weight) if sign else None
    if not fields:
        raise ValueError("no field")
    return fields


_fields.__name__ = "list of fields"


def add_prediction_parameters(parser: Any) -> None:
    table = """
--list FILE  predictions of another system for the rows, for a model that has a ranked list as a member; may
    be repeated
"""
    add_table(parser, table, list={"action": "append", "default": []})
    for name in ("beam_size", "n_probe"):
        add_parameter(parser, name, "as in the model")
    add_parameter(parser, "n_jobs")


def add_parameter(
    parser: Any, name: str, shown_default: str | None = None, parameter: Parameter | None = None
) -> None:
    """Add an option for a parameter; it is absent from the result unless given."""
    parameter = parameter or (TEXT_PARAMETERS[name] if name in TEXT_PARAMETERS else PARAMETERS[name])
    words = {True: "yes", False: "no", None: "none"}
    default = parameter.default
    shown = words[default] if default is None or isinstance(default, bool) else default
    parser.add_argument(
        f"--{name.replace('__', '-').replace('_', '-')}",
        dest=name,
        default=argparse.SUPPRESS,
        help=f"{parameter.help} (default: {shown_default or shown})",
        **parameter.rule.options,
    )


def given(args: argparse.Namespace, options: Iterable[str]) -> Iterator[str]:
    """Yield the options, by the names of their values, whose values differ from their defaults."""
    for name in options:
        if name in vars(args) and getattr(args, name) != args.parser.get_default(name):
            yield name


def refuse(args: argparse.Namespace, options: Iterable[str], why: str) -> None:
    """Raise ValueError if one of the options, which would have no effect, is given."""
    for name in given(args, options):
        action = next(action for action in args.parser._actions if action.dest == name)
        option = next((word for word in action.option_strings if word.startswith("--")), action.metavar)
        raise ValueError(f"{option} {why}")
