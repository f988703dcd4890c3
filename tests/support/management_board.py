"""A golden board's management behind a real UDP socket, with a network that can misbehave."""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator

from afflux_hdl.contract.management import Settings
from afflux_sim.golden.management import GoldenManagement

__all__ = ["KEY", "BoardOnSocket", "Registers", "settings_for"]

KEY = bytes(range(7, 23))


class Registers:
    """Registers of a node: 0x000 and 0x800 can be read only, 0x0F8 does not exist."""

    def __init__(self) -> None:
        self.values = {0x000: 0x41464C58, 0x800: 0x41464C4E}
        self.writes: list[tuple[int, int]] = []

    def read(self, address: int) -> int | None:
        return None if address == 0x0F8 else self.values.get(address, 0)

    def write(self, address: int, value: int) -> bool:
        self.writes.append((address, value))
        if address in (0x000, 0x800, 0x0F8):
            return False
        self.values[address] = value
        return True


def settings_for(address: str | None = "127.0.0.1", **changes: object) -> Settings:
    # The controller is not looked at here: the socket's kernel and this host are one.
    fields: dict[str, object] = {
        "mac": 0x02AFFA000009,
        "address": address,
        "controller": "127.0.0.2",
        "key": KEY,
        "name": "test board",
    }
    return Settings(**(fields | changes))  # type: ignore[arg-type]


class BoardOnSocket:
    """Answers at a port of the loopback interface.

    Args:
        loss: Share of datagrams lost, each way.
        twice: Share of datagrams that arrive twice.
        late: Share of datagrams that arrive after the next one.
        seed: Of these.
    """

    def __init__(
        self, *, loss: float = 0.0, twice: float = 0.0, late: float = 0.0, seed: int = 1
    ) -> None:
        self._loss, self._twice, self._late = loss, twice, late
        self._choose = random.Random(seed)
        self._held: list[tuple[bytes, tuple[str, int]]] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.02)
        self.port = self._socket.getsockname()[1]
        self.settings = settings_for(port=self.port)
        self.registers = Registers()
        self.seen: list[bytes] = []
        self.drop_answers = 0
        self.silent = False
        self.slow_s = 0.0
        self.restart()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def restart(self) -> None:
        """Reset the board."""
        self.registers.values = {0x000: 0x41464C58, 0x800: 0x41464C4E}
        self.golden = GoldenManagement(
            self.settings.to_bytes(), self._choose.getrandbits(64), self.registers
        )
        self.registers.writes.clear()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(10)
        self._socket.close()
        assert not self._thread.is_alive()

    def __enter__(self) -> "BoardOnSocket":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                payload, where = self._socket.recvfrom(2048)
            except TimeoutError:
                self._deliver_held()
                continue
            for each, source in self._as_the_network_has_it(payload, where):
                self._take(each, source)

    def _as_the_network_has_it(
        self, payload: bytes, where: tuple[str, int]
    ) -> Iterator[tuple[bytes, tuple[str, int]]]:
        if self._choose.random() < self._loss:
            return
        if self._choose.random() < self._late:
            self._held.append((payload, where))
            return
        yield payload, where
        if self._choose.random() < self._twice:
            yield payload, where
        yield from self._held
        self._held.clear()

    def _deliver_held(self) -> None:
        for payload, where in self._held:
            self._take(payload, where)
        self._held.clear()

    def _take(self, payload: bytes, where: tuple[str, int]) -> None:
        time.sleep(self.slow_s)
        self.seen.append(payload)
        self.golden.pass_time(100_000)
        resets = self.golden.resets
        verdict, answer = self.golden.judge(payload)
        self.golden.counters[verdict] += 1
        if self.drop_answers and payload[3] != 1:
            self.drop_answers -= 1
            answer = None
        if self.golden.resets != resets:
            self.restart()
        if answer is None or self.silent or self._choose.random() < self._loss:
            return
        for _ in range(1 + (self._choose.random() < self._twice)):
            with contextlib.suppress(OSError):
                self._socket.sendto(answer, where)
