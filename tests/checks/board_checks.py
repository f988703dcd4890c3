"""A simulated board behind the interface of an engine, and checks at its pins.

Frames go in and out at the RGMII pins; registers are reached by management packets through the same
pins. So what drives an engine, such as a director with its golden model, drives a whole board.
"""

import random
from collections.abc import Sequence

from afflux_drivers.device.udp import UdpRegisters
from afflux_drivers.frames import FrameMaker
from afflux_hdl.contract import registers
from afflux_sim.rtl.stimulus import BACK_TO_BACK, Stimulus
from afflux_sim.rtl.verilated_board import Fault, VerilatedBoard
from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.scenarios.board_build import BOARD_BUILD, CONTROLLER
from tests.scenarios.cases import Round
from tests.scenarios.director import Actions, Director
from tests.scenarios.job_frames import ENGINE_ADDRESS, Job
from tests.support.call_transport import CallTransport

__all__ = [
    "BoardAsEngine",
    "counter_of",
    "full_rate_rounds",
]

CONTROLLER_PORT = 51_000
QUIET_S = 60e-6
LONG_S = 20e-3


class BoardAsEngine:
    """A simulated board; see the module.

    Args:
        board: The board, with `BOARD_SETTINGS`.
        gap: Bytes of silence behind each frame that goes in.

    Attributes:
        board: As given.
        registers: Its registers, by management packets.
        between: Frames that are sent between those of a play, one behind each, for as long as there
            are any.
        others: Frames that have come out and are not the engine's.
    """

    def __init__(self, board: VerilatedBoard, gap: int = 12) -> None:
        self.board, self._gap = board, gap
        self.between: list[bytes] = []
        self.others: list[bytes] = []
        self._maker = FrameMaker(
            int.from_bytes(bytes(map(int, ENGINE_ADDRESS.split("."))), "big"),
            board.settings.port,
        )
        self._mac = board.settings.mac.to_bytes(6, "big")
        # It draws its session, and sets its address.
        board.run(LONG_S, until_quiet=5e-3)
        self.registers = UdpRegisters(
            ENGINE_ADDRESS,
            board.settings.port,
            key=board.settings.key,
            timeout_s=30.0,
            transport=CallTransport(self.exchange),
        )

    def management_frame(self, payload: bytes, host: str = CONTROLLER) -> bytes:
        """Return the frame with a request to the board's management."""
        return self._mac + self._maker.frame(payload, host, CONTROLLER_PORT)[6:]

    def exchange(self, payload: bytes) -> list[bytes]:
        """Send a datagram to the management, and return those that come of it."""
        self.board.send([self.management_frame(payload)])
        return self.exchange_on_the_wire()

    def exchange_on_the_wire(self) -> list[bytes]:
        """Return the datagrams of the management that come of what is on the wire to the board."""
        self.board.run(LONG_S, until_quiet=QUIET_S)
        return self._answers(self.board.receive())

    def _answers(self, frames: Sequence[bytes]) -> list[bytes]:
        found = []
        for frame in frames:
            if frame[36:38] == CONTROLLER_PORT.to_bytes(2, "big"):
                length = int.from_bytes(frame[38:40], "big") - 8
                found.append(frame[42 : 42 + length])
            else:
                self.others.append(frame)
        return found

    def play(
        self,
        frames: Sequence[bytes],
        stimulus: Stimulus = BACK_TO_BACK,
        mac_errors: Sequence[bool] | None = None,
    ) -> list[bytes]:
        """Send frames back to back; return what the engine has sent until all is quiet again."""
        sent: list[bytes] = []
        faults: list[Fault] = []
        for number, frame in enumerate(frames):
            bad = bool(mac_errors and mac_errors[number])
            kind = Fault.SYMBOL_ERROR if number % 2 else Fault.WRONG_FCS
            sent.append(frame)
            faults.append(kind if bad else Fault.NONE)
            if self.between:
                sent.append(self.between.pop(0))
                faults.append(Fault.NONE)
        self.board.send(sent, faults=faults, gaps=[self._gap] * len(sent))
        self.board.run(LONG_S, until_quiet=QUIET_S)
        port = ENGINE_PORT.to_bytes(2, "big")
        came = self.board.receive()
        engines = [frame for frame in came if frame[23:24] == b"\x11" and frame[34:36] == port]
        self.others += [frame for frame in came if frame not in engines]
        return engines

    def read(self, address: int) -> int:
        """Value of a register."""
        return self.registers.read(address)

    def write(self, address: int, value: int) -> None:
        """Write a register."""
        self.registers.write(address, value)


def counter_of(board: BoardAsEngine, name: str) -> int:
    """Return one of the node's counters."""
    return board.read(registers.node_counter_address(name))


def full_rate_rounds(job: Job, steps: int, seed: int, *, in_order: bool = True) -> Actions[int]:
    """Play rounds of all slots, each step at once: all workers' frames back to back.

    Between them come frames that the MAC must mark as bad: spoilt copies of contributions, which
    would change the sums.

    Args:
        job: The job, which is created.
        steps: How often all slots are used.
        seed: Of what is drawn.
        in_order: Frames come in the order in which they are played. In another order sums are the
            same, but not how many of them overflow on the way.

    Returns:
        How many frames were spoilt.
    """
    choose = random.Random(seed)
    director = Director(**BOARD_BUILD)
    yield from director.configure()
    yield from director.create(job)
    spoilt = 0
    for step in range(steps):
        rounds = [Round(job, slot, step, choose) for slot in range(job.slots)]
        frames: list[bytes] = []
        errors: list[bool] = []
        for current in rounds:
            for frame in current.frames:
                if choose.random() < 0.2:
                    frames.append(frame)
                    errors.append(True)
                    spoilt += 1
                frames.append(frame)
                errors.append(False)
        results = yield from director.flood(frames, errors)
        for slot, current in enumerate(rounds):
            own = [each for each in results if each.slot == slot]
            current.check(own, range(job.workers))
    uncounted = frozenset() if in_order else frozenset({"overflows"})
    counters = yield from director.check_counters(uncounted)
    assert counters["mac_error"] == spoilt
    assert counters["receive_overflow"] == 0
    return spoilt
