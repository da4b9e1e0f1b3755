"""The label tree: its properties, arrays that are no tree, JSON and networkx."""

import json
import pickle
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonsai_xmc._data.tree import LabelTree

#       0
#     /   \
#    1     2        levels 1, 2, 3
#  {4,7}  / \
#        3   4
#      {0}  {2,9,5}
NESTED = [[7, 4], [[0], [2, 9, 5]]]


@pytest.fixture
def tree():
    return LabelTree([0, 2, 4, 6, 7, 10], [1, 2, 4, 7, 3, 4, 0, 2, 5, 9], [0, 1, 0, 1, 1])


def chain(n):
    """A tree of n levels with one node each."""
    children = np.arange(1, n + 1)
    children[-1] = 42
    return LabelTree(np.arange(n + 1), children, np.arange(n) == n - 1)


labels_once = st.lists(st.integers(0, 10_000), min_size=1, max_size=40, unique=True)


@st.composite
def nested_trees(draw):
    """Nested lists of at least one label, built from the leaves up."""
    labels = draw(labels_once)
    nodes = [[label] for label in labels]
    while len(nodes) > 1:
        size = draw(st.integers(1, len(nodes)))
        group, nodes = nodes[:size], nodes[size:]
        flat = all(not isinstance(node[0], list) for node in group)
        merge = flat and draw(st.booleans())
        nodes.append([label for node in group for label in node] if merge else group)
    return nodes[0]


def below(node):
    return [node] if isinstance(node, int) else [label for child in node for label in below(child)]


def test_sizes_levels_and_parents_equal_hand_computed_ones(tree):
    assert (tree.n_nodes, tree.n_leaves, tree.depth, tree.n_labels) == (5, 3, 3, 6)
    assert tree.parents.tolist() == [-1, 0, 0, 2, 2]
    assert tree.levels.tolist() == [1, 2, 2, 3, 3]
    assert tree.sizes.tolist() == [6, 2, 4, 1, 3]
    assert repr(tree) == "LabelTree(nodes=5, leaves=3, depth=3, labels=6)"


def test_nodes_are_read_by_id_and_unknown_ids_rejected(tree):
    assert [tree.is_leaf(v) for v in range(5)] == [False, True, False, True, True]
    assert [tree.children(v).tolist() for v in range(5)] == [[1, 2], [], [3, 4], [], []]
    assert [tree.labels(v).tolist() for v in range(5)] == [
        [0, 2, 4, 5, 7, 9], [4, 7], [0, 2, 5, 9], [0], [2, 5, 9],
    ]  # fmt: skip
    assert tree.labels().tolist() == tree.labels(0).tolist()
    assert tree.labels().dtype == np.int32
    for v in (-1, 5):
        with pytest.raises(IndexError, match=f"there is no node {v}; this tree has the nodes 0 to 4"):
            tree.labels(v)


def test_node_views_equal_the_arrays(tree):
    root, first, second, third, fourth = tree.nodes
    assert [node.id for node in tree.nodes] == [0, 1, 2, 3, 4]
    assert len(tree.nodes) == 5
    assert tree.nodes[-1] == fourth
    assert tree.nodes[1:3] == [first, second]
    assert root.parent is None
    assert root.children == [first, second]
    assert third.parent == second
    assert (fourth.level, fourth.size, fourth.is_leaf, fourth.children) == (3, 3, True, [])
    assert fourth.labels.tolist() == [2, 5, 9]
    assert repr(second) == "Node(2, level=2, children=2, labels=4)"
    assert repr(third) == "Node(3, level=3, leaf, labels=1)"
    assert len({first, tree.nodes[1], second}) == 2
    assert first != LabelTree.from_nested([[0], [1]]).nodes[1]
    with pytest.raises(IndexError):
        tree.nodes[5]


