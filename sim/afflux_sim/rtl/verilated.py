"""The Verilated engine: whole frames in, whole frames out, registers, and a reset.

::

    with VerilatedEngine(bus_bits=512, workers=8, lanes=16, jobs=2, slots=64) as engine:
        engine.write(address_of("local_port"), 4700)
        answers = engine.play(frames)

Built on first use, see `afflux_sim.rtl.compile.verilator` and `afflux_sim.rtl.compile.cache`.
"""

import ctypes
import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from afflux_hdl.engine.parameters import Parameters
from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import build_library
from afflux_sim.rtl.compile.verilog_cache import engine_verilog
from afflux_sim.rtl.shim_binding import ShimStatistics, ShimStimulus, ShimWrite, load
from afflux_sim.rtl.stimulus import BACK_TO_BACK, NOT_DRAINED, Stimulus
from afflux_sim.rtl.verilated_model import VerilatedModel
from afflux_sim.rtl.waves import WaveFile, Waves, WavesFailed, end_at_sigterm

__all__ = ["Statistics", "VerilatedEngine"]

_log = logging.getLogger("afflux")

_NO_END = (1 << 64) - 1


@dataclass(frozen=True)
class Statistics:
    """The traffic at the ports of a simulated engine since it was opened.

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
        ram_output_register: As in `Parameters`.
        cache_folder: Where builds are kept; `None`: see `build.cache.default_folder`.
        waves: Which waves to write, by a model that is slower and built for it; `None`: none. The
            file is complete when its window has passed, the engine is closed or this process ends,
            unless by a signal that cannot be caught.

    Attributes:
        waves_path: Where its waves go: the file that was asked for, or the next free number of it
            if another engine writes to that one; `None` without waves.

    Raises:
        ToolchainError: If Verilator or a C++ compiler is missing.
        BuildError: If the build fails; the message names the log.
        WavesFailed: If the file for its waves cannot be opened.
    """

    name = "rtl"
    kind = "engine"
    prefix = "afflux"

    waves_path: Path | None = None
    _opener: int
    _end_waves: Callable[[], object] | None = None

    def __init__(
        self,
        *,
        bus_bits: int = 512,
        workers: int = 64,
        lanes: int = 16,
        jobs: int = 8,
        slots: int = 512,
        link_timeout: int = Parameters.link_timeout,
        ram_output_register: int = 0,
        cache_folder: Path | None = None,
        waves: Waves | None = None,
    ) -> None:
        parameters = Parameters(
            bus_bits=bus_bits,
            workers=workers,
            lanes=lanes,
            jobs=jobs,
            slots=slots,
            link_timeout=link_timeout,
            ram_output_register=ram_output_register,
        )
        if waves is not None:
            waves.check()
        folder = cache_folder or default_folder()
        # Before the Verilog: a missing compiler is noticed sooner than that is made.
        find_toolchain()
        verilog = engine_verilog(folder, parameters)
        path = _library(folder, verilog, bus_bits, waves)
        self._open(load(path), path)
        self._begin_waves(waves)

    @classmethod
    def from_verilog(
        cls,
        verilog: str,
        bus_bits: int,
        *,
        cache_folder: Path | None = None,
        waves: Waves | None = None,
    ) -> Self:
        """Make an engine from the text of its Verilog: of another origin, or changed on purpose."""
        if waves is not None:
            waves.check()
        folder = cache_folder or default_folder()
        self = cls.from_library(_library(folder, verilog, bus_bits, waves))
        self._begin_waves(waves)
        return self

    @classmethod
    def from_library(cls, path: Path) -> Self:
        """Make an engine from what `build.verilator.build_library` has built."""
        self = cls.__new__(cls)
        self._open(load(path), path)
        return self

    def _begin_waves(self, waves: Waves | None) -> None:
        if waves is None:
            return
        file = WaveFile(waves)
        self.waves_path = file.path
        self._opener = os.getpid()
        end = _NO_END if waves.end is None else waves.end
        self._check(
            self._library.afflux_open_waves(self._use(), os.fsencode(file.path), waves.first, end)
        )
        # At the latest when the interpreter ends, however it does.
        self._end_waves = weakref.finalize(
            self, _complete, self._opener, self._library, self._use(), self._lock, file, waves
        )
        end_at_sigterm()

    def close(self) -> None:
        """Free the model, and complete its waves. Further calls raise `ValueError`.

        Raises:
            WavesFailed: The rest of the waves cannot be written.
        """
        try:
            if self._end_waves is not None:
                self._end_waves()
        finally:
            # The data that its writer still holds is written by the process that has opened the
            # file.
            if self.waves_path is None or self._opener == os.getpid():
                super().close()

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

        The frames that are still to be sent come with the next call: answers leave while frames
        arrive, as they do on a wire, and no cycles go to waiting for the last of them.
        """
        return self.play(frames, NOT_DRAINED)

    def run(self, cycles: int) -> list[bytes]:
        """Let `cycles` clock cycles pass without input; return the frames that came out."""
        with self._lock:
            self._check(self._library.afflux_run(self._use(), cycles))
            return self._take_frames()

    def reset(self) -> None:
        """Hold the reset pin for four cycles. Traffic in either direction is lost.

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


def _library(folder: Path, verilog: str, bus_bits: int, waves: Waves | None) -> Path:
    kind = None if waves is None else waves.format
    return build_library(find_toolchain(), folder, verilog, bus_bits, waves=kind)


def _complete(
    opener: int,
    library: ctypes.CDLL,
    handle: int,
    lock: threading.Lock,
    file: WaveFile,
    waves: Waves,
) -> None:
    """Complete the waves of the engine that has this handle.

    Raises:
        WavesFailed: They cannot be written.
    """
    if opener != os.getpid():
        return
    with lock:
        failed = library.afflux_close_waves(handle)
        cause = library.afflux_error(handle).decode() if failed else ""
        counts = ShimStatistics()
        library.afflux_statistics(handle, ctypes.byref(counts))
    if counts.cycles <= waves.first:
        file.discard()
        _log.warning(
            "no waves in %s: the engine ended after %d cycles, before cycle %d",
            file.path, counts.cycles, waves.first,
        )  # fmt: skip
        return
    file.close()
    if failed:
        raise WavesFailed(f"waves {file.path}: {cause}")


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
