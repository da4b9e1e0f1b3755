"""Stages of the core, each solved at once."""

from bonsai_xmc import _core


def label_vectors(dataset, kind, threads=1):
    stage = _core.LabelVectorStage(dataset, kind)
    stage.solve(stage.missing(), threads)
    return stage.finish(threads)


def build_trees(vectors, labels, n_labels, n_trees, params, seed, threads=1):
    builder = _core.TreeBuilder(labels, n_labels, n_trees, params, seed)
    while builder.is_open:
        splits = builder.splits()
        splits.set_vectors(vectors)
        splits.solve(splits.missing(), threads)
        builder.advance(splits)
    return builder.finish()


def train_trees(dataset, trees, params, seed, threads=1):
    stage = _core.ClassifierStage.of_trees(dataset, trees, params, seed)
    stage.solve(stage.missing(), threads)
    return stage.finish(threads)


def train_one_vs_rest(dataset, labels, costs, frequent_share, params, seed, threads=1):
    stage = _core.ClassifierStage.of_labels(dataset, labels, costs, frequent_share, params, seed)
    stage.solve(stage.missing(), threads)
    return stage.finish(threads)