def test_names_follow_the_labels():
    tree = LabelTree.from_nested([[0, 1], [2]], names=["ant", "bee", "cow", "unused"])
    assert tree.nodes[1].names == ["ant", "bee"]
    assert tree.to_dict() == {
        "children": [{"labels": [0, 1], "names": ["ant", "bee"]}, {"labels": [2], "names": ["cow"]}]
    }
    assert LabelTree.from_nested([[0]]).nodes[0].names == []


def test_a_root_that_is_a_leaf():
    tree = LabelTree.from_nested([3, 1])
    assert (tree.n_nodes, tree.n_leaves, tree.depth) == (1, 1, 1)
    assert tree.labels().tolist() == [1, 3]
    assert tree.children(0).tolist() == []
    assert tree.to_json() == '{"labels": [1, 3]}'


def test_a_tree_without_labels():
    tree = LabelTree([0, 0], [], [True])
    assert (tree.n_labels, tree.labels().tolist()) == (0, [])
    assert LabelTree.from_nested(tree.to_dict()) == tree


def test_any_numbering_of_the_nodes_is_taken():
    # the same tree, its nodes numbered from the last to the first
    tree = LabelTree([0, 2, 5, 6, 8, 10], [3, 4, 2, 5, 9, 0, 2, 1, 4, 7], [0, 1, 1, 0, 1])
    assert tree.levels.tolist() == [1, 3, 3, 2, 2]
    assert tree.sizes.tolist() == [6, 3, 1, 4, 2]
    assert tree.labels(3).tolist() == [0, 2, 5, 9]


def test_arrays_are_views_that_cannot_be_changed():
    ptr, children, leaf = np.array([0, 2]), np.array([1, 4], np.int32), np.array([True])
    tree = LabelTree(ptr, children, leaf)
    for mine, theirs in zip(tree.arrays.values(), (ptr, children, leaf), strict=True):
        assert np.shares_memory(mine, theirs)
        with pytest.raises(ValueError, match="read-only"):
            mine[0] = 0
    children[0] = 0  # the caller's own array stays writable


def test_labels_of_a_leaf_are_sorted_without_a_change_to_the_caller(tree):
    children = np.array([1, 2, 7, 4, 3, 4, 0, 9, 5, 2], np.int32)
    shuffled = LabelTree([0, 2, 4, 6, 7, 10], children, [0, 1, 0, 1, 1])
    assert shuffled == tree
    assert children.tolist() == [1, 2, 7, 4, 3, 4, 0, 9, 5, 2]
    assert not shuffled.arrays["children"].flags.writeable


@pytest.mark.parametrize(
    ("ptr", "children", "leaf", "message"),
    [
        ([0], [], [], "child_ptr has 1 and is_leaf 0 entries"),
        ([0, 1], [0], [True, True], "child_ptr has 2 and is_leaf 2 entries"),
        ([1, 2], [0, 1], [True], "child_ptr must increase from 0 to 2"),
        ([0, 1], [0, 1], [True], "child_ptr must increase from 0 to 2"),
        ([0, 2, 1, 3], [1, 2, 3], [0, 1, 1], "child_ptr must increase from 0 to 3"),
        ([0, 0], [], [False], "node 0 is no leaf, but there are no other nodes"),
        ([0, 1], [1], [False], "node 0 is no leaf, but there are no other nodes"),
        ([0, 2, 2, 3], [1, 2, 0], [0, 1, 1], "leaf 1 has no labels"),
        ([0, 2, 2, 3], [1, 2, 0], [0, 0, 1], "inner node 1 has no children"),
        ([0, 1, 2], [2, 0], [0, 1], "node 0 has the child 2; children are nodes 1 to 1"),
        ([0, 1, 2], [-1, 0], [0, 1], "node 0 has the child -1"),
        ([0, 1, 2], [0, 0], [0, 1], "node 0 has the child 0"),
        ([0, 2, 3, 4], [1, 2, 2, 7], [0, 0, 1], "node 2 is a child of node 0 and of node 1"),
        ([0, 1, 2, 3], [1, 7, 8], [0, 1, 1], "node 2 is the child of no node"),
        ([0, 1, 2, 3, 4], [1, 7, 3, 2], [0, 1, 0, 0], "node [23] lies on a cycle"),
        ([0, 2, 3, 4], [1, 2, 5, 5], [0, 1, 1], "label 5 is in leaf 1 and in leaf 2"),
        ([0, 2], [5, 5], [True], "label 5 is in leaf 0 and in leaf 0"),
        ([0, 2], [5, -2], [True], "leaf 0 has the label -2; label ids begin at 0"),
        ([0.0, 1.0], [1], [True], "child_ptr must be a one-dimensional array of integers, not float64"),
        ([[0, 1]], [1], [True], "child_ptr must be a one-dimensional"),
        ([0, 1], [1 << 31], [True], "children goes from 2147483648 to 2147483648; allowed is"),
        ([0, 1], [1], [2], "is_leaf goes from 2 to 2; allowed is 0 to 1"),
    ],
)
def test_arrays_that_are_no_tree(ptr, children, leaf, message):
    with pytest.raises(ValueError, match=message):
        LabelTree(ptr, children, leaf)


