"""Prediction files: written atomically, read strictly."""

import gzip
import os
import stat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bonsai_xmc import metrics
from rankings import Y_TRUE, ids_of, indicator_of, problems


@pytest.fixture(params=["predictions.txt", "predictions.txt.gz"])
def path(request, tmp_path):
    return tmp_path / request.param


def write_bytes(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


class TestPredictionFiles:
    IDS = np.array([[3, 0], [2, -1], [-1, -1]], dtype=np.int32)
    SCORES = np.array([[0.1, 1e-7], [-0.123456789, 0], [0, 0]], dtype=np.float32)
    TEXT = b"3 5\n3:0.1 0:1e-07\n2:-0.123457\n\n"

    def test_written_bytes_are_reproducible(self, path):
        metrics.write_predictions(path, self.IDS, self.SCORES, 5)
        content = path.read_bytes()
        if path.suffix == ".gz":
            assert content[4:8] == bytes(4), "the time stamp in a gzip header"
        assert (gzip.decompress(content) if path.suffix == ".gz" else content) == self.TEXT
        again = path.with_name("again" + path.suffix)
        metrics.write_predictions(again, self.IDS, self.SCORES, 5)
        assert again.read_bytes() == content, "the name does not enter the bytes"

    def test_negative_zero_is_written_as_zero(self, tmp_path):
        metrics.write_predictions(tmp_path / "p", np.array([[1]]), np.array([[-0.0]]), 2)
        assert (tmp_path / "p").read_bytes() == b"1 2\n1:0\n"

    def test_predictions_survive_a_round_trip(self, path):
        metrics.write_predictions(str(path), self.IDS, self.SCORES, 5)
        ids, scores = metrics.read_predictions(str(path))
        assert (ids.dtype, scores.dtype) == (np.int32, np.float32)
        assert (ids == self.IDS).all()
        np.testing.assert_allclose(scores, self.SCORES, rtol=1e-5)

    @settings(deadline=None)
    @given(problems(), st.data())
    def test_round_trip_of_anything(self, tmp_path_factory, problem, data):
        ranking, truth, Y_train = problem
        ids, Y = ids_of(ranking, max(map(len, ranking))), indicator_of(truth, Y_train.shape[1])
        numbers = st.floats(-(2.0**100), 2.0**100, width=32)
        scores = np.array([sorted((data.draw(numbers) for _ in row), reverse=True) for row in ids])
        scores = scores.reshape(ids.shape).astype(np.float32)
        path = tmp_path_factory.mktemp("predictions") / "p.txt"
        metrics.write_predictions(path, ids, scores, Y.shape[1])
        ids_read, scores_read = metrics.read_predictions(path)
        assert (ids_read == ids).all()
        np.testing.assert_allclose(scores_read, np.where(ids < 0, 0, scores), rtol=1e-5, atol=1e-44)
        if ids.size:
            assert metrics.evaluate(Y, path, Y_train, k=1) == metrics.evaluate(Y, ids, Y_train, k=1)

    def test_more_rows_than_a_block_of_the_writer(self, tmp_path):
        ids = np.arange(10_000)[:, None]
        metrics.write_predictions(tmp_path / "p", ids, np.ones(ids.shape), 10_000)
        assert (metrics.read_predictions(tmp_path / "p")[0] == ids).all()

    def test_rows_sorted_by_label_are_ranked_by_score_and_ties_stay(self, path):
        write_bytes(path, b"2 9\r\n  1:0.5\t4:.75 8:5e-1  \r\n0:-2 7:+3.\n")
        ids, scores = metrics.read_predictions(path)
        assert ids.tolist() == [[4, 1, 8], [7, 0, -1]]
        assert scores.tolist() == [[0.75, 0.5, 0.5], [3, -2, 0]]
        assert metrics.read_predictions(path, k=1)[0].tolist() == [[4], [7]]
        assert metrics.read_predictions(path, k=7)[0].shape == (2, 3)

    def test_files_without_rows_are_read(self, path):
        write_bytes(path, b"0 5\n")
        ids, scores = metrics.read_predictions(path)
        assert ids.shape == scores.shape == (0, 0)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "line 1: the header must be 'N L'"),
            (b"1 2 3\n\n", "line 1: the header must be 'N L'"),
            (b"1 -2\n\n", "line 1: the header must be 'N L'"),
            (b"1 4294967296\n\n", "line 1: the header must be 'N L'"),
            (b"2 5\n1:1\n", "line 3: the file ends after 1 of 2 rows"),
            (b"1 5\n1:1\n\n", "line 3: more lines than the 1 rows that the header announces"),
            (b"2 5\n1:1\n1:1 2\n", "line 3: '2' is not 'label:score'"),
            (b"1 5\n1: 1\n", "line 2: '1:' is not 'label:score'"),
            (b"1 5\n-1:1\n", "line 2: '-1:1' is not 'label:score'"),
            (b"1 5\n1:nan\n", "line 2: '1:nan' is not 'label:score'"),
            (b"1 5\n1:1_0\n", "line 2: '1:1_0' is not 'label:score'"),
            (b"1 5\n1:1:1\n", "line 2: '1:1:1' is not 'label:score'"),
            (b"1 5\n\xff:1\n", "line 2: '\ufffd:1' is not 'label:score'"),
            (b"1 5\n" + b"9" * 99 + b":1\n", "line 2: '9{40}' is not 'label:score'"),
            (b"2 5\n4:1\n5:1\n", r"line 3: label id 5 is outside 0\.\.4"),
            (b"2 5\n4:1\n3:1 2:1 3:0\n", "line 3: label id 3 occurs twice"),
            (b"2 5\n4:1\n3:1e39\n", "line 3: a score is too large for a 32-bit number"),
        ],
    )
    def test_malformed_lines_are_named(self, path, content, message):
        write_bytes(path, content)
        with pytest.raises(ValueError, match=f"{path.name}, {message}"):
            metrics.read_predictions(path)

    @pytest.mark.parametrize(
        "damage",
        [lambda b: b[:-12], lambda b: b[:10] + b"\xff\xff" + b[12:]],
        ids=["truncated", "broken stream"],
    )
    def test_damaged_gzip_data_are_reported(self, tmp_path, damage):
        path = tmp_path / "p.gz"
        path.write_bytes(damage(gzip.compress(self.TEXT)))
        with pytest.raises(ValueError, match=r"p\.gz: damaged gzip data"):
            metrics.read_predictions(path)

    def test_gzip_is_recognised_by_its_content(self, tmp_path):
        (tmp_path / "packed").write_bytes(gzip.compress(self.TEXT))
        (tmp_path / "plain.gz").write_bytes(self.TEXT)
        for name in ("packed", "plain.gz"):
            assert (metrics.read_predictions(tmp_path / name)[0] == self.IDS).all()

    def test_read_predictions_rejects_k_below_one(self, path):
        write_bytes(path, self.TEXT)
        with pytest.raises(ValueError, match="k must be at least 1, got 0"):
            metrics.read_predictions(path, k=0)

    def test_shape_must_fit_the_truth(self, path):
        write_bytes(path, self.TEXT)
        with pytest.raises(ValueError, match=f"{path.name} has 3 rows, but Y_true has 4"):
            metrics.evaluate(Y_TRUE, path)
        with pytest.raises(ValueError, match=f"{path.name} has 5 labels, but Y_true has 4"):
            metrics.evaluate(Y_TRUE[:3, :4], str(path), k=1)

    @pytest.mark.parametrize(
        ("ids", "scores", "message"),
        [
            ([[1, 2]], [[1.0]], r"one shape, got \(1, 2\) and \(1, 1\)"),
            ([[1, 2]], [[1.0, np.nan]], "must be finite"),
            ([[1, 2], [1, 2]], [[1, 0.5], [0.5, 1.0]], "row 1: scores ascend"),
            ([[1, 9]], [[1, 0.5]], "row 0: label id 9 is outside"),
            ([[1, 1]], [[1, 0.5]], "row 0: label id 1 occurs twice"),
            ([[1.0, 2.0]], [[1, 0.5]], "integer label ids"),
        ],
    )
    def test_the_writer_rejects_invalid_arrays(self, tmp_path, ids, scores, message):
        with pytest.raises(ValueError, match=message):
            metrics.write_predictions(tmp_path / "p", np.array(ids), np.array(scores), 5)
        assert not os.listdir(tmp_path)

    def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_behind(self, path, monkeypatch):
        path.write_bytes(b"old")

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            metrics.write_predictions(path, self.IDS, self.SCORES, 5)
        assert os.listdir(path.parent) == [path.name]
        assert path.read_bytes() == b"old"

    def test_permissions_follow_the_umask(self, tmp_path):
        metrics.write_predictions(tmp_path / "p", self.IDS, self.SCORES, 5)
        (tmp_path / "plain").touch()
        modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("p", "plain")]
        assert modes[0] == modes[1]

    def test_missing_folder_and_missing_file(self, tmp_path):
        with pytest.raises(
            FileNotFoundError, match=r"cannot write to '.*/p': there is no folder '.*nowhere'"
        ):
            metrics.write_predictions(tmp_path / "nowhere" / "p", self.IDS, self.SCORES, 5)
        with pytest.raises(FileNotFoundError, match="nowhere"):
            metrics.evaluate(Y_TRUE, tmp_path / "nowhere")
