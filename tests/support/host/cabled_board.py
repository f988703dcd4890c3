"""A simulated board with a cable from each of its ports to a host of a network, and no switch."""

import contextlib
import os
import select
import threading
from collections.abc import Iterator, Sequence

from afflux_hdl.contract.management import Settings
from afflux_sim.board.tap import Tap
from afflux_sim.rtl.verilated_board import BoardClocks, BoardParameters, VerilatedBoard
from benchmarks.network.host import Host

__all__ = ["INTERFACE", "cabled"]

INTERFACE = "board0"
"""A host's interface to the board."""

_BATCH = 16
_SLICE_S = 10e-6
_QUIET_S = 100e-6
_START_S = 5e-3
_WIRE_BYTES = 32 << 10
"""So much may wait on the wire to the board; frames beyond that wait in the kernel."""


@contextlib.contextmanager
def cabled(
    parameters: BoardParameters,
    settings: Settings,
    clocks: BoardClocks,
    hosts: Sequence[Host],
    addresses: Sequence[str],
) -> Iterator[VerilatedBoard]:
    """Yield a board that runs by itself, port n of which is at `hosts[n]`.

    There the interface `INTERFACE` has the address `addresses[n]`, with its prefix.
    """
    with contextlib.ExitStack() as held:
        board = held.enter_context(VerilatedBoard(parameters, settings, clocks))
        taps = []
        for host, address in zip(hosts, addresses, strict=True):
            with host.sockets_here():
                taps.append(held.enter_context(contextlib.closing(Tap(INTERFACE))))
            for command in (
                ("address", "add", address, "dev", INTERFACE),
                ("link", "set", INTERFACE, "up"),
            ):
                done = host.run("ip", *command)
                assert done.returncode == 0, done.stderr
        board.run(_START_S, until_quiet=_START_S)
        wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        held.callback(os.close, wake)
        stopping = threading.Event()
        failures: list[Exception] = []

        def run() -> None:
            try:
                _move_frames(board, taps, wake, stopping)
            except Exception as error:
                failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield board
        finally:
            stopping.set()
            os.eventfd_write(wake, 1)
            thread.join()
        assert not failures, failures


def _move_frames(
    board: VerilatedBoard, taps: Sequence[Tap], wake: int, stopping: threading.Event
) -> None:
    with contextlib.closing(select.epoll()) as epoll:
        for file in (wake, *(tap.fileno() for tap in taps)):
            epoll.register(file, select.EPOLLIN)
        while not stopping.is_set():
            statistics, arrived = board.statistics(), False
            if statistics.waiting < _WIRE_BYTES:
                for port, tap in enumerate(taps):
                    if frames := tap.receive(_BATCH):
                        board.send(frames, port=port)
                        arrived = True
            idle = not statistics.waiting and statistics.quiet_fs > _QUIET_S * 1e15
            if idle and not arrived:
                epoll.poll()
                continue
            board.run(_SLICE_S)
            for port, tap in enumerate(taps):
                tap.send(board.receive(port))