def test_labels_without_names_are_refused():
    with pytest.raises(ValueError, match="label 2 has no name: it is not among the 2 given"):
        LabelTree.from_nested([[0], [2]], names=["a", "b"])
    with pytest.raises(ValueError, match="label 1 has no name"):
        LabelTree.from_nested([[0], [1]], names={0: "a", 2: "c"})


def test_nested_lists_tuples_and_arrays_give_the_same_tree(tree):
    assert LabelTree.from_nested(NESTED) == tree
    assert LabelTree.from_nested(((7, 4), [(0,), np.array([2, 9, 5])])) == tree
    assert LabelTree.from_nested([np.array([[1, 2], [3, 4]])]).sizes.tolist() == [4, 4, 2, 2]


def test_nested_names_are_numbered_by_the_given_order():
    assert LabelTree.from_nested([["oak"], ["ant", "elm"]]).to_dict() == {
        "children": [{"labels": [2], "names": ["oak"]}, {"labels": [0, 1], "names": ["ant", "elm"]}]
    }
    tree = LabelTree.from_nested([["oak"], ["ant", "elm"]], names=["elm", "yew", "oak", "ant"])
    assert [tree.labels(v).tolist() for v in (1, 2)] == [[2], [0, 3]]
    assert LabelTree.from_nested([["b"], ["c"]], names={7: "b", 3: "c"}).labels().tolist() == [3, 7]


@pytest.mark.parametrize(
    ("nested", "message"),
    [
        (
            [[0, 1], [2, [3, 4]]],
            r"the node at \[1\] mixes labels \(2\) with lists; put the labels into a list",
        ),
        ([0, [1]], r"the tree mixes labels \(0\) with lists"),
        ([[0], []], "leaf 2 has no labels; leave it out"),
        (
            [[0], [[1], [1.5]]],
            r"the node at \[1\]\[1\] has the label 1.5; labels are ids, from 0 to 2147483647",
        ),
        ([[True]], r"the node at \[0\] has the label True"),
        ([[None]], "has the label None"),
        ([[-1]], "has the label -1"),
        ([[1 << 31]], "has the label 2147483648"),
        ([["a"], [1]], r"the tree mixes label names \('a'\) with label ids \(1\)"),
        ([[0], [0]], "label 0 is in leaf 1 and in leaf 2"),
        ("abc", "the tree is of type str, not a list"),
        (7, "the tree is of type int"),
        ({}, 'the tree needs either "children" or "labels"'),
        ({"labels": [1], "children": []}, 'the tree needs either "children" or "labels"'),
        ({"children": [{"labels": 3}]}, r"the node at \[0\] is of type int, not a list"),
        ({"children": [0, 1]}, 'the tree has no nodes under "children"'),
        ({"children": []}, 'the tree has no nodes under "children"'),
        ({"labels": [[0]]}, 'the tree has no labels under "labels"'),
        ({"labels": [0, 1], "names": ["a"]}, "the tree has 2 labels, but 1 names"),
        ({"labels": [0], "names": "a"}, 'something other than a list of texts under "names"'),
        ({"labels": [0], "names": [1]}, 'something other than a list of texts under "names"'),
        ({"labels": ["a"], "names": ["a"]}, "has names, but the label 'a' is a name already"),
        ({"children": [{"labels": [0], "names": ["a"]}, {"labels": [1]}]}, "label 1 has no name"),
    ],
)
def test_nested_trees_that_are_none(nested, message):
    with pytest.raises(ValueError, match=message):
        LabelTree.from_nested(nested)
    if isinstance(nested, list | dict):
        with pytest.raises(ValueError, match=f"^JSON text: .*{message}"):
            LabelTree.from_json(json.dumps(nested))


