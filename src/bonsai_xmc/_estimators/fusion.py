"""`Fusion`: several models that rank labels as one."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Self, cast

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import _BaseComposition

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.params import CLASSIFIERS, COMMON, Parameter, check_params
from bonsai_xmc._base.progress import LOG, Progress, phases_of
from bonsai_xmc._base.random import seed_of
from bonsai_xmc._base.rules import Rule, integer, one_of
from bonsai_xmc._base.threads import instruction_set
from bonsai_xmc._data import labels as label_sets
from bonsai_xmc._data.rows import DenseRows, FusedRows, Rows, prediction_rows
from bonsai_xmc._data.sparse import is_sparse
from bonsai_xmc._estimators.base import LabelRanker
from bonsai_xmc._estimators.bonsai import Bonsai
from bonsai_xmc._estimators.matrix import Job, MatrixClassifier
from bonsai_xmc._estimators.named import Named
from bonsai_xmc._estimators.text import TextBonsai, load, restored
from bonsai_xmc._model.fitted import VERSION, FittedModel, LabelTable, Provenance
from bonsai_xmc._model.fusion import (
    DEPTH,
    LINKS,
    MOST_MEMBERS,
    FusionRanker,
    Member,
    best_sums,
    fusion_of,
    list_members,
    union_of,
)
from bonsai_xmc._model.linear import LinearRanker
from bonsai_xmc._model.predict import text_rows
from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._model.thresholds import FALLBACK, PER_LABEL
from bonsai_xmc._modelfile import format as model_file
from bonsai_xmc._selection.fusion import PRICE, Chosen, choose, truth_of, with_names
from bonsai_xmc._selection.threshold import Thresholds, chosen_threshold
from bonsai_xmc._text.reader import FusedText
from bonsai_xmc._training import memory, splits
from bonsai_xmc.metrics._ranking import Ranking

_AUTO = "auto"


def _are_weights(value: Any) -> bool:
    numbers = np.asarray(value, np.float64) if isinstance(value, list | tuple | np.ndarray) else np.empty(0)
    return numbers.ndim == 1 and len(numbers) > 0 and bool((numbers > 0).all() and np.isfinite(numbers).all())


_WEIGHTS = Rule(_are_weights, "a list of numbers above 0, one for each member", str, words=(_AUTO,))


@dataclass(eq=False, repr=False)
class Fusion(_BaseComposition, MatrixClassifier):
    """Several models that rank labels together, by the weighted sum of their scores.

    Members are estimators of any kind, each with rows of its own if needed: words, vectors, other columns,
    other fields of a record. Weights and links are chosen on held-out rows; members that gain nothing there
    are left out.

    Parameters
    ----------
    members : list of (name, estimator)
        `Bonsai`, `TextBonsai`, one of `bonsai_xmc.systems`, or a `Fusion`. ``words__C`` and the like are
        parameters of this estimator, too.
    link : "auto", "score", "calibrated", "rank" or "root", default="auto"
        What is added up for each member: its score; its score after a logistic calibration on held-out rows;
        1 / (60 + rank); or the cube root of its score. "auto" chooses one for each member.
    weights : "auto" or list of numbers, default="auto"
        One for each member; they are scaled to a sum of 1, so that scores lie in [0, 1].
    depth : int, default=100
        Number of best labels of each member that are scored for a row; k, if k is larger.
    threshold : float, "auto" or "per_label", default="auto"
        As in `Bonsai`; chosen on the rows that weights and links are chosen on.
    random_state : int, RandomState or None, default=0
        Seed for the choice of held-out rows. The members have seeds of their own.
    n_jobs : int, optional
        If given, it replaces that of the members.

    Attributes
    ----------
    members_ : dict
        The fitted members, by name; without those that are left out.
    weights_, links_ : dict
        Their weights and links, by name.
    chosen_ : dict
        What was measured on held-out rows: "measures", and their "figures" for each member and the fusion.
    classes_, threshold_, …
        As in `Bonsai`. `classes_` are the labels of all members.

    Examples
    --------
    >>> from bonsai_xmc import Bonsai, Fusion, datasets
    >>> from bonsai_xmc.systems import FastXML
    >>> data = datasets.make_xmc("eurlex-4k", scale=0.05)
    >>> members = [("linear", Bonsai()), ("trees", FastXML(n_trees=10))]
    >>> model = Fusion(members).fit(data.X_train, data.Y_train)
    >>> ids, scores = model.top_k(data.X_test, k=5)
    >>> bool(abs(sum(model.weights_.values()) - 1) < 1e-6)
    True
    """

    parameters = {  # noqa: RUF012 (never changed)
        "link": Parameter(_AUTO, one_of(_AUTO, *LINKS), CLASSIFIERS, "what is added up for each member"),
        "weights": Parameter(_AUTO, _WEIGHTS, CLASSIFIERS, "weights of the members"),
        "depth": Parameter(DEPTH, integer(1), CLASSIFIERS, "labels of each member that are scored"),
        **COMMON,
    }
    ranker = FusionRanker

    members: Any
    _: KW_ONLY
    link: str = _AUTO
    weights: Any = _AUTO
    depth: int = DEPTH
    threshold: float | str = _AUTO
    random_state: Any = 0
    n_jobs: int | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with `deep`, also those of the members, as ``words__C``."""
        params: dict[str, Any] = self._get_params("members", deep=deep)
        return params

    def set_params(self, **params: Any) -> Self:
        """Change parameters of this estimator or of its members."""
        self._set_params("members", **params)
        return self

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, progress: Progress | bool | None = None
    ) -> Self:
        """Learn from rows X and their label sets y.

        Every member is trained on all rows. Weights and links are chosen with members of the same settings
        that are trained on a quarter of the rows (at least 5,000 or half, at most 100,000). A call that fails
        leaves the estimator as it was.

        Parameters
        ----------
        X : as the members take it, or mapping
            Training rows for all members, or a mapping of their names to the X of each.
        y : as in `Bonsai.fit`
            True labels.
        sample_weight : array-like of shape (n_rows,), optional
            Weights of the rows.
        progress : callable or bool, optional
            See `Bonsai.fit`; phases have the name of the member in front.
        """
        params = check_params({name: getattr(self, name) for name in self.parameters}, self.parameters)
        members = self._checked_members()
        X, y = (list(one) if isinstance(one, Iterator) else one for one in (X, y))
        inputs = _inputs(X, [name for name, _ in members])
        n_rows = label_sets.labels_of(y).n_rows
        for own in inputs:
            label_sets.check_rows(_n_rows(own), n_rows)
        weights = label_sets.row_weights(sample_weight, n_rows)
        phases = phases_of(progress)
        given = {} if weights is None else {"sample_weight": weights}
        fitted = [
            _fit(self._own(estimator), own, y, name, phases.progress, **given)
            for (name, estimator), own in zip(members, inputs, strict=True)
        ]
        whole = _assembled(dict(zip([name for name, _ in members], fitted, strict=True)), X, self.depth)
        seed = seed_of(self.random_state)
        split = splits.for_weights(n_rows, seed)
        part = None
        if self._needs_held_out(params) and n_rows >= splits.FEWEST_ROWS:
            part = self._part(members, fitted, inputs, y, weights, split.training, phases.progress)
        held_out = ([_taken(own, split.held_out) for own in inputs], _taken(y, split.held_out))
        self.fitted_ = self._fused(whole, part, held_out, params, seed)
        return self

    def _fit_jobs(self, jobs: Mapping[str, tuple[MatrixClassifier, Job]]) -> FittedModel:
        """Train each member by its job, and choose weights and links as `fit` does.

        The jobs have the same rows and labels in other forms, in the order of the members. Members beyond the
        first are trained on all rows only if they have a weight; any gain beyond chance gives them one, as
        the user has asked for them.
        """
        params = check_params({name: getattr(self, name) for name in self.parameters}, self.parameters)
        seed, job = seed_of(self.random_state), next(iter(jobs.values()))[1]
        if all(isinstance(model, Bonsai) for model, _ in jobs.values()):
            memory.require(partial(estimate_of, jobs), job.options.max_memory)
            if job.options.on_estimate is not None:
                job.options.on_estimate(estimate_of(jobs))
        first, models = next(iter(jobs)), {name: model for name, (model, _) in jobs.items()}
        trained = lambda name: models[name]._fit(_in_folder(jobs[name][1], name))
        models[first].fitted_ = trained(first)
        labels, split = job.problem.labels, splits.for_weights(job.problem.rows.n_rows, seed)
        some, part = labels.take(split.held_out), None
        enough = labels.n_rows >= splits.FEWEST_ROWS and len(labels.take(split.training).indices)
        if enough and len(some.indices):
            settings = {first: _settings_of(_strategy_of(models[first]))}
            with job.phases.together("weights"):
                part = {
                    name: _of_rows(name, *own, split.training, settings.get(name, {}))
                    for name, own in jobs.items()
                }
        else:
            for name in [name for name in jobs if name != first]:
                models[name].fitted_ = trained(name)
        # Members that may be left out are represented by those of some rows.
        whole = _assembled(models if part is None else part | {first: models[first]}, {}, self.depth)
        Y = [labels.classes[row].tolist() for row in np.split(some.indices, some.indptr[1:-1])]
        inputs = [_matrix_of(own.problem.rows.take(split.held_out)) for _, own in jobs.values()]
        by_names = isinstance(list(models.values())[-1], Named)
        ranking = None if part is None else list(part.values())
        fused = self._fused(whole, ranking, (inputs, Y), params, seed, by_names=by_names, price=0.0)
        if part is not None:
            used = [member.name for member in fusion_of(fused).members if member.name != first]
            fused = _with_models(fused, {name: trained(name) for name in used})
        return replace(fused, timings=job.phases.seconds)

    def _alone(self) -> MatrixClassifier | None:
        """Return the only member with what was chosen for the fusion; None if there are several."""
        if len(self._members) > 1:
            return None
        fused, own = self._require_fitted(), self._members[0].model
        LOG.info("the member %r alone is best on held-out rows", self._members[0].name)
        labels = replace(own.labels, thresholds=fused.labels.thresholds)
        chosen = replace(own, labels=labels, threshold=fused.threshold, timings=fused.timings)
        model = dict(self.members)[self._members[0].name]._with(chosen)
        return cast(MatrixClassifier, model.set_params(threshold=self.threshold))

    def _needs_held_out(self, params: Mapping[str, Any]) -> bool:
        open_link = params["link"] in (_AUTO, "calibrated")
        return open_link or isinstance(params["weights"], str) or isinstance(params["threshold"], str)

    def _part(
        self,
        members: Sequence[tuple[str, Any]],
        fitted: Sequence[Any],
        inputs: Sequence[Any],
        y: Any,
        weights: Array | None,
        rows: Array,
        progress: Progress | None,
    ) -> list[Any] | None:
        """Train the members with the settings that they have been fitted with, on only these rows."""
        some = _taken(y, rows)
        if not len(label_sets.labels_of(some).indices):
            return None
        given = {} if weights is None else {"sample_weight": weights[rows]}
        return [
            _fit(_same_settings(model), _taken(own, rows), some, f"{name}, part", progress, **given)
            for (name, _), model, own in zip(members, fitted, inputs, strict=True)
        ]

    @classmethod
    def of(
        cls,
        models: Any,
        X: Any,
        Y: Any,
        *,
        link: str = _AUTO,
        weights: Any = _AUTO,
        depth: int = DEPTH,
        threshold: float | str = _AUTO,
        n_jobs: int | None = None,
    ) -> Self:
        """Fuse fitted models of any kind, with weights and links that are best on rows X and Y.

        Parameters
        ----------
        models : list or mapping of fitted estimators, or of paths of model files
            The names are those of the mapping, or "1", "2", …; of files, their names without extension.
            Labels of the models may differ: the fusion has all of them.
        X, Y : as in `fit`
            Rows that the models were not trained on; thousands are better than hundreds.
        link, weights, depth, threshold, n_jobs
            As in the constructor.

        Examples
        --------
        >>> from bonsai_xmc import Bonsai, Fusion, datasets
        >>> data = datasets.make_xmc("eurlex-4k", scale=0.05)
        >>> a = Bonsai(classifiers="leaf").fit(data.X_train, data.Y_train)
        >>> b = Bonsai(classifiers="one_vs_rest").fit(data.X_train, data.Y_train)
        >>> model = Fusion.of({"trees": a, "one-vs-rest": b}, data.X_test, data.Y_test)
        >>> set(model.weights_) <= {"trees", "one-vs-rest"}
        True
        """
        named = _named(models)
        options: dict[str, Any] = {"link": link, "weights": weights, "depth": depth, "threshold": threshold}
        fusion = cls([(name, one._unfitted()) for name, one in named.items()], **options, n_jobs=n_jobs)
        params = check_params({name: getattr(fusion, name) for name in cls.parameters}, cls.parameters)
        X, Y = (list(one) if isinstance(one, Iterator) else one for one in (X, Y))
        whole = _assembled(named, X, depth)
        held_out = (_inputs(X, list(named)), Y)
        fusion.fitted_ = fusion._fused(whole, list(named.values()), held_out, params, 0)
        kept = set(fusion.members_)
        fusion.members = [pair for pair in fusion.members if pair[0] in kept]
        return fusion

    @classmethod
    def beside(cls, models: Mapping[str, Any]) -> Self:
        """Return fitted models side by side, with equal weights and nothing chosen."""
        fusion = cls([(name, one._unfitted()) for name, one in models.items()])
        fusion.fitted_ = replace(_assembled(models, None, DEPTH), given={"random_state": 0})
        return fusion

    def _fused(
        self,
        whole: FittedModel,
        part: Sequence[Any] | None,
        held_out: Any,
        params: Mapping[str, Any],
        seed: int,
        *,
        by_names: bool = False,
        price: float = PRICE,
    ) -> FittedModel:
        """Return the fusion with the best weights and links for `part`, which ranks held-out rows.

        `by_names`: the last member scores labels by their names, rare ones and those without rows.
        """
        given = None if isinstance(params["weights"], str) else [float(one) for one in params["weights"]]
        ranker = fusion_of(whole)
        if given is not None and len(given) != len(ranker.members):
            raise ValueError(f"there are {len(given)} weights, but {len(ranker.members)} members")
        stored = {"link": params["link"], "weights": given or _AUTO, "depth": params["depth"]}
        whole = replace(
            whole,
            given=stored | {"random_state": seed},
            provenance=replace(whole.provenance, seed=seed),
            threshold=params["threshold"] if not isinstance(params["threshold"], str) else FALLBACK,
        )
        if part is None:
            link = "score" if params["link"] in (_AUTO, "calibrated") else params["link"]
            return _weighted(whole, given or [1.0] * len(ranker.members), [link] * len(ranker.members))
        rankings = _rankings(whole, part, *held_out)
        links = LINKS if params["link"] == _AUTO else (params["link"],)
        n = len(rankings) - by_names
        found = choose(ranker.members[:n], rankings[:n], links=links, weights=given, price=price)
        if by_names:
            seen = _with_rows(whole, part[0].fitted_.labels)
            found = with_names(found, ranker.members, rankings, links, seen)
        fused = _weighted(whole, found.setting.weights, found.setting.links, found)
        if not isinstance(params["threshold"], str):
            return fused
        thresholds = _threshold(fused, rankings, found, params["threshold"] == PER_LABEL)
        return replace(
            fused,
            threshold=thresholds.common,
            labels=replace(fused.labels, thresholds=thresholds.of_labels),
        )

    def _checked_members(self) -> list[tuple[str, Any]]:
        members = list(self.members)
        for one in members:
            if not isinstance(one, tuple | list) or len(one) != 2 or not isinstance(one[0], str):
                raise ValueError(f"members holds {one!r:.60}, but must hold pairs of a name and an estimator")
            if not isinstance(one[1], LabelRanker):
                raise TypeError(
                    f"the member {one[0]!r} is a {type(one[1]).__name__}, but must be a Bonsai, a "
                    "TextBonsai, one of bonsai_xmc.systems or a Fusion"
                )
        _check_names([name for name, _ in members])
        return [(name, estimator) for name, estimator in members]

    def _own(self, estimator: Any) -> Any:
        """Return a copy of a member, with the `n_jobs` of this estimator if given."""
        own = clone(estimator)
        if self.n_jobs is not None:
            _set_jobs(own, self.n_jobs)
        return own

    # --- predictions ---

    def _rows(self, X: Any, fitted: FittedModel) -> Any:
        ranker = fusion_of(fitted)
        names = [member.name for member in ranker.members]
        if isinstance(X, Mapping):
            inputs = _inputs(X, names)
            models = self.members_.values()
            parts = [one._rows(own, one._require_fitted()) for one, own in zip(models, inputs, strict=True)]
            for name, own in zip(names, parts, strict=True):
                if own.n_rows != parts[0].n_rows:
                    raise ValueError(f"X[{name!r}] has {own.n_rows} rows, X[{names[0]!r}] {parts[0].n_rows}")
            return FusedRows(tuple(parts))
        if fitted.text is not None:
            return text_rows(X, fitted, self.n_jobs)
        if not ranker.shared:
            raise ValueError(
                "the members of this fusion read rows of their own: pass X as a mapping with the keys "
                + ", ".join(map(repr, names))
                + "".join(f"; {name!r} is a list of another system" for name in list_members(fitted))
            )
        return ranker.rows([prediction_rows(X, self, fitted.n_features, fitted.feature_names is not None)])

    def suggest(self, X: Any, k: int = 5, *, restrict: Any = None, exclude: Any = None) -> list[Any]:
        """Return the k best labels of each text as (label, score); see `TextBonsai.suggest`."""
        of_texts = self._require_fitted().text is not None
        one = isinstance(X, str) or (isinstance(X, Mapping) and of_texts)
        found = self.top_k_labels([X] if one else X, k, restrict=restrict, exclude=exclude)
        return found[0] if one else found

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool | str = True, verify: bool = False) -> Self:
        """Read a model from a file that `save` wrote; see `Bonsai.load`."""
        fitted, prediction = model_file.load(path, mmap, verify)
        if fitted.encoded is not None:
            raise ValueError(f"{os.fspath(path)} is a TextBonsai with an encoder; use bonsai_xmc.load")
        return cls._restored(fitted, prediction, path)

    @classmethod
    def _given(cls, fitted: FittedModel) -> dict[str, Any]:
        members = [(m.name, restored(m.model, m.prediction)._unfitted()) for m in fusion_of(fitted).members]
        return {"members": members} | super()._given(fitted)

    # --- attributes ---

    @property
    def _members(self) -> tuple[Member, ...]:
        return fusion_of(self._require_fitted()).members

    @property
    def members_(self) -> dict[str, Any]:
        found = {member.name: restored(member.model, member.prediction) for member in self._members}
        for one in found.values():
            _set_jobs(one, self.n_jobs)
        return found

    @property
    def weights_(self) -> dict[str, float]:
        return {member.name: member.weight for member in self._members}

    @property
    def links_(self) -> dict[str, str]:
        return {member.name: member.link for member in self._members}

    @property
    def chosen_(self) -> dict[str, Any]:
        return dict(fusion_of(self._require_fitted()).facts or {})


