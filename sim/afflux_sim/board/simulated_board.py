"""A Verilated node with tap devices at both of its ports, as a board has it in hardware.

It runs by itself, in a thread: what comes to one port leaves by the other, or is answered, or
summed. The host's software has its registers, nothing else. Time passes only while there is
something to do: a clock cycle takes about a microsecond of this machine's.
"""

import contextlib
import os
import select
import threading

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.board.tap import Tap
from afflux_sim.rtl.verilated_model import SimulationError
from afflux_sim.rtl.verilated_node import VerilatedNode

__all__ = ["SimulatedBoard", "open_board"]

_BATCH = 64
"""Frames that go in with one call of the simulation, from each port."""


class SimulatedBoard:
    """A board in simulation; its registers are as `afflux_drivers.registers.Registers`.

    Args:
        node: The node; closed by `close`.
        network: Its network port; closed likewise.
        host: Its host port, an interface of its host; closed likewise.
    """

    def __init__(self, node: VerilatedNode, network: Tap, host: Tap) -> None:
        self._node, self._network, self._host = node, network, host
        self._failure: Exception | None = None
        self._stopping = threading.Event()
        self._wake_file = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        for file in (network.fileno(), host.fileno(), self._wake_file):
            self._epoll.register(file, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="afflux-board", daemon=True)
        self._thread.start()

    def read(self, address: int) -> int:
        """Read a register.

        Raises:
            SimulationError: There is none, or the simulation has failed.
        """
        self._raise_failure()
        return self._node.read(address)

    def write(self, address: int, value: int) -> None:
        """Write a register.

        Raises:
            SimulationError: There is none that can be written, or the simulation has failed.
        """
        self._raise_failure()
        self._node.write(address, value)
        # The frames that this has caused go out.
        self._wake()

    def close(self) -> None:
        """Stop, and let go of the interfaces."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._wake()
        self._thread.join()
        self._epoll.close()
        os.close(self._wake_file)
        for end in (self._network, self._host, self._node):
            end.close()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise SimulationError(f"the simulated board has failed: {self._failure}")

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._wake_file, 1)

    def _run(self) -> None:
        try:
            self._move_frames()
        except Exception as error:
            # The next reader of a register is told.
            self._failure = error

    def _move_frames(self) -> None:
        network, host = self._network, self._host
        running = False
        while not self._stopping.is_set():
            from_network, from_host = network.receive(_BATCH), host.receive(_BATCH)
            arrived = bool(from_network or from_host)
            if not arrived and not running:
                self._epoll.poll()
                with contextlib.suppress(BlockingIOError):
                    running = os.eventfd_read(self._wake_file) > 0
                continue
            # While frames arrive, what is inside leaves as they go in, as on a wire; no cycle is
            # spent on waiting for it.
            to_network, to_host = self._node.play(from_network, from_host, drain=not arrived)
            running = arrived
            network.send(to_network)
            host.send(to_host)


def open_board(network: str, host: str, bus_bits: int, **sizes: int) -> tuple[SimulatedBoard, int]:
    """Make a board from the names of its two interfaces.

    Args:
        network: Name of the interface at whose other end the network port is.
        host: The same of the host port.
        bus_bits: Width of the packet streams.
        sizes: Most workers, lanes, jobs and slots of the engine.

    Returns:
        The board, and how many frames wait for it at its network port at most.

    Raises:
        OSError: If one of the interfaces cannot be had; names it.
        ToolchainError: If Verilator or a C++ compiler is missing.
        BuildError: If the build fails; the message names the log.
    """
    with contextlib.ExitStack() as held:
        # Before the node, whose first build takes half a minute.
        network_tap = held.enter_context(contextlib.closing(Tap(network)))
        host_tap = held.enter_context(contextlib.closing(Tap(host)))
        parameters = NodeParameters(engine=Parameters(bus_bits=bus_bits, **sizes))
        node = held.enter_context(contextlib.closing(VerilatedNode(parameters)))
        board = SimulatedBoard(node, network_tap, host_tap)
        held.pop_all()
    return board, network_tap.queue
