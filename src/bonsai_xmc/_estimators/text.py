"""`TextBonsai`: a reader of texts in front of a classifier, and one file for both."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bonsai_xmc._base.params import TEXT_PARAMETERS, check_params, is_by_names
from bonsai_xmc._base.progress import Phases, Progress, phases_of
from bonsai_xmc._base.threads import threads_of
from bonsai_xmc._data.labels import labels_of
from bonsai_xmc._data.rows import DenseRows, Rows
from bonsai_xmc._estimators.base import LabelRanker
from bonsai_xmc._estimators.bonsai import Bonsai
from bonsai_xmc._estimators.matrix import Finish, FitOptions, Job, MatrixClassifier
from bonsai_xmc._estimators.named import Named, NameVectors
from bonsai_xmc._estimators.pipelines import model_of
from bonsai_xmc._estimators.vectorizer import TextParameters, TextVectorizer
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.fusion import with_readers
from bonsai_xmc._model.label_prior import (
    LabelPrior,
    Texts,
    add_labels,
    apply_texts,
    keyed_as,
    require_one_vs_rest,
    texts_of,
)
from bonsai_xmc._model.predict import text_rows
from bonsai_xmc._model.ranker import estimator_class
from bonsai_xmc._model.thresholds import FALLBACK
from bonsai_xmc._modelfile import format as model_file
from bonsai_xmc._selection import fields as tuning
from bonsai_xmc._selection.prior import all_labels, with_label_texts
from bonsai_xmc._text.encoders import Encoder
from bonsai_xmc._text.fitted import FittedText, check_terms, text_options
from bonsai_xmc._text.reader import EncodedText, TextReader, joined
from bonsai_xmc._text.records import columns_of
from bonsai_xmc._text.selection import is_selected, most_ngrams, select_ngrams
from bonsai_xmc._text.title import planned
from bonsai_xmc._training.train import Problem, TextFacts
from bonsai_xmc._training.vectors import encoded
from bonsai_xmc._training.work import Runner, Work

# The parameters in a model file in addition to those of the classifier.
TEXT_PARAMS = ("fields", *TEXT_PARAMETERS)
# The members of a model with an encoder.
WORDS, VECTORS, NAMES = "words", "vectors", "names"
# Label trees on vectors add as much to words as one-vs-rest classifiers, for a seventh of the time. They have
# many small weights, and lose accuracy by the `prune` of sparse rows.
OF_VECTORS: dict[str, Any] = {"classifiers": "leaf", "prune": 0.01}
ENCODED = 1000  # texts, for an estimate of memory


@dataclass(eq=False, repr=False, kw_only=True)
class TextBonsai(TextParameters, LabelRanker):
    """Extreme multi-label classifier of texts: `TextVectorizer` and `Bonsai` in one estimator and one file.

    Rows are strings, or records with named fields (dicts, or the rows of a data frame). They become TF-IDF
    features as by `TextVectorizer`, and `classifier` learns from these. The methods are those of `Bonsai`,
    with texts instead of matrices.

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
        Word n-grams of the joined text, as ``{1: 1.0, 2: 0.5}``: orders and their weights. This and the
        following ten are described in full by `TextVectorizer`.
    char_ngrams : "auto", dict, int or None, default="auto"
        Character n-grams of the joined text, as ``{5: 0.6}``.
    char_boundaries : bool, default=True
        Whether character n-grams lie within words.
    min_df : int or float, default=2
        Documents that a term must occur in, as a number or a share.
    max_df : int or float, default=1.0
        Documents that a term may occur in at most, as a number or a share.
    max_features : int or None, default=None
        Maximum number of terms in each block.
    lowercase : bool, default=True
        Convert texts to lower case.
    min_word_length : int, default=2
        Minimum number of characters of a word.
    sublinear_tf : bool, default=True
        Use 1 + log(tf) instead of the term frequency tf.
    smooth_idf : bool, default=True
        Count one additional document that has all terms.
    power : float, default=1.0
        Raise the values of each block to this power before rows are normalised.
    max_ngrams : "auto", int or None, default="auto"
        Maximum number of features in each block of n-grams (characters, or words of one order above 1): those
        most associated with labels, by their co-occurrence, and in at most 2 % of the rows where
        there are enough of these. "auto": 2 for each row, at least 20,000.
        Saves most of the time that n-grams take. None keeps all of them.
    label_texts : mapping or path, optional
        Names, synonyms or descriptions of labels: a text or a list of texts for each, or a file (see
        `datasets.read_label_texts`). A label's text is a prior for its classifier, with a larger weight for
        labels with fewer rows; weights are chosen on held-out rows (`label_prior_`). Labels that no row has
        can be suggested, too: `classes_` has them after the others. Needs one-vs-rest classifiers. The first
        text of a label becomes its name. Not kept by `save`.
    encoder : str, path or callable, optional
        What turns a text into a vector: the name or the folder of a model for sentence-transformers, a
        folder in model2vec's format, "wordllama", or a function of a list of texts that returns an array with
        a row for each. A second classifier learns from the vectors, and labels are ranked by the sum of both
        scores, with weights chosen on held-out rows (see `Fusion`). If the vectors improve nothing there,
        they are left out. The model file keeps the encoder's identity, not its weights (docs/encoders.md).
    classifier : Bonsai, optional
        What learns from the features; default: ``Bonsai()``. Its ``C="auto"`` is 1.5 instead of 1 where
        features are those of several texts (of a title and of all fields). `fit` trains a copy,
        `classifier_`, whose parameters `threshold`, `beam_size`, `n_probe` and `n_jobs` may be changed
        afterwards. ``classifier__C`` and the like are parameters of this estimator, too, as scikit-learn's
        `GridSearchCV` needs them, if a classifier is given.

    Attributes
    ----------
    classifier_ : Bonsai
        The trained classifier, which takes matrices of features. With an encoder, a `Fusion` of "words",
        "vectors" and, with label texts, "names"; what was measured on held-out rows is in its `chosen_`.
    encoder_ : dict or None
        The identity of the encoder: kind, name, dimension, …; None without one, or if it was left out.
    blocks_ : list of (name, number of features, weight)
        The blocks of features, in their order.
    label_names_ : list of str
        Names of the labels, in the order of `classes_`; the label itself where it has no name.
    tuning_, label_prior_ : dict
        What ``fields="auto"`` has tried, and how `label_texts` are weighted; empty if they were not given.
    classes_, strategy_, threshold_, …
        As in `Bonsai`.

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

    max_ngrams: int | str | None = "auto"
    label_texts: Any = None
    encoder: Any = None
    classifier: Any = None

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        tree: Any = None,
        keep_rows: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        runner: Runner | None = None,
        max_memory: int | str | None = "auto",
        progress: Progress | bool | None = None,
        on_estimate: Callable[[dict[str, Any]], None] | None = None,
    ) -> Self:
        """Learn from texts X and their label sets y; see `Bonsai.fit`.

        X may be a generator: it is read before y. With ``fields="auto"`` or an encoder it is kept in memory.
        """
        options = FitOptions(checkpoint, runner, max_memory, on_estimate, keep_rows)
        classifier, params = self._new_classifier(), self._checked_params()
        encoder = None if self.encoder is None else Encoder.of(self.encoder)
        if encoder is not None:
            if keep_rows:
                raise ValueError("keep_rows: a model with an encoder cannot learn from further rows")
            X, y = (list(one) if isinstance(one, Iterator) else one for one in (X, y))
        phases = phases_of(progress)
        chosen: dict[str, Any] = {}
        tuned: dict[str, Any] = {}
        if tuning.is_auto(self.fields):
            X, names = tuning.rows_and_fields(X, self.fields)
            found = tuning.tune(params, names, X, y, phases.progress)
            chosen, tuned = found or ({"fields": names or None}, {})
        rows, text = self._read(X, y, params | chosen, phases, tuned)
        problem = classifier._problem((rows, None), y, sample_weight, self._facts(text), tree)
        of_names = None
        if encoder is not None and params["label_texts"] is not None:
            texts = keyed_as(params["label_texts"], problem.labels.classes)
            of_names = self._names(encoder, texts, params, options, phases)
        problem = self._with_name_vectors(problem, params, of_names)
        finish = self._finishing(classifier, problem, text, params)
        job = Job(problem, params, phases, (X, y), options, text, finish)
        if encoder is None:
            classifier.fitted_ = classifier._fit(job)
        else:
            classifier = self._with_vectors(encoder, classifier, job, sample_weight, of_names)
        self.classifier_ = classifier
        return self

    def _with_vectors(
        self,
        encoder: Encoder,
        words: MatrixClassifier,
        job: Job,
        sample_weight: Any,
        names: NameVectors | None,
    ) -> MatrixClassifier:
        """Train a member on words and one on the encoder's vectors; return the better one, or a fusion."""
        from bonsai_xmc._estimators.fusion import Fusion

        threshold = words.threshold
        jobs = self._jobs(encoder, words, job, sample_weight, names)
        members = [(name, one._unfitted()) for name, (one, _) in jobs.items()]
        fusion = Fusion(members, threshold=threshold, random_state=words.random_state, n_jobs=words.n_jobs)
        fusion.fitted_ = fusion._fit_jobs(jobs)
        return fusion._alone() or fusion

    def _jobs(
        self,
        encoder: Encoder,
        words: MatrixClassifier,
        job: Job,
        sample_weight: Any = None,
        names: NameVectors | None = None,
        most: int | None = None,
    ) -> dict[str, tuple[MatrixClassifier, Job]]:
        """Return the members of a model with an encoder, whose thresholds are fixed, and their trainings.

        With `most`, only so many texts are encoded, and their vectors stand for those of the others.
        """
        (X, y), text, folder = job.given, job.text, job.options.checkpoint
        assert text is not None
        texts = [one for columns in columns_of(X, text.fields, complete=False) for one in joined(columns)]
        kept = None if folder is None else os.path.join(folder, "encoder")
        found = encoded(encoder, texts[:most], threads_of(words.n_jobs), job.phases, kept)
        reader = EncodedText(encoder, text.fields, found.mean(axis=0, dtype=np.float64).astype(np.float32))
        rows = reader.rows(found)
        if len(rows) < len(texts):
            rows = np.resize(rows, (len(texts), rows.shape[1]))
        words.threshold = FALLBACK
        how: dict[str, Any] = {
            "threshold": FALLBACK,
            "random_state": words.random_state,
            "n_jobs": words.n_jobs,
        }
        vectors = Bonsai(**OF_VECTORS, **how)
        problem = vectors._problem((DenseRows(rows), None), y, sample_weight)
        params = check_params(vectors.get_params())
        jobs: dict[str, tuple[MatrixClassifier, Job]] = {
            WORDS: (words, replace(job, params=job.params | {"threshold": FALLBACK})),
            VECTORS: (vectors, Job(problem, params, job.phases, job.given, job.options, reader)),
        }
        if names is not None:
            named = Named(prune=OF_VECTORS["prune"], **how)
            named.names = names
            jobs[NAMES] = (named, replace(jobs[VECTORS][1], params=check_params(named.get_params())))
        return jobs

    def _names(
        self, encoder: Encoder, texts: Texts, params: dict[str, Any], options: FitOptions, phases: Phases
    ) -> NameVectors:
        """Return vectors for labels, made from their texts."""
        flat = [text for parts in texts.values() for text in parts]
        folder, threads = options.checkpoint, threads_of(params["n_jobs"])
        kept = None if folder is None else os.path.join(folder, "encoder, names")
        return NameVectors.of(texts, encoded(encoder, flat, threads, phases, kept))

    def _with_name_vectors(
        self, problem: Problem, params: dict[str, Any], names: NameVectors | None
    ) -> Problem:
        """Return the problem with a vector for the name of each label, if labels are clustered by these."""
        if not is_by_names(problem.representation):
            return problem
        classes = problem.labels.classes.tolist()
        if names is None:
            texts = keyed_as(params["label_texts"], problem.labels.classes)
            joined_texts = [" ".join(texts.get(label, ())) for label in classes]
            words = TextVectorizer(word_ngrams=1, char_ngrams=None, min_df=1, lowercase=self.lowercase)
            return replace(problem, name_vectors=words.fit_transform(joined_texts))
        place = {label: i for i, label in enumerate(names.labels)}
        nothing = np.zeros(names.vectors.shape[1], np.float32)
        found = [names.vectors[place[label]] if label in place else nothing for label in classes]
        return replace(problem, name_vectors=np.array(found))

    def memory_estimate(self, X: Any, Y: Any) -> dict[str, Any]:
        """Return what `fit(X, Y)` will need, in bytes; see `Bonsai.memory_estimate`.

        The texts are read for it, and 1,000 of them are encoded if there is an encoder. A generator can be
        read only once: pass `on_estimate` to `fit` instead. "phases" are those after reading; the memory of
        the texts, and that of the encoder and of the vectors of names, is not included.
        """
        from bonsai_xmc._estimators.fusion import estimate_of

        if tuning.is_auto(self.fields):
            raise ValueError(
                "fields='auto' chooses the blocks of features by training, so that memory cannot be "
                "estimated in advance; name the fields, or pass on_estimate to fit"
            )
        classifier, params = self._new_classifier(), self._checked_params()
        if self.encoder is not None:
            X, Y = (list(one) if isinstance(one, Iterator) else one for one in (X, Y))
        rows, text = self._read(X, Y, params, Phases(None), {})
        problem = classifier._problem((rows, None), Y, texts=self._facts(text))
        if not isinstance(classifier, Bonsai):
            raise ValueError(f"classifier is a {type(classifier).__name__}, but an estimate needs a Bonsai")
        problem = self._with_name_vectors(problem, params, None)
        if self.encoder is None:
            return classifier._estimate(problem, params, X, Y)
        job = Job(problem, params, Phases(None), (X, Y), text=text)
        return estimate_of(self._jobs(Encoder.of(self.encoder), classifier, job, most=ENCODED))

    def _facts(self, text: FittedText) -> TextFacts:
        return TextFacts(len(text.plan.texts), len(text.plan.blocks), self.label_texts is not None)

    def _new_classifier(self) -> MatrixClassifier:
        """Return the classifier that `fit` trains: a copy, so that a call that fails changes nothing."""
        given = self.classifier
        if given is None:
            return Bonsai()
        if not isinstance(given, MatrixClassifier):
            raise TypeError(
                f"classifier is a {type(given).__name__}, but must be a Bonsai or one of bonsai_xmc.systems"
            )
        return given._unfitted()

    def _checked_params(self) -> dict[str, Any]:
        """Return the parameters of the classifier and of the texts; ValueError if one is invalid."""
        classifier = self._new_classifier()
        params = check_params(classifier.get_params(deep=False), classifier.parameters)
        params |= {name: getattr(self, name) for name in (*TEXT_PARAMS, "label_texts")}
        if self.label_texts is not None:  # first, as all else takes longer
            params["label_texts"] = texts_of(self.label_texts)
        elif is_by_names(params.get("representation")):
            raise ValueError(
                f"representation is {params['representation']!r}, which clusters labels by their names: give "
                "them as label_texts"
            )
        return params

    def _read(
        self, X: Any, y: Any, params: dict[str, Any], phases: Phases, tuned: dict[str, Any]
    ) -> tuple[Rows, FittedText]:
        """Return X of `fit` as rows, and the fitted vectorizer, whose n-grams y helps to select."""
        options = text_options(params)
        most = most_ngrams(self.max_ngrams, 0)
        with phases.together("texts"):
            plan, lengths, chunks = planned(X, params)
            threads, given = threads_of(params["n_jobs"]), {name: getattr(self, name) for name in TEXT_PARAMS}
            text, rows = FittedText.fit(
                chunks, plan, options, threads, rows=True, given=given, lengths=lengths
            )
            assert rows is not None
            if most is not None and any(map(is_selected, plan.blocks)):
                most = most_ngrams(self.max_ngrams, rows.n_rows)
                text, rows = select_ngrams(text, rows, labels_of(y), most, threads)
        check_terms(text)
        return rows.by_density(), replace(text, tuning=tuned)

    def _finishing(
        self, classifier: MatrixClassifier, problem: Problem, text: FittedText, params: dict[str, Any]
    ) -> Finish:
        """Return a function that adds label texts to the trained model, after a check of what it needs."""
        texts: Texts | None = params["label_texts"]
        if texts is None:
            return lambda fitted, work: fitted
        if not isinstance(classifier, Bonsai):
            raise ValueError(f"label_texts need the one-vs-rest classifiers of a Bonsai, not a {classifier}")
        strategy = classifier._largest(problem, params, least=False)[0]
        if strategy.classifiers == "leaf" and is_by_names(problem.representation):
            return lambda fitted, work: _with_names(fitted, texts)  # they only cluster labels
        require_one_vs_rest(strategy, "label_texts")
        labels = all_labels(text, problem.labels.classes, texts, threads_of(classifier.n_jobs))
        found: list[LabelPrior] = []

        def finish(fitted: FittedModel, work: Work) -> FittedModel:
            if found:  # a model of some of the rows
                return apply_texts(fitted, labels.texts, found[0], work.threads)
            whole = with_label_texts(fitted, problem, labels, work)
            assert whole.words is not None
            found.append(LabelPrior.from_json(whole.words.prior))
            return whole

        return finish

    def _rows(self, X: Any, fitted: FittedModel) -> Rows:
        return text_rows(X, fitted, self.classifier_.n_jobs)

    @property
    def fitted_(self) -> FittedModel:
        """The trained model, an immutable object; the same as that of `classifier_`."""
        return self._require_fitted()

    def _require_fitted(self) -> FittedModel:
        classifier: Any = self.__dict__.get("classifier_")
        if classifier is None:
            check_is_fitted(self)  # a NotFittedError is an AttributeError, as properties need it
        fitted: FittedModel = classifier.fitted_
        return fitted

    def __sklearn_is_fitted__(self) -> bool:
        return "classifier_" in self.__dict__

    def _with(self, fitted: FittedModel) -> Self:
        other = self._unfitted()
        other.classifier_ = self.classifier_._with(fitted)
        return other

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        mmap: bool | str = True,
        verify: bool = False,
        encoder: Any = None,
    ) -> Self:
        """Read a model from a file; see `Bonsai.load`, and `bonsai_xmc.load` for `encoder`."""
        fitted, prediction = _read(path, mmap, verify, encoder)
        if not _is_of_texts(fitted):
            what = "a matrix model" if fitted.text is None else "a Fusion"
            raise ValueError(f"{os.fspath(path)} is {what}; use bonsai_xmc.load")
        return cls._restored(estimator_class(fitted.ranker.kind)._restored(fitted, prediction))

    @classmethod
    def _restored(cls, classifier: MatrixClassifier) -> Self:
        """Return the estimator around a classifier of texts."""
        fitted = classifier._require_fitted()
        text, encoded, members = fitted.words, fitted.encoded, dict(getattr(classifier, "members", ()))
        given: dict[str, Any] = {}
        if text is not None:
            given = {name: text.given[name] for name in TEXT_PARAMS if name in text.given}
        elif encoded is not None and encoded.fields:
            given = {"fields": list(encoded.fields)}
        if encoded is not None:
            given["encoder"] = encoded.encoder.given
        of_words = members.get(WORDS, classifier)
        of_words = of_words.classifier if isinstance(of_words, TextBonsai) else of_words._unfitted()
        model = cls(**given, classifier=of_words)
        model.classifier_ = classifier
        return model

    @classmethod
    def from_pipeline(cls, pipeline: Any) -> Self:
        """Join a fitted ``Pipeline`` of a `TfidfVectorizer` or `TextVectorizer` and a `Bonsai` to one model.

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
        model = cls(**texts, classifier=bonsai._unfitted())
        model.classifier_ = bonsai._with(fitted)
        return model

    def suggest(self, X: Any, k: int = 5, *, restrict: Any = None, exclude: Any = None) -> list[Any]:
        """Return the k best labels of each text as (label, score), best first; for a single text, its list.

        `restrict` and `exclude` as in `top_k`.
        """
        one = isinstance(X, str | Mapping)
        found = self.top_k_labels([X] if one else X, k, restrict=restrict, exclude=exclude)
        return found[0] if one else found

    @property
    def encoder_(self) -> dict[str, Any] | None:
        """The identity of the encoder; None if the model has none."""
        reader = self._require_fitted().encoded
        return None if reader is None else reader.encoder.identity.to_json()

    @property
    def blocks_(self) -> list[tuple[str, int, float]]:
        """The blocks of features: name, number of features, weight; none if the model reads only vectors."""
        text = self._require_fitted().words
        if text is None:
            return []
        sizes = text.core.block_sizes
        return [(block.name, n, block.weight) for block, n in zip(text.plan.blocks, sizes, strict=True)]

    @property
    def tuning_(self) -> dict[str, Any]:
        """Settings that ``fields="auto"`` has tried, with nDCG@5 on held-out rows; empty without it."""
        text = self._require_fitted().words
        return {} if text is None else dict(text.tuning)

    @property
    def label_prior_(self) -> dict[str, Any]:
        """Weights and offsets of the label-text prior, by number of rows; empty without texts."""
        text = self._require_fitted().words
        return {} if text is None else dict(text.prior)

    def add_labels(self, texts: Any) -> Self:
        """Return a model with further labels, which have texts but no rows; nothing is trained again.

        Each gets the classifier that `label_texts` gives to a label without rows. Labels that the model has
        stay as they are.

        Parameters
        ----------
        texts : mapping or path
            As `label_texts`: a text or a list of texts for each label, or a file of them.

        Examples
        --------
        >>> from bonsai_xmc import Bonsai, TextBonsai
        >>> documents = ["brick chimneys", "walls of brick", "chimneys of boilers", "heat pumps"]
        >>> labels = [["bricks"], ["bricks"], ["heating"], ["heating"]]
        >>> model = TextBonsai(min_df=1, classifier=Bonsai(classifiers="one_vs_rest"))
        >>> model = model.fit(documents, labels).add_labels({"chimneys": "Chimneys"})
        >>> model.suggest("On chimneys", k=1)[0][0]
        'chimneys'
        """
        return self._edited(add_labels, texts)


def _with_names(fitted: FittedModel, texts: Texts) -> FittedModel:
    """Return the model with the first text of each label as its name."""
    known = keyed_as(texts, fitted.classes)
    names = tuple(next(iter(known.get(label, ())), "") for label in fitted.classes.tolist())
    return replace(fitted, labels=replace(fitted.labels, names=names))


def load(
    path: str | os.PathLike[str], mmap: bool | str = True, verify: bool = False, encoder: Any = None
) -> Any:
    """Read a model of any kind from a file that `save` wrote.

    Returns the fitted estimator: a `TextBonsai`, a `Bonsai`, a `Fusion`, or one of `bonsai_xmc.systems`. The
    options are those of `Bonsai.load`, and `encoder`: that of a model that was trained with a function, or
    whose encoder lies elsewhere. It must be the same; otherwise a ValueError names the difference. Without
    `encoder`, the encoder is looked for and compared when the first text is read.

    Examples
    --------
    >>> import tempfile, os, bonsai_xmc
    >>> path = os.path.join(tempfile.mkdtemp(), "model.bonsai")
    >>> bonsai_xmc.Bonsai().fit([[1, 0], [0, 1]], [["red"], ["green"]]).save(path)
    >>> bonsai_xmc.load(path).top_k_labels([[1, 0]], k=1)[0][0][0]
    'red'
    """
    return restored(*_read(path, mmap, verify, encoder), path)


def _read(
    path: str | os.PathLike[str], mmap: bool | str, verify: bool, encoder: Any
) -> tuple[FittedModel, dict[str, Any]]:
    """Return a file's model and its parameters of prediction, with the encoder that is given."""
    fitted, prediction = model_file.load(path, mmap, verify)
    if encoder is None:
        return fitted, prediction
    found = []

    def placed(text: TextReader) -> TextReader:
        if not isinstance(text, EncodedText):
            return text
        found.append(text)
        return replace(text, encoder=text.encoder.at(encoder))

    fitted = with_readers(fitted, placed)
    if not found:
        warnings.warn(f"{os.fspath(path)} has no encoder: the one that is given is not used", stacklevel=3)
    return fitted, prediction


def restored(
    fitted: FittedModel, prediction: Mapping[str, Any], path: str | os.PathLike[str] = "this"
) -> Any:
    """Return the estimator of a fitted model, with its parameters of prediction."""
    classifier = estimator_class(fitted.ranker.kind)._restored(fitted, prediction, path)
    return TextBonsai._restored(classifier) if _is_of_texts(fitted) else classifier


def _is_of_texts(fitted: FittedModel) -> bool:
    """Return whether the model is that of a `TextBonsai`: of words, of vectors, or of both."""
    return fitted.encoded is not None or isinstance(fitted.text, FittedText)