# --- members ---


def _check_names(names: Sequence[str]) -> None:
    if not 1 <= len(names) <= MOST_MEMBERS:
        raise ValueError(f"there are {len(names)} members, but must be 1 to {MOST_MEMBERS}")
    for name in names:
        if not name or "__" in name or name in Fusion.parameters or name == "members":
            raise ValueError(f"a member is called {name!r}; choose another name, without '__'")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two members are called {twice!r}; names must differ")


def _named(models: Any) -> dict[str, Any]:
    """Return fitted models by name; paths are loaded."""
    pairs: list[tuple[str, Any]] = []
    for i, one in enumerate(models.items() if isinstance(models, Mapping) else models, 1):
        name, model = one if isinstance(one, tuple) else (None, one)
        if isinstance(model, str | os.PathLike):
            stem = os.path.splitext(os.path.basename(os.fspath(model)))[0]
            name, model = name or stem, load(model)
        if not isinstance(model, LabelRanker):
            raise TypeError(
                f"model {i} is a {type(model).__name__}, but must be a fitted estimator, or a path of one"
            )
        model._require_fitted()
        pairs.append((str(name or i), model))
    _check_names([name for name, _ in pairs])
    return dict(pairs)


def _set_jobs(estimator: Any, n_jobs: int | None) -> None:
    """Set the number of threads of an estimator, fitted or not."""
    if isinstance(estimator, TextBonsai):
        if estimator.classifier is None:
            estimator.classifier = Bonsai()
        _set_jobs(estimator.classifier, n_jobs)
        if "classifier_" in vars(estimator):
            _set_jobs(estimator.classifier_, n_jobs)
    else:
        estimator.n_jobs = n_jobs