def test_an_unknown_name_is_reported():
    with pytest.raises(ValueError, match="the tree holds the label 'elk', which is not among the 2 names"):
        LabelTree.from_nested([["ant"], ["elk"]], names=["ant", "bee"])


def test_the_place_of_an_error_deep_below_is_cut_short():
    nested = [0, [1]]
    for _ in range(1000):
        nested = [nested]
    with pytest.raises(ValueError, match=r"^the node at …(\[0\]){20} mixes"):
        LabelTree.from_nested(nested)


@given(nested_trees())
def test_nested_trees_keep_their_shape(nested):
    tree = LabelTree.from_nested(nested)
    assert tree.labels().tolist() == sorted(below(nested))
    queue = [nested]
    for node, expected in zip(tree.nodes, queue, strict=True):  # the queue grows: breadth-first
        assert node.labels.tolist() == sorted(below(expected))
        assert node.size == len(below(expected))
        assert node.is_leaf == isinstance(expected[0], int)
        if not node.is_leaf:
            assert len(node.children) == len(expected)
            assert {child.parent for child in node.children} == {node}
            queue.extend(expected)


@given(nested_trees(), st.sampled_from([None, 0, 1, 4]))
def test_any_tree_comes_back_from_its_json(nested, indent):
    tree = LabelTree.from_nested(nested)
    assert LabelTree(**tree.arrays) == tree
    assert LabelTree.from_nested(tree.to_dict()) == tree
    text = tree.to_json(indent=indent)
    assert json.loads(text) == tree.to_dict()
    assert LabelTree.from_json(text) == tree
    assert pickle.loads(pickle.dumps(tree)) == tree


def test_json_is_that_of_the_nested_dictionaries(tree):
    assert tree.to_json() == json.dumps(tree.to_dict())
    assert tree.to_json(indent=2) == json.dumps(tree.to_dict(), indent=2)


def test_json_files_are_written_and_read(tmp_path):
    tree = LabelTree.from_nested([["Äpfel"], ["中文", 'a"b']])
    path = tmp_path / "tree.json"
    assert path.write_text("nothing") and tree.to_json(path) == tree.to_json()
    assert "中文" in path.read_text("utf-8")
    assert LabelTree.from_json(path) == tree
    assert LabelTree.from_json(str(path)) == tree
    path.write_text("[[0, 1], [2]]")
    assert LabelTree.from_json(path) == LabelTree.from_nested([[0, 1], [2]])
    path.write_text("[[0, 1], [2")
    with pytest.raises(ValueError, match=r"tree\.json: Expecting"):
        LabelTree.from_json(path)
    with pytest.raises(FileNotFoundError, match="missing"):
        LabelTree.from_json(tmp_path / "missing")


