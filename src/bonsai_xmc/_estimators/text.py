"""`TextBonsai`: a `Bonsai` whose rows are texts, and whose file holds the vocabulary, too."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from bonsai_xmc._base.progress import Phases, Progress, ProgressBar
from bonsai_xmc._base.threads import threads_of
from bonsai_xmc._data.labels import labels_of
from bonsai_xmc._data.rows import CoreRows, TrainingRows, by_density, check_encodable
from bonsai_xmc._estimators.bonsai import Bonsai, Finish
from bonsai_xmc._estimators.pipelines import model_of
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.label_prior import add_labels, require_one_vs_rest
from bonsai_xmc._model.label_texts import texts_of
from bonsai_xmc._modelfile import container
from bonsai_xmc._selection import fields as tuning
from bonsai_xmc._selection.prior import all_labels, with_label_texts
from bonsai_xmc._text.fitted import FittedText, check_terms, text_options
from bonsai_xmc._text.records import columns_of
from bonsai_xmc._text.selection import is_selected, most_ngrams, select_ngrams
from bonsai_xmc._text.title import planned
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.work import Runner

# The parameters of the texts; all others are those of `Bonsai`.
TEXT_PARAMS = (
    "fields",
    "word_ngrams",
    "char_ngrams",
    "char_boundaries",
    "min_df",
    "max_df",
    "max_features",
    "lowercase",
    "min_word_length",
    "sublinear_tf",
    "smooth_idf",
    "power",
    "max_ngrams",
)


class TextBonsai(Bonsai):
    """Extreme multi-label classifier of texts: `TextVectorizer` and `Bonsai` in one estimator and one file.

    Rows are strings, or records with named fields (dicts, or the rows of a data frame). The parameters for
    texts are those of `TextVectorizer`; all others, from `representation` to `verbose`, are those of
    `Bonsai`, with the same defaults, except that C="auto" is 1.5 instead of 1 where blocks are of several
    texts (a title's, beside those of all fields).
    The methods are those of `Bonsai`, with texts instead of matrices.

    Parameters
    ----------
    fields : None, list of str, dict or "auto", default=None
        None: each row is a string. A list names the text fields of the records; the title (the first short
        field, of those with a title's name if there is one) also has blocks of its own. A dict gives
        weights. See `TextVectorizer`.
        "auto" takes the fields that hold texts, and searches for their weights, those of word bigrams and
        character n-grams and `power` on held-out rows: up to 34 trainings on samples of at most 16,000
        rows (`tuning_`). ``{"title": "auto", "abstract": "auto"}`` names the fields.
    word_ngrams : "auto", dict, int or None, default="auto"
        This and the next ten: see `TextVectorizer`.
    char_ngrams : "auto", dict, int or None, default="auto"
    char_boundaries : bool, default=True
    min_df : int or float, default=2
    max_df : int or float, default=1.0
    max_features : int or None, default=None
    lowercase : bool, default=True
    min_word_length : int, default=2
    sublinear_tf : bool, default=True
    smooth_idf : bool, default=True
    power : float, default=1.0
    max_ngrams : "auto", int or None, default="auto"
        Maximum number of features in each block of n-grams (characters, or words of one order above 1): those
        that tell most about the labels, by their co-occurrence, and are in at most 2 % of the rows where
        there are enough of these. "auto": 2 for each row, at least 20,000.
        Saves most of the time that n-grams take. None keeps all of them.
    label_texts : mapping or path, optional
        Names, synonyms or descriptions of labels: a text or a list of texts for each, or a file (see
        `datasets.read_label_texts`). A label's text is a prior for its classifier, the more so the fewer rows
        it has; how much is chosen on held-out rows (`label_prior_`). Labels that no row has can be suggested,
        too: `classes_` has them after the others. Needs one-vs-rest classifiers. The first text of a label
        becomes its name. Not kept by `save`.

    Examples
    --------
    >>> from bonsai_xmc import TextBonsai
    >>> records = [{"title": "Brick houses", "abstract": "Old brick houses of Bremen."},
    ...            {"title": "Heat pumps", "abstract": "Heat pumps for old houses."}]
    >>> labels = [["brick construction"], ["heating"]]
    >>> model = TextBonsai(fields=["title", "abstract"], min_df=1).fit(records, labels)
    >>> model.suggest("A new heat pump", k=1)[0][0]
    'heating'
    """

    def __init__(
        self,
        fields: Any = None,
        *,
        word_ngrams: Any = "auto",
        char_ngrams: Any = "auto",
        char_boundaries: bool = True,
        min_df: float = 2,
        max_df: float = 1.0,
        max_features: int | None = None,
        lowercase: bool = True,
        min_word_length: int = 2,
        sublinear_tf: bool = True,
        smooth_idf: bool = True,
        power: float = 1.0,
        max_ngrams: int | str | None = "auto",
        label_texts: Any = None,
        representation: Any = "input",
        n_trees: int | str = "auto",
        branching_factor: int = 100,
        max_leaf_size: int | None = None,
        max_depth: int | str | None = "auto",
        balanced: bool | str = "auto",
        tree: Any = None,
        kmeans_tol: float = 1e-4,
        kmeans_max_iter: int = 10,
        kmeans_init: str = "random",
        C: float | str = "auto",
        loss: str = "squared_hinge",
        solver: str = "dual",
        tol: float = 0.1,
        max_iter: int = 20,
        prune: float | str = "auto",
        bias: str | float = "auto",
        classifiers: str = "auto",
        search: str = "auto",
        path_weight: float | str = "auto",
        tail_exponent: float | str = "auto",
        blend_weight: float | str = "auto",
        logit_adjustment: float | str = "auto",
        normalize: bool = True,
        keep_rows: bool = False,
        beam_size: int | str | None = "auto",
        n_probe: int | str | None = "auto",
        max_labels: int = 100,
        threshold: float | str = "auto",
        random_state: Any = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        for name in TEXT_PARAMS:
            setattr(self, name, given.pop(name))
        self.label_texts = given.pop("label_texts")
        super().__init__(**given)

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        runner: Runner | None = None,
        max_memory: int | str | None = "auto",
        progress: Progress | None = None,
        on_estimate: Callable[[dict[str, Any]], None] | None = None,
    ) -> Self:
        """Learn from texts X and their label sets y; see `Bonsai.fit`.

        X may be a generator: it is read before y. With ``fields="auto"`` it is kept in memory.
        """
        options: dict[str, Any] = {"checkpoint": checkpoint, "runner": runner}
        options |= {"max_memory": max_memory, "progress": progress, "on_estimate": on_estimate}
        if not tuning.is_auto(self.fields):
            return super().fit(X, y, sample_weight, **options)
        own = self._checked_params()
        rows, names = tuning.rows_and_fields(X, self.fields)
        watch = ProgressBar() if progress is None and self.verbose else progress
        tuned = tuning.tune(own, names, rows, y, watch)
        chosen = {"fields": names or None} if tuned is None else tuned.settings.params()
        tuned_model = type(self)(**own | chosen)
        tuned_model.fit(rows, y, sample_weight, **options)
        fitted = tuned_model.fitted_
        assert fitted.text is not None
        given = {name: own[name] for name in TEXT_PARAMS}
        text = replace(fitted.text, given=given, tuning={} if tuned is None else tuned.to_json())
        self.fitted_ = replace(fitted, text=text)
        return self

    def memory_estimate(self, X: Any, Y: Any) -> dict[str, Any]:
        """What `fit(X, Y)` will need, in bytes; see `Bonsai.memory_estimate`.

        The texts are read for it, which a generator allows only once: `on_estimate` of `fit` is for those.
        "phases" are those that follow; the texts themselves do not count.
        """
        if tuning.is_auto(self.fields):
            raise ValueError(
                "fields='auto' chooses the blocks of features by training, so that there is no estimate "
                "before; name the fields, or pass on_estimate to fit"
            )
        return super().memory_estimate(X, Y)

    def _checked_params(self) -> dict[str, Any]:
        params = super()._checked_params()
        if self.label_texts is not None:  # before anything that takes longer
            params["label_texts"] = texts_of(self.label_texts)
        return params

    def _read(self, X: Any, y: Any, phases: Phases) -> tuple[TrainingRows, FittedText | None]:
        params = self.get_params(deep=False)
        options = text_options(params)
        most = most_ngrams(self.max_ngrams, 0)
        with phases.together("texts"):
            plan, lengths, chunks = planned(X, params)
            threads, given = threads_of(self.n_jobs), {name: params[name] for name in TEXT_PARAMS}
            text, matrix = FittedText.fit(
                chunks, plan, options, threads, rows=True, given=given, lengths=lengths
            )
            assert matrix is not None
            if most is not None and any(map(is_selected, plan.blocks)):
                most = most_ngrams(self.max_ngrams, matrix.shape[0])
                text, matrix = select_ngrams(text, matrix, labels_of(y), most)
        check_terms(text)
        n_rows, n_features = matrix.shape
        rows, n_entries = by_density(
            (matrix.indptr.astype(np.int64), matrix.indices, matrix.data, n_features)
        )
        return TrainingRows(rows, n_rows, n_features, n_entries, None), text

    def _finishing(self, problem: Problem, text: FittedText | None, params: dict[str, Any]) -> Finish:
        if params["label_texts"] is None:
            return super()._finishing(problem, text, params)
        require_one_vs_rest(self._largest(problem, params)[0], "label_texts")
        assert text is not None
        labels = all_labels(text, problem.labels.classes, params["label_texts"], threads_of(self.n_jobs))
        return lambda fitted, work: with_label_texts(fitted, problem, labels, work)

    def _rows(self, X: Any, fitted: FittedModel) -> CoreRows:
        text = fitted.text
        assert text is not None
        matrix = text.transform(columns_of(X, text.plan.fields, complete=False), threads_of(self.n_jobs))
        return matrix.indptr.astype(np.int64), matrix.indices, matrix.data, matrix.shape[1]

    @classmethod
    def from_pipeline(cls, pipeline: Any) -> Self:
        """A fitted ``Pipeline`` of a `TfidfVectorizer` or `TextVectorizer` and a `Bonsai` as one model.

        It predicts what the pipeline predicts, and `save` writes one file, without pickle. Raises ValueError,
        naming the option, if an option of the vectorizer has no counterpart here, such as a tokenizer of your
        own.

        Examples
        --------
        >>> from sklearn.feature_extraction.text import TfidfVectorizer
        >>> from sklearn.pipeline import make_pipeline
        >>> from bonsai_xmc import Bonsai, TextBonsai
        >>> pipeline = make_pipeline(TfidfVectorizer(), Bonsai())
        >>> _ = pipeline.fit(["old brick houses", "heat pumps"], [["bricks"], ["heating"]])
        >>> TextBonsai.from_pipeline(pipeline).suggest("brick walls", k=1)[0][0]
        'bricks'
        """
        fitted, texts = model_of(pipeline)
        bonsai = pipeline.steps[-1][1]
        model = cls(**texts, **bonsai.get_params(deep=False))
        model.fitted_ = fitted
        return model

    def suggest(self, X: Any, k: int = 5, *, restrict: Any = None, exclude: Any = None) -> list[Any]:
        """The k best labels of each text as (label, score), best first; for a single text, its list alone.

        `restrict` and `exclude` as in `top_k`.
        """
        one = isinstance(X, str | Mapping)
        found = self.top_k_labels([X] if one else X, k, restrict=restrict, exclude=exclude)
        return found[0] if one else found

    @property
    def blocks_(self) -> list[tuple[str, int, float]]:
        """The blocks of features: name, number of features, weight."""
        text = self._text()
        sizes = text.core.block_sizes
        return [(block.name, n, block.weight) for block, n in zip(text.plan.blocks, sizes, strict=True)]

    @property
    def tuning_(self) -> dict[str, Any]:
        """What ``fields="auto"`` has tried, with nDCG@5 on held-out rows; empty if it was not given."""
        return dict(self._text().tuning)

    @property
    def label_prior_(self) -> dict[str, Any]:
        """How labels lean on their texts: weights and offsets by number of rows; empty without texts."""
        return dict(self._text().prior)

    @property
    def label_names_(self) -> list[str]:
        """Names of the labels, in the order of `classes_`; the label itself where it has no name."""
        names = self._text().label_names or [""] * len(self.classes_)
        return [name or str(label) for name, label in zip(names, self.classes_, strict=True)]

    def set_label_names(self, names: Mapping[Any, str]) -> Self:
        """Give names to labels of the fitted model; `save` writes them with it. `classes_` does not change.

        Parameters
        ----------
        names : mapping of labels to names
            As `datasets.read_label_names` returns it. Labels that the model does not have are ignored.
        """
        for label, name in names.items():
            if not isinstance(name, str):
                raise TypeError(f"names[{label!r}] is {name!r}, but names are strings")
            check_encodable(name, f"names[{label!r}] holds")
        found = tuple(str(names.get(label, names.get(str(label), ""))) for label in self.classes_.tolist())
        text = replace(self._text(), label_names=found if any(found) else ())
        self.fitted_ = replace(self._require_fitted(), text=text)
        return self

    def add_labels(self, texts: Any) -> Self:
        """Add labels to the fitted model that are known by their texts alone, without training again.

        Each gets the classifier that `label_texts` gives to a label without rows. Labels that the model has
        stay as they are.

        Parameters
        ----------
        texts : mapping or path
            As `label_texts`: a text or a list of texts for each label, or a file of them.

        Examples
        --------
        >>> from bonsai_xmc import TextBonsai
        >>> documents = ["brick chimneys", "walls of brick", "chimneys of boilers", "heat pumps"]
        >>> labels = [["bricks"], ["bricks"], ["heating"], ["heating"]]
        >>> model = TextBonsai(min_df=1, classifiers="one_vs_rest").fit(documents, labels)
        >>> _ = model.add_labels({"chimneys": "Chimneys"})
        >>> model.suggest("On chimneys", k=1)[0][0]
        'chimneys'
        """
        self.fitted_ = add_labels(self._require_fitted(), texts, threads_of(self.n_jobs))
        return self

    def _text(self) -> FittedText:
        text = self._require_fitted().text
        assert text is not None
        return text

    @classmethod
    def _check_kind(cls, path: str | os.PathLike[str], fitted: FittedModel) -> None:
        if fitted.text is None:
            raise ValueError(f"{os.fspath(path)} is a model of matrices: load it by Bonsai.load")

    @classmethod
    def _text_params(cls, fitted: FittedModel) -> dict[str, Any]:
        assert fitted.text is not None
        return {name: fitted.text.given[name] for name in TEXT_PARAMS if name in fitted.text.given}


def load_any(path: str | os.PathLike[str], **options: Any) -> Bonsai:
    """The model of a file: a `TextBonsai` or a `Bonsai`, whatever it is. Options are those of `load`."""
    of_texts = "text" in container.read(path, mmap=True).metadata
    return (TextBonsai if of_texts else Bonsai).load(path, **options)