def _fit(estimator: Any, X: Any, y: Any, name: str, progress: Progress | None, **given: Any) -> Any:
    watch = None
    if progress is not None:
        watch = lambda phase, done, total: progress(f"{name}: {phase}", done, total)
    return estimator.fit(X, y, progress=watch, **given)


def _same_settings(model: Any) -> Any:
    """Return an unfitted estimator with the resolved settings of a fitted one, and a fixed threshold."""
    other = clone(model)
    classifier = other
    if isinstance(other, TextBonsai):
        classifier = other.classifier = clone(model.classifier_)
    classifier.set_params(**_settings_of(_strategy_of(model)), threshold=FALLBACK)
    return other


def _strategy_of(model: Any) -> Strategy | None:
    ranker = model._require_fitted().ranker
    return ranker.strategy if isinstance(ranker, LinearRanker) else None


def _settings_of(strategy: Strategy | None) -> dict[str, Any]:
    """Return parameters with the values that a strategy has; none for models without one."""
    if strategy is None:
        return {}
    settings: dict[str, Any] = {"classifiers": strategy.classifiers, "C": strategy.C}
    if strategy.classifiers != "leaf":
        weight = strategy.blend_weight if strategy.classifiers == "blend" else "auto"
        settings |= {
            "logit_adjustment": strategy.logit_adjustment,
            "blend_weight": (weight, strategy.row_tree_weight),
        }
    return settings


