"""A simulated board with two network ports, as an engine of the scenarios."""

from collections import Counter
from collections.abc import Sequence

from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.rtl.stimulus import BACK_TO_BACK, Stimulus
from afflux_sim.rtl.verilated_board import Fault, VerilatedBoard
from tests.checks.board_checks import LONG_S, QUIET_S, BoardAsEngine
from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.support.port_rules import ports_for, source_port

__all__ = ["PORTS", "TwoPortBoard"]

PORTS = 2
WORKER = 45
"""The octet of a frame that says which worker it is for."""


class TwoPortBoard(BoardAsEngine):
    """Plays frames by both ports, each end behind the one that `port_rules.port_of` says.

    Args:
        board: The board, with `BOARD_SETTINGS`.
        at_once: Both ports are full at the same time. Otherwise a frame comes when those before it
            are in, so that the engine has them in the order in which they are played.

    Attributes:
        golden: The golden engine, which knows who has joined; if it is set, it is checked by which
            ports each frame leaves.
        controller_port: By which the controller's requests come.
        linked: The ports with a link.
        seen: Frames that have left, by the set of ports that they left by.
    """

    def __init__(self, board: VerilatedBoard, *, at_once: bool) -> None:
        self._at_once = at_once
        self.golden: GoldenEngine | None = None
        self.controller_port = 0
        self.linked = list(range(PORTS))
        self.seen: Counter[frozenset[int]] = Counter()
        self._engines: list[list[bytes]] = [[], []]
        self._others: list[list[bytes]] = [[], []]
        super().__init__(board)

    def exchange(self, payload: bytes) -> list[bytes]:
        """Send a datagram to the management; its answers must leave by all linked ports."""
        self.board.send([self.management_frame(payload)], port=self.controller_port)
        self._run()
        answers = [self._answers(self._others[port]) for port in self.linked]
        assert all(each == answers[0] for each in answers)
        self._others = [[], []]
        return answers[0]

    def play(
        self,
        frames: Sequence[bytes],
        stimulus: Stimulus = BACK_TO_BACK,
        mac_errors: Sequence[bool] | None = None,
    ) -> list[bytes]:
        """Send frames; return what the engine has sent until all is quiet.

        The answers to one frame are in the order of workers, as the engine sends them. Between two
        ports there is no other order.
        """
        bad = mac_errors or [False] * len(frames)
        kinds = [Fault.SYMBOL_ERROR if n % 2 else Fault.WRONG_FCS for n in range(len(frames))]
        faults = [kind if wrong else Fault.NONE for kind, wrong in zip(kinds, bad, strict=True)]
        if self._at_once:
            for port in range(PORTS):
                own = [n for n, frame in enumerate(frames) if source_port(frame) == port]
                some = [frames[n] for n in own]
                self.board.send(some, faults=[faults[n] for n in own], port=port)
            return self._engines_frames()
        got = [] if frames else self._engines_frames()
        for frame, fault in zip(frames, faults, strict=True):
            self.board.send([frame], faults=[fault], port=source_port(frame))
            got += self._engines_frames()
        return got

    def _run(self) -> None:
        """Let the board come to rest, and sort what has come out."""
        self.board.run(LONG_S, until_quiet=QUIET_S)
        udp_port = ENGINE_PORT.to_bytes(2, "big")
        for port in range(PORTS):
            for frame in self.board.receive(port):
                # To a parent a job sends from a port of its own.
                engines = frame[23:24] == b"\x11" and frame[34:36] >= udp_port
                (self._engines if engines else self._others)[port].append(frame)

    def _engines_frames(self) -> list[bytes]:
        """Return what the engine has sent by now, each frame once, by its right ports."""
        self._run()
        sent, self._engines = self._engines, [[], []]
        return sorted(self._judged(sent), key=lambda frame: frame[WORKER])

    def _judged(self, sent: list[list[bytes]]) -> list[bytes]:
        if self.golden is None:
            return [*sent[0], *sent[1]]
        got: list[bytes] = []
        for port, frames in enumerate(sent):
            for frame in frames:
                expected = ports_for(self.golden, frame)
                assert port in expected, f"by port {port}, not {expected}: {frame[:64].hex(' ', 4)}"
                if port == min(expected):
                    got.append(frame)
                    self.seen[frozenset(expected)] += 1
                if len(expected) > 1:
                    assert sent[0].count(frame) == sent[1].count(frame), frame[:64].hex(" ", 4)
        return got
