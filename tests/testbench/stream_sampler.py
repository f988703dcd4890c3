"""Takes whole frames from the engine's `tx` pins, with back-pressure, and checks the stream."""

from typing import Any

from cocotb.triggers import FallingEdge, RisingEdge

from tests.testbench.pace import Pace

__all__ = ["StreamSampler"]


class StreamSampler:
    """Takes a beat in each cycle that the pace allows, for as long as `run` runs.

    The pace is consulted only while there is a beat; in between, `tx_ready` stays as it is.

    Args:
        dut: The engine.
        pace: In which cycles with a beat `tx_ready` is high.

    Attributes:
        frames: Whole frames so far; the reader removes them.
        beats: Beats of the frame that is still incomplete.
    """

    def __init__(self, dut: Any, pace: Pace) -> None:
        # Looked up once: finding a pin by its name takes a search through the design.
        self._edge, self._begins = FallingEdge(dut.clk), RisingEdge(dut.tx_valid)
        self._data, self._valid, self._ready = dut.tx_data, dut.tx_valid, dut.tx_ready
        self._keep, self._last = dut.tx_keep, dut.tx_last
        self._pace = pace
        self._bytes = len(dut.tx_data) // 8
        self.frames: list[bytes] = []
        self.beats: list[bytes] = []
        self._ready.value = 0

    async def run(self) -> None:
        """Sample for ever.

        Raises:
            AssertionError: If the stream breaks a rule: a beat that waits is changed or withdrawn,
                or `tx_keep` has holes, or is not full before the last beat.
        """
        edge, valid, pin_ready = self._edge, self._valid, self._ready
        pin_data, pin_keep, last = self._data, self._keep, self._last
        waiting: tuple[int, int, bool] | None = None
        was_ready = False
        while True:
            if not valid.value:
                assert waiting is None, "a beat was withdrawn while it waited for tx_ready"
                # Nothing happens before; the beat is there at the next falling edge.
                await self._begins
                await edge
                continue
            ready = self._pace()
            if ready != was_ready:
                pin_ready.value = was_ready = ready
            data, keep = pin_data.value.to_unsigned(), pin_keep.value.to_unsigned()
            beat = data, keep, bool(last.value)
            assert waiting in (None, beat), "a beat changed while it waited for tx_ready"
            waiting = None if ready else beat
            if ready:
                self._take(*beat)
            await edge

    def _take(self, data: int, keep: int, last: bool) -> None:
        count = keep.bit_count()
        assert keep == (1 << count) - 1, f"tx_keep {keep:#x} has holes"
        assert last or count == self._bytes, f"tx_keep {keep:#x} before the last beat"
        self.beats.append(data.to_bytes(self._bytes, "little")[:count])
        if last:
            self.frames.append(b"".join(self.beats))
            self.beats.clear()