def _inputs(X: Any, names: Sequence[str]) -> list[Any]:
    """Return X of each member."""
    if not isinstance(X, Mapping):
        return [X] * len(names)
    missing = [name for name in names if name not in X]
    if missing:
        raise ValueError(
            f"X is a mapping without the member {missing[0]!r}; its keys are {', '.join(map(repr, X))}"
        )
    found = {id(X[name]): X[name] for name in names}
    found = {key: list(one) if isinstance(one, Iterator) else one for key, one in found.items()}
    return [found[id(X[name])] for name in names]


def estimate_of(jobs: Mapping[str, tuple[Any, Job]], **how: Any) -> dict[str, Any]:
    """Return the memory that the members need together; `how` are options of `memory.estimate`."""
    found: list[dict[str, Any]] = []
    for model, job in jobs.values():
        given = () if found else job.given  # X and Y as the caller passed them are counted once
        stored = job.options.checkpoint is not None
        found.append(model._estimate(job.problem, job.params, *given, **{"stored": stored} | how))
    n_rows = max(job.problem.rows.n_rows for _, job in jobs.values())
    return memory.together(found, splits.sizes_for_weights(n_rows)[1])


def _in_folder(job: Job, name: str) -> Job:
    """Return the job of a member, with its own folder in the checkpoint."""
    options = job.options._replace(on_estimate=None)
    if options.checkpoint is not None:
        options = options._replace(checkpoint=os.path.join(options.checkpoint, name))
    return replace(job, options=options)


