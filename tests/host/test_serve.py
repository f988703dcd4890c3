"""The command `afflux`: its one line, its counters, its end."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from typing import cast

import numpy as np
import pytest

from afflux.commands import cli, serve
from afflux_drivers.aggregator.drop_log import DropLog
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job
from afflux_drivers.registers import Registers
from afflux_hdl.contract import registers, wire
from tests.scenarios.shipped_builds import SHIPPED, SOFTWARE, build_of
from tests.support.drivers.ranks import Ranks
from tests.support.host.aggregators import closed_port
from tests.support.host.ranks import run_ranks, values
from tests.support.host.scripts import alive
from tests.support.host.serving import finish, start

READY = re.compile(r"afflux: soft engine on (udp://127\.0\.0\.1:(\d+))\n")


def reduce_once(rank, size):
    import torch
    import torch.distributed as dist

    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    return tensor[0].item()


def test_serves_and_ends_cleanly():
    port = closed_port()
    process, line = start("--port", str(port))
    try:
        match = READY.fullmatch(line)
        assert match, line
        assert int(match[2]) == port
        environment = {"AFFLUX_AGGREGATOR": match[1]}
        assert values(run_ranks(reduce_once, 2, environment=environment)) == [2, 2]
        counters = subprocess.run(
            [sys.executable, "-m", "afflux.commands.cli", "counters", match[1]],
            check=False,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert counters.returncode == 0
        numbers = dict(row.split() for row in counters.stdout.splitlines())
        # A rank that has waited long for its answer asks again.
        assert int(numbers["joins"]) >= 2
        assert int(numbers["rounds"]) >= 1
    finally:
        process.send_signal(signal.SIGTERM)
        status = finish(process)
    assert status == 0


def test_ctrl_c_ends_it_cleanly():
    process, _ = start("--port", str(closed_port()))
    process.send_signal(signal.SIGINT)
    assert finish(process) == 0


def test_signals_that_interrupt_each_other_end_it_all_the_same():
    for _ in range(5):
        process, _ = start("--port", "0", program=["-P", serve.__file__])
        for _ in range(5000):
            process.send_signal(signal.SIGTERM)
        assert finish(process) == 0


def test_a_stopped_aggregator_is_not_asked_all_at_once():
    """It has no processor for 0.3 s while 32 slots of two ranks wait: few probes, right sums."""
    process, line = start("--port", "0")
    try:
        port = int(READY.fullmatch(line)[2])
        with (
            closing(create_job(("127.0.0.1", port), 2, 5, 32, 10.0)) as lease,
            Ranks(lease.ticket) as ranks,
        ):
            tensors = [np.full(64 * 5 * 32 * 40, rank + 1, np.int32) for rank in range(2)]
            for stopped in (False, True):
                probes = -_probes(ranks)
                if stopped:
                    process.send_signal(signal.SIGSTOP)
                    timer = threading.Timer(0.3, process.send_signal, (signal.SIGCONT,))
                    timer.start()
                results = ranks.all_reduce(tensors, wire.Dtype.INT32, Reduction.SUM)
                assert all((result == 3).all() for result in results)
                probes += _probes(ranks)
            timer.join()
            # Each slot of both would ask six times.
            assert probes < 100
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        finish(process)


def _probes(ranks: Ranks) -> int:
    return sum(worker.statistics.probes for worker in ranks.workers)


def test_a_taken_port_is_a_clear_error():
    first, line = start("--port", "0")
    try:
        port = READY.fullmatch(line)[2]
        second, said = start("--port", port)
        assert finish(second) == 1
        assert said == f"afflux: cannot serve: 127.0.0.1:{port}: Address already in use\n"
    finally:
        first.terminate()
        finish(first)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        # The C library takes it modulo 65536, and would serve on 4464.
        ("soft --port 70000", "--port: '70000' is not a whole number from 0 to 65535"),
        ("soft --port -1", "--port: '-1' is not a whole number from 0 to 65535"),
        ("rtl --slots none", "--slots: 'none' is not a whole number of at least 1"),
        ("device udp://127.0.0.9 --queue 0", "--queue: '0' is not a whole number of at least 1"),
        ("device board", "'board': this is not the URL of a device; expected udp://ADDRESS"),
        ("node --host-tap lo", "arguments are required: --network-tap"),
        ("hard", "invalid choice: 'hard' (choose from "),
        # Nor what would be passed over without a word.
        ("device udp://127.0.0.9 --threads 2", "--threads 2: this engine has no such option; it"),
        ("soft --bus-bits 32", "it is one of `afflux serve rtl` and `afflux serve node`"),
        ("soft --thread 2 --treads 2", "--treads 2: this engine has no such option; --help lists"),
    ],
)
def test_words_that_cannot_be_are_named(capsys, words, wanted):
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve", *words.split()])
    assert ended.value.code == 2
    assert wanted in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--waves", "x.gz"], "waves 'x.gz': the name must end with .fst or"),
        (["--waves", "x.vcd", "--waves-window", "9"], "waves_window '9': "),
        (["--waves-window", "9:"], "--waves-window 9:: name the file too, by --waves FILE"),
        (["--waves", "/no/where.vcd"], "waves /no/where.vcd: No such file or directory"),
    ],
)
def test_waves_that_cannot_be_are_named(words, wanted):
    process, said = start("--port", "0", *words, engine=["rtl"], program=(serve.__file__,))
    assert finish(process) == 1
    assert said.startswith(f"afflux: cannot serve: {wanted}")


def test_without_an_engine_each_has_its_line(capsys):
    assert cli.main(["serve"]) == 2
    lines = capsys.readouterr().err.splitlines()
    engines = lines[lines.index("  ENGINE") + 1 :]
    names = ["streams", "soft", "rtl", "node", "board", "device"]
    assert [line.split()[0] for line in engines] == names
    assert all(len(line.split()) > 2 for line in engines)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("--port 9 --engine rtl --bus-bits 32", "rtl --port 9 --bus-bits 32"),
        ("--device=udp://10.0.0.9 --engine soft --queue 9", "device udp://10.0.0.9 --queue 9"),
        ("--no-secret", "soft --no-secret"),
    ],
)
def test_the_spelling_before_still_works_and_names_the_new_one(monkeypatch, capsys, before, now):
    monkeypatch.setattr(serve, "run", lambda arguments: " ".join(arguments.words) != now)
    assert cli.main(["serve", *before.split()]) == 0
    assert capsys.readouterr().err.endswith(f" takes this as: afflux serve {now}\n")


@pytest.mark.parametrize("command", ["counters", "info"])
@pytest.mark.parametrize("time_s", ["0", "-1", "nan", "inf", "soon"])
def test_times_that_cannot_be_are_refused(capsys, command, time_s):
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "udp://127.0.0.1:4700", f"--timeout={time_s}"])
    assert ended.value.code == 2
    assert f"argument --timeout: '{time_s}' is not a number of seconds" in capsys.readouterr().err


def test_counters_of_nobody():
    port = closed_port()
    done = subprocess.run(
        [sys.executable, "-m", "afflux.commands.cli", "counters", f"udp://127.0.0.1:{port}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_ends_when_its_owner_closes_the_pipe():
    process, _ = start("--port", "0", "--owner", str(os.getpid()), stdin=subprocess.PIPE)
    # Ctrl-C in a terminal reaches it too, and must not end it.
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert alive(process.pid)
    process.stdin.close()
    assert finish(process) == 0


def test_does_not_start_for_another_owner():
    process, line = start("--port", "0", "--owner", "1", stdin=subprocess.PIPE)
    process.stdin.close()
    assert finish(process) == 0
    assert line == ""


def test_missing_packages_are_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "afflux_sim.rtl.verilated", None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert serve.main(["rtl", "--port", "0"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("afflux: cannot serve: ")
    assert "pip install 'afflux[rtl]'" in said


@pytest.mark.parametrize(
    ("engine", "filled"),
    [("soft", SOFTWARE), *((rtl, build_of(SHIPPED["default"])) for rtl in ("rtl", "node"))],
)
def test_sizes_are_those_that_tests_fill_to_their_edges(engine, filled):
    assert serve.SIZES[engine] == filled


def test_the_log_says_what_comes_and_goes_and_what_is_dropped():
    process, line = start("--port", "0")
    port = int(READY.fullmatch(line)[2])
    lease = create_job(("127.0.0.1", port), 2, 4, 8, 5.0)
    lease.close()
    # Not closed: its process just ends.
    program = (
        "import os, sys; from afflux_drivers.control.client import create_job; "
        "lease = create_job(('127.0.0.1', int(sys.argv[1])), 3, 4, 8, 5.0); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", program, str(port)], check=False, timeout=20)
    said = [process.stderr.readline() for _ in range(5)]
    process.send_signal(signal.SIGTERM)
    said.append(process.stderr.readline())
    assert finish(process) == 0
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} "
    for line, wanted in zip(
        said,
        (
            r"INFO job 0 of peer 127\.0\.0\.1 begins: 2 workers, 4 lanes, 8 slots",
            r"INFO job 0 of peer 127\.0\.0\.1 is over",
            r"INFO job 0 of peer 127\.0\.0\.1 begins: 3 workers, 4 lanes, 8 slots",
            r"WARNING peer 127\.0\.0\.1 has ended without closing job 0: its rank 0 has died",
            r"INFO job 0 of peer 127\.0\.0\.1 is over",
            r"INFO the aggregator has ended: SIGTERM has come",
        ),
        strict=True,
    ):
        assert re.match(when + wanted, line), line


def test_drops_are_logged_by_cause_and_not_too_often(caplog):
    counts = dict.fromkeys((each.name for each in registers.COUNTERS), 0)

    class Counting:
        def write(self, address, value):
            pytest.fail("counters are only read")

        def close(self):
            pass

        def read(self, address):
            name = next(
                (name for name in counts if registers.counter_address(name) == address), None
            )
            return 0 if name is None else counts[name]

    drops = DropLog(cast(Registers, Counting()))
    drops.look(100.0)
    counts |= {"bad_key": 3, "receive_overflow": 2, "duplicates": 7}
    drops.look(105.0)
    assert caplog.messages == []
    drops.look(110.0)
    drops.look(125.0)
    (said,) = caplog.messages
    assert "3 bad_key (key is not the job's)" in said
    assert "2 receive_overflow" in said
    assert "duplicates" not in said
