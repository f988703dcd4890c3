"""The Verilated engine: whole frames in, whole frames out, registers, and a reset.

::

    with VerilatedEngine(bus_bits=512, workers=8, lanes=16, jobs=2, slots=64) as engine:
        engine.write(address_of("local_port"), 4700)
        answers = engine.play(frames)

Built on first use, see `afflux_sim.rtl.build.verilator` and `afflux_sim.rtl.build.cache`.
"""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from afflux_hdl.engine.parameters import Parameters
from afflux_sim.rtl.build.cache import default_folder
from afflux_sim.rtl.build.toolchain import find_toolchain
from afflux_sim.rtl.build.verilator import build_library
from afflux_sim.rtl.build.verilog_cache import engine_verilog
from afflux_sim.rtl.shim_binding import ShimStatistics, ShimStimulus, ShimWrite, load
from afflux_sim.rtl.stimulus import BACK_TO_BACK, NOT_DRAINED, Stimulus
from afflux_sim.rtl.verilated_model import VerilatedModel

__all__ = ["Statistics", "VerilatedEngine"]


@dataclass(frozen=True)
class Statistics:
    """What has passed the ports of a simulated engine since it was opened.

    Attributes:
        cycles: Clock cycles.
        frames_in: Frames driven into `rx`.
        frames_out: Frames taken from `tx`.
        beats_in: Beats driven.
        beats_out: Beats taken.
        receive_stalls: Cycles in which `rx_ready` was low while a beat was offered. The engine
            promises that there are none.
        digest: A number that depends on every output pin in every cycle since the engine was
            opened, but for the data of beats that are not valid. Equal engines that are driven
            alike have equal digests.
        frames_cut: Frames that ended with `tx_error`, which are not among those taken.
        long_waits: Times that a beat has waited on `tx` for 256 cycles in a row.
    """

    cycles: int
    frames_in: int
    frames_out: int
    beats_in: int
    beats_out: int
    receive_stalls: int
    digest: int
    frames_cut: int
    long_waits: int