def _with_models(fused: FittedModel, trained: Mapping[str, FittedModel]) -> FittedModel:
    """Return a fusion with other models, of labels that it has, in place of some members."""
    ranker, members = fusion_of(fused), []
    for member in ranker.members:
        own = trained.get(member.name)
        if own is not None:
            labels = None
            if not np.array_equal(own.classes, fused.classes):
                labels = np.array([fused.labels.place[key] for key in own.classes.tolist()], np.int32)
            member = replace(member, model=replace(own, calibration=member.model.calibration), labels=labels)
        members.append(member)
    n_iter = max(member.model.provenance.n_iter for member in members)
    provenance = replace(fused.provenance, n_iter=n_iter)
    return replace(fused, ranker=replace(ranker, members=tuple(members)), provenance=provenance)


def _of_rows(
    name: str, model: MatrixClassifier, job: Job, rows: Array, settings: Mapping[str, Any]
) -> MatrixClassifier:
    """Train a model on some rows, with some parameters changed."""
    other = clone(model).set_params(**settings, threshold=FALLBACK)
    params = check_params(other.get_params(deep=False), other.parameters)
    part = replace(job, problem=job.problem.take(rows), params=params)
    other.fitted_ = other._fit(_in_folder(part, f"{name}, part"))
    return cast(MatrixClassifier, other)


