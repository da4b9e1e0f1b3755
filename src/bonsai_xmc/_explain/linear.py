"""Rows of a `Bonsai`, explained by the integers of its linear classifiers.

Imports the core for the integers that margins are made of.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from bonsai_xmc import _core
from bonsai_xmc._base.arrays import Array
from bonsai_xmc._explain.names import FeatureName, feature_names, label_name
from bonsai_xmc._explain.objects import Contribution, Decision, Effect, Explanation, TreePath
from bonsai_xmc._explain.paths import Edge, Forest, Kept, cluster_name
from bonsai_xmc._explain.row import NoClassifier, Row
from bonsai_xmc._explain.scores import Weights, steps_of, weights_of
from bonsai_xmc._explain.texts import Occurrence, TextPlaces, highlighted, occurrences, places_of
from bonsai_xmc._model.strategy import beam_size
from bonsai_xmc._text.records import columns_of


class LinearRow(Row):
    """A row of a `Bonsai` model. A slot is a label in the numbering of the core."""

    def __init__(self, model: Any, X: Any) -> None:
        super().__init__(model, X)
        self.core = self.fitted.linear.core
        self.reasons = _core.Reasons(self.core, self.rows.to_core())
        self.weights: Weights = weights_of(self.fitted)
        strategy = self.fitted.linear.strategy
        self.beam = beam_size(model.classifier_.beam_size, strategy.n_trees, strategy.search)
        self.forest = None if self.core.trees is None else Forest(self.core.trees)

    @cached_property
    def names(self) -> list[FeatureName]:
        """Return the names of the row's features."""
        return feature_names(self.fitted, self.reasons.features)

    @cached_property
    def kept(self) -> Kept:
        return Kept(self.reasons, self.beam)

    @cached_property
    def from_trees(self) -> set[int]:
        """Return the slots that a blend scores by its trees."""
        core = _core.Model(self.core.trees, None, self.core.loss, self.core.normalize)
        k = min(_core.FROM_TREES, self.fitted.linear.n_slots)
        ids, _ = core.top_k(self.rows.to_core(), k, beam_size=self.beam, exact=False, n_probe=0, threads=1)
        return set(ids[0].tolist())

    @cached_property
    def row_shares(self) -> dict[int, float]:
        """Return the score of each slot by the trees over rows, best first."""
        trees = self.core.row_trees
        if trees is None or not len(self.reasons.features):
            return {}
        ids, scores = (found[0].tolist() for found in trees.top_k(self.rows.to_core(), trees.n_labels))
        return {slot: float(np.exp(score)) for slot, score in zip(ids, scores, strict=True) if slot >= 0}

    def _row_share(self, slot: int, found: bool) -> float:
        """Return the score by trees over rows; 0 beyond the best slots unless the search is exhaustive."""
        best = list(self.row_shares)[: _core.FROM_ROW_TREES if found else None]
        return self.row_shares[slot] if slot in best else 0.0

    @cached_property
    def texts(self) -> tuple[TextPlaces, ...]:
        text = self.fitted.words
        if text is None:
            return ()
        return places_of(text, next(columns_of(self.X, text.fields, complete=False)))

    @cached_property
    def occurrences(self) -> dict[int, Occurrence]:
        return occurrences(self.texts)

    def explain(self, label: int) -> Explanation:
        """Explain the score of a label; NoClassifier if the model never predicts it."""
        slots = np.flatnonzero(self.fitted.linear.label_of_slot == label).tolist()
        answers = [answer for slot in slots if (answer := self._explain(label, slot)) is not None]
        if not answers:
            raise NoClassifier(
                f"the label {label_name(self.fitted, label)!r} has no classifier: no training row has it, so "
                "the model never predicts it"
            )
        best = max(answers, key=lambda answer: (answer.found, answer.score))  # as in rankings
        if len(answers) == 1:
            return best
        merged = f"the label was made of {len(answers)} labels: the best of their classifiers counts"
        return replace(best, notes=(merged, *best.notes))

    def _explain(self, label: int, slot: int) -> Explanation | None:
        """Explain one of the classifiers of a label, which has several if it was merged; None without one."""
        own, paths = self._own(slot), tuple(self._paths(slot))
        if own is None and not paths:
            return None
        rank = self.rank(label)
        scored = self._is_found(own, paths)
        found = rank is not None if scored is None else scored
        if not found:  # as in an exhaustive search
            paths = tuple(replace(path, counts=True) for path in paths)
        steps = steps_of(self.fitted, slot, own, paths, self._row_share(slot, found))
        leaves = [path.decisions[-1].margin for path in paths]
        effects = self._effects(own, paths)
        return Explanation(
            *self.about(label),
            score=steps[-1].value,
            rank=rank,
            margin=own.margin if own is not None else float(np.mean(leaves)),
            found=found,
            one_vs_rest=own,
            paths=paths,
            effects=effects,
            steps=steps,
            notes=tuple(self._notes(own, paths, found)),
            texts=highlighted(self.texts, effects),
        )

    def _own(self, slot: int) -> Decision | None:
        forest = self.core.one_vs_rest
        if forest is None:
            return None
        at = np.flatnonzero(forest.arrays()["children"] == slot)
        if not len(at):
            return None
        return self._decision(forest, Edge(int(at[0]), 0, None), 0.0, slot)[0]

    def _paths(self, slot: int) -> Iterable[TreePath]:
        if (forest := self.forest) is not None:
            for tree in range(forest.core.n_trees):
                if edges := forest.path(tree, slot):
                    yield self._path(forest, tree, slot, edges)

    def _path(self, forest: Forest, tree: int, slot: int, edges: Sequence[Edge]) -> TreePath:
        root = int(forest.tree_ptr[tree])
        score, decisions, nodes = 0.0, [], []
        for level, edge in enumerate(edges):
            decision, score = self._decision(forest.core, edge, score, slot)
            to = None if edge.to is None else edge.to - root
            decisions.append(replace(decision, tree=tree, node=edge.node - root, level=level, child=to))
            if edge.to is not None:
                nodes.append((edge.to, score))
        dropped = self.kept.dropped(forest, tree, nodes)
        counts = dropped is None and len(self.reasons.features) > 0
        if self.fitted.linear.strategy.classifiers == "blend":
            counts = counts and slot in self.from_trees
        if self.core.strict_beam and self.beam > 0:
            counts = counts and self._rank_in_leaf(forest, edges[-1]) <= self.beam
        return TreePath(tree, tuple(decisions), float(np.exp(score)), counts, dropped)

    def _rank_in_leaf(self, forest: Forest, edge: Edge) -> int:
        """Rank a label among those of its leaf: with a strict beam, only the best of them count."""
        first, end = forest.child_ptr[edge.node : edge.node + 2].tolist()
        margins = [self.reasons.decide(forest.core, child)[4] for child in range(first, end)]
        return 1 + sum(margin > margins[edge.child - first] for margin in margins)

    def _decision(self, forest: _core.Forest, edge: Edge, path: float, slot: int) -> tuple[Decision, float]:
        """Return the decision of a classifier, and the log score of the path through it."""
        weights, total, scale, bias, margin, score = self.reasons.decide(forest, edge.child, path)
        slots = [slot] if edge.to is None or self.forest is None else self.forest.slots(edge.to)
        about = cluster_name(self.fitted, slots)
        own = float(np.exp(_core.log_scores(self.core.loss, np.array([margin]))[0]))
        contributions = self._contributions(weights, scale)
        unit = self.reasons.unit
        decision = Decision(
            None, None, None, None, about, contributions, total, unit, scale, bias, margin, own
        )
        return decision, score

    def _contributions(self, weights: Array, scale: float) -> tuple[Contribution, ...]:
        values = self.reasons.values
        products = weights.astype(np.int64) * values
        some = np.flatnonzero(products)
        some = some[np.lexsort((some, -np.abs(products[some])))]
        unit, all_of_them = self.reasons.unit, max(1, int(np.abs(products).sum()))
        return tuple(
            Contribution(
                int(self.reasons.features[i]),
                *self.names[i],
                value=float(values[i]) * unit,
                quantised=int(values[i]),
                weight=int(weights[i]),
                product=int(products[i]),
                effect=float(products[i]) * unit * scale,
                share=float(products[i]) / all_of_them,
            )
            for i in some.tolist()
        )

    def _effects(self, own: Decision | None, paths: Sequence[TreePath]) -> tuple[Effect, ...]:
        """Sum the effects over the classifiers that the score depends on."""
        parts = [] if own is None else [(own, self.weights.own)]
        if self.weights.trees > 0:
            weight = self.weights.trees / self.fitted.linear.strategy.n_trees
            parts += [(decision, weight) for path in paths if path.counts for decision in path.decisions]
        sums: dict[int, float] = defaultdict(float)
        first: dict[int, Contribution] = {}
        for decision, weight in parts:
            for c in decision.contributions:
                first.setdefault(c.feature, c)
                sums[c.feature] += weight * c.effect
        whole = sum(map(abs, sums.values())) or 1.0
        order = sorted(sums, key=lambda feature: (-abs(sums[feature]), feature))
        effects = []
        for f in order:
            c, (where, word) = first[f], self.occurrences.get(f, ("", ""))
            word = word if c.kind == "characters" else ""
            effects.append(Effect(f, c.name, c.field, c.kind, sums[f], sums[f] / whole, where, word))
        return tuple(effects)

    def _is_found(self, own: Decision | None, paths: Sequence[TreePath]) -> bool | None:
        """Return whether the model's own search scores the classifier; None if only its ranking shows it."""
        if not len(self.reasons.features):
            return False
        strategy = self.fitted.linear.strategy
        if strategy.search == "index":
            return None
        if strategy.search == "beam":
            return any(path.dropped is None for path in paths)
        return own is not None

    def _notes(self, own: Decision | None, paths: Sequence[TreePath], found: bool) -> Iterable[str]:
        if not len(self.reasons.features):
            yield "the row has no feature of the model, so it gets no labels"
        elif not found:
            best = f"is not among the {self.model._max_labels()} best labels that the index finds"
            by_index = self.fitted.linear.strategy.search == "index"
            how = best if by_index else "is not found by the model's beam search"
            yield f"the label {how}; its score is that of an exhaustive search"
        if own is not None and not own.contributions and len(self.reasons.features):
            yield "the label's classifier has a weight for none of the row's features: only the bias counts"
        yield from (path.left for path in paths if path.left)