class VerilatedEngine(VerilatedModel):
    """An engine in simulation, driven by whole frames and registers.

    Args:
        bus_bits: Width of the packet streams.
        workers: Most workers of a job.
        lanes: Most lanes of a slot.
        jobs: Most jobs at once.
        slots: Slots of the pool, shared by all jobs.
        link_timeout: Cycles for which `tx` may make a beat wait before the link counts as down.
        cache_folder: Where builds are kept; `None`: see `build.cache.default_folder`.

    Raises:
        ToolchainError: If Verilator or a C++ compiler is missing.
        BuildError: If the build fails; the message names the log.
    """

    name = "rtl"
    kind = "engine"
    prefix = "afflux"

    def __init__(
        self,
        *,
        bus_bits: int = 512,
        workers: int = 64,
        lanes: int = 16,
        jobs: int = 8,
        slots: int = 512,
        link_timeout: int = Parameters.link_timeout,
        cache_folder: Path | None = None,
    ) -> None:
        parameters = Parameters(
            bus_bits=bus_bits,
            workers=workers,
            lanes=lanes,
            jobs=jobs,
            slots=slots,
            link_timeout=link_timeout,
        )
        folder = cache_folder or default_folder()
        # Before the Verilog: a missing compiler is noticed sooner than that is made.
        find_toolchain()
        verilog = engine_verilog(folder, parameters)
        path = build_library(find_toolchain(), folder, verilog, bus_bits)
        self._open(load(path), path)

    @classmethod
    def from_verilog(cls, verilog: str, bus_bits: int, *, cache_folder: Path | None = None) -> Self:
        """Make an engine from the text of its Verilog: of another origin, or changed on purpose."""
        folder = cache_folder or default_folder()
        return cls.from_library(build_library(find_toolchain(), folder, verilog, bus_bits))

    @classmethod
    def from_library(cls, path: Path) -> Self:
        """Make an engine from what `build.verilator.build_library` has built."""
        self = cls.__new__(cls)
        self._open(load(path), path)
        return self

    def play(
        self,
        frames: Sequence[bytes],
        stimulus: Stimulus = BACK_TO_BACK,
        mac_errors: Sequence[bool] | None = None,
        writes: Sequence[tuple[int, int, int]] = (),
    ) -> list[bytes]:
        """Drive `frames` into the engine and return those that it sent, in order.

        Args:
            frames: Ethernet frames of at least one byte, without frame check sequence.
            stimulus: Pace and end.
            mac_errors: For each frame, whether the MAC marks it as bad; `None`: none is.
            writes: Writes to registers meanwhile, in order: from which cycle of the play on, the
                address, the value. The play does not end before the last of them.

        Raises:
            ValueError: If a frame is empty, or `mac_errors` has another length than `frames`.
            SimulationError: If the engine does not become idle, refuses a write, or breaks the
                rules of its output stream. Nothing useful can be done with the instance after that.
        """
        data = b"".join(frames)
        lengths = (ctypes.c_uint32 * len(frames))(*map(len, frames))
        if 0 in lengths:
            raise ValueError("an empty frame cannot be driven: it has no last beat")
        if mac_errors is not None and len(mac_errors) != len(frames):
            raise ValueError(f"{len(mac_errors)} mac_errors for {len(frames)} frames")
        errors = None if mac_errors is None else bytes(mac_errors)
        how = _shim_stimulus(stimulus, len(data))
        with self._lock:
            handle = self._use()
            if writes:
                scheduled = (ShimWrite * len(writes))(*(ShimWrite(*write) for write in writes))
                self._library.afflux_schedule(handle, scheduled, len(writes))
            status = self._library.afflux_play(
                handle, data, lengths, errors, len(frames), ctypes.byref(how)
            )
            self._check(status)
            return self._take_frames()

    def feed(self, frames: Sequence[bytes]) -> list[bytes]:
        """Drive `frames` in back to back and return what the engine has sent meanwhile.

        What it has still to send comes with the next call: answers leave while frames arrive, as
        they do on a wire, and no cycles go to waiting for the last of them.
        """
        return self.play(frames, NOT_DRAINED)

    def run(self, cycles: int) -> list[bytes]:
        """Let `cycles` clock cycles pass without input; return the frames that came out."""
        with self._lock:
            self._check(self._library.afflux_run(self._use(), cycles))
            return self._take_frames()

    def reset(self) -> None:
        """Hold the reset pin for four cycles. What was under way in either direction is lost.

        Statistics go on.
        """
        with self._lock:
            self._check(self._library.afflux_reset(self._use()))

    @property
    def cycles(self) -> int:
        """Clock cycles since the engine was opened."""
        return self.statistics().cycles

    def statistics(self) -> Statistics:
        """Return what has passed the ports so far."""
        counts = ShimStatistics()
        with self._lock:
            self._library.afflux_statistics(self._use(), ctypes.byref(counts))
        return Statistics(**{name: getattr(counts, name) for name, _ in counts._fields_})

    def write_coverage(self, path: Path) -> None:
        """Write which parts of the model have run so far, as `verilator_coverage` reads it.

        Raises:
            ValueError: If the library was built without `coverage`.
        """
        with self._lock:
            handle = self._use()
            if not hasattr(self._library, "afflux_write_coverage"):
                raise ValueError("this library was built without coverage")
            self._check(self._library.afflux_write_coverage(handle, os.fsencode(path)))


def _shim_stimulus(stimulus: Stimulus, data_bytes: int) -> ShimStimulus:
    limit = stimulus.max_cycles
    if limit is None:
        # Each byte may be sent to 64 workers, over a bus of at least four bytes, with as few ready
        # and offered cycles as the shares allow; ten times over. A hang still shows in seconds,
        # because large plays are rare.
        slowness = 1 / max(stimulus.ready_share, 0.01) + 1 / (1 - stimulus.gap_share)
        limit = int(10 * (100_000 + 16 * data_bytes) * slowness)
    return ShimStimulus(
        seed=stimulus.seed & (2**64 - 1),
        ready_share=round(stimulus.ready_share * 2**32),
        gap_share=min(round(stimulus.gap_share * 2**32), 2**32 - 1),
        max_cycles=limit,
        drain=stimulus.drain,
        reset_at=stimulus.reset_at,
    )