def _matrix_of(rows: Rows) -> Any:
    return rows.values if isinstance(rows, DenseRows) else rows.to_scipy()


def _n_rows(X: Any) -> int:
    if isinstance(X, tuple):  # ids and scores
        return len(X[0])
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _taken(X: Any, rows: Array) -> Any:
    """Return some rows of X or Y, in the form in which the user passed it."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if is_sparse(X):
        return X.tocsr()[rows]
    if isinstance(X, tuple):
        return tuple(np.asarray(part)[rows] for part in X)
    return X[rows] if hasattr(X, "shape") else [X[i] for i in rows.tolist()]


def _assembled(models: Mapping[str, Any], X: Any, depth: int) -> FittedModel:
    """Return the models side by side, with equal weights."""
    fitted = {name: model._require_fitted() for name, model in models.items()}
    labels, maps = union_of([one.labels for one in fitted.values()])
    members = tuple(
        Member(name, one, models[name].classifier_._prediction(), 1 / len(models), "score", own)
        for (name, one), own in zip(fitted.items(), maps, strict=True)
    )
    first = next(iter(fitted.values()))
    texts = [one.text for one in fitted.values()]
    same = all(one.text is None and one.n_features == first.n_features for one in fitted.values())
    shared = same and not isinstance(X, Mapping)
    ranker = FusionRanker(members, len(labels), shared, depth)
    rows = [one.n_rows for one in fitted.values() if one.n_rows is not None]
    return FittedModel(
        ranker=ranker,
        labels=labels,
        n_rows=max(rows) if rows else None,
        n_features=ranker.n_features,
        feature_names=first.feature_names if shared else None,
        id_base=first.id_base if shared else None,
        given={},
        threshold=FALLBACK,
        provenance=Provenance(
            VERSION, instruction_set(), max(o.provenance.n_iter for o in fitted.values()), 0
        ),
        text=None if shared else FusedText.of(texts),
    )


def _weighted(
    whole: FittedModel, weights: Sequence[float], links: Sequence[str], found: Chosen | None = None
) -> FittedModel:
    """Return the fusion with these weights and links, without members of weight 0."""
    ranker, total = fusion_of(whole), sum(weights)
    members = []
    for i, (member, weight, link) in enumerate(zip(ranker.members, weights, links, strict=True)):
        if weight == 0:
            continue
        own = None if found is None or link != "calibrated" else found.calibrations[i]
        model = member.model if own is None else replace(member.model, calibration=own)
        members.append(replace(member, model=model, weight=weight / total, link=link))
    kept = replace(ranker, members=tuple(members), facts=None if found is None else found.to_json())
    text = None if kept.shared else FusedText.of([member.model.text for member in members])
    return replace(whole, ranker=kept, n_features=kept.n_features, text=text)


def _rankings(whole: FittedModel, part: Sequence[Any], inputs: Sequence[Any], Y: Any) -> list[Ranking]:
    """Rank labels of held-out rows by each member, with the true ones; ids are those of the fusion."""
    labels, true = whole.labels, truth_of(whole, Y)
    place = None
    rankings = []
    for model, own in zip(part, inputs, strict=True):
        ids, log_scores = model._ranked(own, splits.CANDIDATES)
        label_sets.check_rows(len(ids), true.n_rows)
        if not np.array_equal(model.classes_, labels.classes):
            place = labels.place if place is None else place
            where = np.array([place.get(key, -1) for key in model.classes_.tolist()], np.int32)
            ids = np.where(ids >= 0, where[ids], -1)
        rankings.append(true.rank(ids, np.where(ids >= 0, log_scores, -np.inf)))
    return rankings


def _with_rows(whole: FittedModel, labels: LabelTable) -> Array:
    """Return a boolean for each label of a fusion: whether it has rows in another table."""
    some = {key for key, n in zip(labels.classes.tolist(), labels.counts.tolist(), strict=True) if n > 0}
    return np.array([key in some for key in whole.classes.tolist()], bool)


def _threshold(fused: FittedModel, rankings: Sequence[Ranking], found: Chosen, per_label: bool) -> Thresholds:
    """Choose the threshold by the scores of the fusion on held-out rows."""
    ids, values = [], []
    total = sum(found.setting.weights)
    for weight, link, own, ranking in zip(*found.setting, found.calibrations, rankings, strict=True):
        member = Member("", replace(fused, calibration=own), {}, weight / total, link)
        ids.append(ranking.ids)
        values.append(member.values(ranking.ids, ranking.scores) * member.weight)
    best = best_sums(
        np.concatenate(ids, axis=1), np.concatenate(values, axis=1), splits.CANDIDATES, fused.n_labels
    )
    return chosen_threshold([(rankings[0].truth.rank(*best), None)], fused.n_labels, per_label)