def test_a_chain_of_many_levels():
    n = 100_000
    tree = chain(n)
    assert (tree.depth, tree.n_nodes, tree.n_leaves) == (n, n, 1)
    assert tree.levels.tolist() == list(range(1, n + 1))
    assert tree.sizes.tolist() == [1] * n
    assert tree.labels(n // 2).tolist() == [42]
    assert LabelTree.from_nested(tree.to_dict()) == tree
    with pytest.raises(ValueError, match="a tree of 100,000 levels is too deep for JSON"):
        tree.to_json()
    with pytest.raises(ValueError, match="JSON text: lists are nested too deeply"):
        LabelTree.from_json("[" * n + "42" + "]" * n)
    assert tree.summary().splitlines()[-1] == "… and 99,970 more levels"
    assert tree.to_networkx().number_of_edges() == n - 1


@pytest.mark.parametrize("n", range(1, 20))
def test_chains_of_every_small_length(n):
    assert chain(n).levels.tolist() == list(range(1, n + 1))


@pytest.mark.parametrize("end", ["", "]", "] x", "]]]", ", ]", ",", " 3]", '{"labels": [1]'])
def test_deep_json_that_is_malformed(end):
    depth = 2 * sys.getrecursionlimit()
    with pytest.raises(ValueError, match="JSON text: "):
        LabelTree.from_json("[" * depth + "42" + "]" * (depth - 2) + end)
    with pytest.raises(ValueError, match="JSON text: "):
        LabelTree.from_json('{"children": [' * depth + '{"labels": [42]}' + "]}" * (depth - 2) + end)


def test_networkx_graphs_hold_every_node(tree):
    networkx = pytest.importorskip("networkx")
    graph = tree.to_networkx()
    assert sorted(graph.edges) == [(0, 1), (0, 2), (2, 3), (2, 4)]
    assert networkx.is_arborescence(graph)
    assert graph.nodes[2] == {"level": 2, "size": 4, "is_leaf": False}
    assert graph.nodes[4] == {"level": 3, "size": 3, "is_leaf": True, "labels": [2, 5, 9]}
    named = LabelTree.from_nested([["a"], ["b"]]).to_networkx()
    assert named.nodes[2]["names"] == ["b"]
    networkx.node_link_data(graph)


def test_without_networkx_the_extra_is_named(tree, monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(ImportError, match=r"bonsai-xmc\[graph\]"):
        tree.to_networkx()


def test_summary_counts_nodes_by_level(tree):
    assert tree.summary().splitlines() == [
        "level  nodes  leaves  children min/median/max  labels min/median/max",
        "    1      1       0                    2/2/2                  6/6/6",
        "    2      2       1                    2/2/2                  2/3/4",
        "    3      2       2                        –                  1/2/3",
    ]


def test_equality_covers_shape_labels_and_names(tree):
    assert tree == LabelTree.from_nested(NESTED)
    assert tree != LabelTree.from_nested([[4, 7], [[0], [2, 9, 6]]])
    assert tree != LabelTree.from_nested([[[0], [2, 9, 5]], [4, 7]])
    assert tree != LabelTree.from_nested(NESTED, names="abcdefghij")
    assert LabelTree.from_nested(NESTED, names="abcdefghij") == LabelTree.from_nested(NESTED, "abcdefghijXYZ")
    assert LabelTree.from_nested(NESTED, names="abcdefghij") != LabelTree.from_nested(NESTED, "Abcdefghij")
    assert tree != NESTED
    with pytest.raises(TypeError, match="unhashable"):
        hash(tree)


def test_trees_of_many_labels_are_built():
    labels = np.random.default_rng(0).permutation(200_000)
    groups = [part.reshape(50, 40) for part in labels.reshape(100, 2000)]
    tree = LabelTree.from_nested(groups)
    assert (tree.n_nodes, tree.n_labels, tree.depth) == (1 + 100 + 5000, 200_000, 3)
    np.testing.assert_array_equal(tree.labels(), np.arange(200_000))
    np.testing.assert_array_equal(tree.labels(7), np.sort(groups[6].ravel()))
