"""The line that says how far long work is: on a terminal, and only there."""

import os
import sys
import time

import pytest

from afflux_hdl.progress_line import ProgressLine
from tests.support.terminal import Terminal

ERASE = "\r\x1b[K"


@pytest.fixture
def terminal():
    made = Terminal(30)
    yield made
    made.close()


def test_the_line_is_renewed_with_step_and_seconds_and_goes_away(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stdout", terminal.stream)
    with ProgressLine("board", terminal.stream, every_s=0.01) as line:
        assert terminal.read("s").startswith(f"{ERASE}board, 0 s")
        line.tell("routing")
        terminal.read(f"{ERASE}board: routing, 0 s")
        line.show("synthesis took 12 s")
        terminal.read(f"{ERASE}synthesis took 12 s\r\n{ERASE}board: routing")
    terminal.stream.write("end")
    terminal.stream.flush()
    assert terminal.read("end").endswith(f"{ERASE}end")


def test_seconds_pass_without_news(terminal):
    with ProgressLine("board", terminal.stream, every_s=0.2):
        terminal.read("board, 1 s")


def test_a_line_is_no_longer_than_the_terminal_is_wide(terminal):
    line = ProgressLine("board", terminal.stream, every_s=0.01)
    line.tell("one\x1b\ntwo " * 9)
    with line:
        shown = terminal.read("s").split(ERASE)[1]
    assert shown == "board: onetwo onetwo one, 0 s"


def test_a_terminal_that_is_gone_stops_nothing():
    terminal = Terminal(80)
    with ProgressLine("board", terminal.stream, every_s=0.01) as line:
        terminal.close()
        line.tell("on")
        time.sleep(0.05)
        with line.away():
            pass


@pytest.mark.parametrize("closed", [False, True])
def test_a_pipe_gets_the_printed_lines_alone(closed, capfd):
    reader, writer = os.pipe()
    with os.fdopen(reader) as out, os.fdopen(writer, "w") as stream:
        if closed:
            stream.close()
        with ProgressLine("board", stream, every_s=0.001) as line:
            line.tell("routing")
            line.show("synthesis took 12 s")
            time.sleep(0.02)
        stream.close()
        assert out.read() == ""
    assert capfd.readouterr().out == "synthesis took 12 s\n"


def test_a_process_without_standard_error_has_no_line(monkeypatch, capfd):
    monkeypatch.setattr(sys, "stderr", None)
    with ProgressLine("board") as line:
        line.show("done")
    assert capfd.readouterr().out == "done\n"
