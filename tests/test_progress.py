"""The progress bar."""

import io

import pytest

from bonsai_xmc._base import progress as _progress
from bonsai_xmc._base.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    now = [100.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    return now


def test_a_bar_shows_elapsed_and_remaining_time(clock):
    stream = Terminal()
    bar = ProgressBar(stream, lines=False)
    bar("trees", 0, 200)
    clock[0] += 30
    bar("trees", 50, 200)
    drawn = stream.getvalue().split("\r")
    assert drawn[1] == f"trees          [{' ' * 40}]   0 %  0:00\x1b[K"
    assert drawn[2] == f"trees          [{'=' * 10}{' ' * 30}]  25 %  0:30, 1:30 left\x1b[K"
    clock[0] += 3600
    bar("trees", 199, 200)
    assert "99 %  1:00:30, 0:18 left" in stream.getvalue()
    bar("trees", 200, 200)
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_bar_without_a_total_shows_the_time(clock):
    stream = Terminal()
    bar = ProgressBar(stream)
    bar("trees", 0, 0)
    clock[0] += 5
    bar("trees", 3, 0)
    assert stream.getvalue() == "\rtrees          0:00\x1b[K\rtrees          0:05\x1b[K"
    bar("classifiers", 0, 10)  # ends the earlier phase
    assert "\r\x1b[Ktrees          0:05\n\rclassifiers" in stream.getvalue()


def test_a_bar_fits_the_terminal(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    ProgressBar(stream)("trees", 1, 2)
    assert len(stream.getvalue().strip("\r").removesuffix("\x1b[K")) == 29


def test_elsewhere_there_are_lines_alone(clock):
    stream = io.StringIO()
    bar = ProgressBar(stream)
    for done in range(11):
        clock[0] += 1
        bar("trees", done, 10)
    bar("classifiers", 1, 10)
    bar.finish()
    bar.finish()
    assert stream.getvalue() == "trees          0:10\nclassifiers    0:00\n"
