"""Conversions between the reference's data and forests and the forms that the core uses."""

from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

import reference
from bonsai_xmc import _core
from helpers import random_csr
from reference import Node

# --- data ---


def as_rows(A, dense=False):
    """Return A in the form passed to the core."""
    A = np.asarray(A, dtype=np.float32)
    if dense:
        return np.ascontiguousarray(A)
    A = csr_array(A)
    return A.indptr.astype(np.int64), A.indices.astype(np.int32), A.data, A.shape[1]


def as_array(rows):
    if not isinstance(rows, tuple):
        return np.asarray(rows, dtype=np.float64)
    indptr, indices, data, width = rows
    return csr_array((data, indices, indptr), shape=(len(indptr) - 1, width)).toarray().astype(np.float64)


def make_data(seed, n=60, d=40, labels=12, density=0.25, values="normal"):
    """Return continuous data, without near ties. Two rows lack features, one a label, one label rows."""
    rng = np.random.default_rng(seed)
    draw = rng.standard_normal if values == "normal" else lambda size: rng.random(size) + 0.1
    X = random_csr((n, d), density=density, rng=rng, data_sampler=lambda size: draw(size)).toarray()
    Y = rng.random((n, labels)) < rng.uniform(0.05, 0.5, labels)
    Y[0] = False
    Y[1, : labels // 2] = True
    Y[:, labels // 3] = False
    X[[2, 3]] = 0
    Y[2, 0] = True
    return X.astype(np.float32), Y.astype(np.float64)


def make_dataset(X, Y, weights=None, normalize=True, dense=False):
    Y = csr_array(Y)
    Y.eliminate_zeros()
    weights = np.empty(0, np.float32) if weights is None else np.asarray(weights, dtype=np.float32)
    indptr, indices = Y.indptr.astype(np.int64), Y.indices.astype(np.int32)
    return _core.Dataset(as_rows(X, dense), indptr, indices, Y.shape[1], weights, normalize)


def as_vectors(V, dense=False):
    return _core.LabelVectors.from_rows(as_rows(V, dense))


def top_k(trees, one_vs_rest, x, k, beam, loss="squared_hinge", normalize=True, threads=1):
    """Return ids and log scores by a model of these forests; `beam` None: all nodes."""
    model = _core.Model(trees, one_vs_rest, loss, normalize)
    options = {"beam_size": beam or 0, "exact": False, "n_probe": 0, "threads": threads}
    return model.top_k(x, k, **options)


def make_weights(n, seed=0):
    return np.random.default_rng(seed).choice([0.25, 1.0, 3.0], n).astype(np.float32)


def linear_params(loss="squared_hinge", solver="dual", C=1.0, tol=0.1, max_iter=20, bias="learn", prune=-1.0):
    learn = bias == "learn"
    return {
        "loss": loss,
        "solver": solver,
        "C": C,
        "tol": tol,
        "max_iter": max_iter,
        "learn_bias": learn,
        "fixed_bias": 0.0 if learn else bias,
        "prune": prune,
    }


# --- stored forests ---


BLOCK, LISTED = 128, 8  # children in a block of weights; weights of a feature that has no map of them


def stored_classifiers(arrays, v, n_features):
    """Return (classifiers × features weights, scales, biases) of node v from the arrays."""
    children = slice(*arrays["child_ptr"][v : v + 2])
    scale, bias = np.float64(arrays["scale"][children]), np.float64(arrays["bias"][children])
    W = np.zeros((len(scale), n_features))
    for number, block in enumerate(range(*arrays["block_ptr"][v : v + 2])):
        shift = int(arrays["shift"][block])
        records = arrays["records"][slice(*arrays["record_ptr"][block : block + 2])]
        offsets = arrays["buckets"][slice(*arrays["bucket_ptr"][block : block + 2])]
        assert offsets[0] == 0 and offsets[-1] == len(records)
        for bucket, (begin, end) in enumerate(pairwise(offsets.tolist())):
            if begin == end:
                continue
            n, sized = records[begin : begin + 2].tolist()
            low = np.frombuffer(records[begin + 2 : end].tobytes(), "<u1" if shift <= 8 else "<u2", n)
            at = begin + 2 + low.nbytes + sized
            sizes = records[at - sized : at].tolist() + [2] * (n - sized)
            assert len(set(low.tolist())) == n and 2 not in sizes[:sized] and at + sum(sizes) == end
            for feature, size in zip((bucket << shift) + low.astype(int), sizes, strict=True):
                held, at = records[at : at + size], at + size
                if size > 2 * LISTED:
                    child = np.flatnonzero(np.unpackbits(held[: BLOCK // 8], bitorder="little"))
                    weight = held[BLOCK // 8 :]
                else:
                    child, weight = held.reshape(2, -1)
                column = W[BLOCK * number : BLOCK * (number + 1), feature]
                assert len(child) == len(weight) and not column.any()
                column[child] = weight.view(np.int8) * scale[BLOCK * number + child.astype(int)]
                assert np.count_nonzero(column) == len(weight)
    return W, scale, bias


def stored_forest(arrays, n_features):
    """Return the reference's nodes with the weights in the arrays."""
    forest = []
    for first, end in zip(arrays["tree_ptr"][:-1], arrays["tree_ptr"][1:], strict=True):
        ptr = arrays["child_ptr"][first : end + 1]
        flat = (ptr - ptr[0], arrays["children"][ptr[0] : ptr[-1]], arrays["is_leaf"][first:end])
        root = reference.unflatten(*flat, key=0)
        for node in reference.breadth_first(root):
            node.W, _, node.b = stored_classifiers(arrays, first + node.id, n_features)
        forest.append(root)
    return forest


def stored_ranker(arrays, n_features):
    """Return the leaf with the classifiers in the arrays, labels in their order."""
    W, _, b = stored_classifiers(arrays, 0, n_features)
    return Node(arrays["children"].astype(np.int64), W=W, b=b)


def random_tree(rng, labels, most_children, level=1):
    """Return a tree with leaves at different levels; ids are set afterwards."""
    node = Node(np.sort(labels), level=level)
    if len(labels) > 2 and level < 5 and (level == 1 or rng.random() < 0.7):
        cuts = np.sort(rng.choice(np.arange(1, len(labels)), rng.integers(1, most_children), replace=False))
        parts = np.split(rng.permutation(labels), cuts)
        node.children = [random_tree(rng, part, min(most_children, len(part)), level + 1) for part in parts]
    return node


def pack(forest, scale=2.0**-3):
    """Return the arrays of reference nodes whose weights are integer multiples of the scale."""
    pointers = ("tree_ptr", "child_ptr", "block_ptr", "bucket_ptr", "record_ptr")
    plain = ("children", "is_leaf", "bias", "shift", "buckets", "records")
    a = {name: [0] for name in pointers} | {name: [] for name in plain}
    for root in forest:
        nodes = reference.breadth_first(root)
        for number, node in enumerate(nodes):
            node.id = number
        for node in nodes:
            a["children"] += [child.id for child in node.children] or node.labels.tolist()
            a["child_ptr"].append(len(a["children"]))
            a["is_leaf"].append(not node.children)
            a["bias"] += node.b.tolist()
            for first in range(0, len(node.b), BLOCK):
                pack_block(a, np.rint(node.W[first : first + BLOCK] / scale).astype(int))
            a["block_ptr"].append(len(a["shift"]))
        a["tree_ptr"].append(len(a["is_leaf"]))
    a["scale"] = [scale] * len(a["children"])
    types = {"children": np.int32, "buckets": np.uint32}
    types |= dict.fromkeys(("is_leaf", "shift", "records"), np.uint8)
    types |= {"bias": np.float32, "scale": np.float32}
    return {name: np.array(values, dtype=types.get(name, np.int64)) for name, values in a.items()}


def pack_block(a, W):
    used = np.flatnonzero(W.any(axis=0))
    shift = (5 * len(a["shift"]) + 2) % 17  # any value is valid; use each in turn
    while len(used) and np.bincount(used >> shift).max() > 255:
        shift -= 1
    records = bytearray()
    for bucket in range(((W.shape[1] - 1) >> shift) + 1):
        a["buckets"].append(len(records))
        features = used[used >> shift == bucket]
        n_weights = np.count_nonzero(W[:, features], axis=0)
        features = [*features[n_weights > 1].tolist(), *features[n_weights == 1].tolist()]
        low, sizes, held = bytearray(), bytearray(), bytearray()
        for f in features:
            child = np.flatnonzero(W[:, f])
            before = len(held)
            if len(child) > LISTED:
                held += np.packbits(np.isin(np.arange(BLOCK), child), bitorder="little").tobytes()
            else:
                held += bytes(child.tolist())
            held += W[child, f].astype(np.int8).tobytes()
            low += (f - (bucket << shift)).to_bytes(1 if shift <= 8 else 2, "little")
            sizes += bytes([len(held) - before] if len(child) > 1 else [])
        if features:
            records += bytes([len(features), len(sizes)]) + low + sizes + held
    a["buckets"].append(len(records))
    a["shift"].append(shift)
    a["records"] += records
    a["bucket_ptr"].append(len(a["buckets"]))
    a["record_ptr"].append(len(a["records"]))


def lattice_forest(rng, n_labels, n_features, n_trees, most_children=5, density=0.3):
    """Return a forest with weights and biases on a coarse grid: float32 sums are exact, and ties frequent."""
    forest = [random_tree(rng, np.arange(n_labels), most_children) for _ in range(n_trees)]
    for node in (node for root in forest for node in reference.breadth_first(root)):
        n = len(node.children) or len(node.labels)
        node.W = rng.integers(-8, 9, (n, n_features)) / 4 * (rng.random((n, n_features)) < density)
        node.b = rng.integers(-4, 5, n) / 4
    return forest
