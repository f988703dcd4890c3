"""Build-time parameters of an engine and the sizes that follow from them."""

from dataclasses import dataclass

from amaranth.utils import bits_for, ceil_log2

from afflux_hdl.contract import wire
from afflux_hdl.lib.residue import checked_bits
from afflux_hdl.numbers.formats import Fixed

__all__ = ["Parameters"]

PIPELINE_BEATS = 32
"""More than the cycles from a frame's last beat to the start of its merge."""


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Maxima that an engine is built for. Each job has run-time values up to these.

    Attributes:
        bus_bits: Width of the packet streams: 32, 64, 128, 256 or 512.
        workers: Most workers of a job, 1 to 64.
        lanes: Most lanes of a slot, 1 to 16.
        jobs: Most jobs at once, 1 to 256.
        slots: Slots of the pool, shared by all jobs, a power of two, 2 to 32768.
        link_timeout: Cycles for which the network may let a beat wait before its link counts as
            down, 2 to 2**24. The default is 524 µs at 250 MHz: the longest pause that a frame of
            IEEE 802.3 (annex 31B) can ask for at 100 Gbit/s, 65,535 times 512 bits, is 336 µs. At
            1 Gbit/s it is 34 ms, or 4.2 million cycles of 125 MHz.
        ports: Network ports, 1 to 8, that share the packet streams; results leave by the port by
            which a worker has joined.
        ram_output_register: 1: what 250 MHz ask for. The blocks of the slots and what has arrived
            come out of their memories through output registers, look-ahead words pass a register
            behind theirs, and the longest decisions have a cycle more. Results are a cycle later.
        build_time: When the gateware was made, in seconds since 1970, for its register.
        build_commit: First 32 bits of the commit of its sources, likewise. Both are nothing but the
            content of a memory; with 0, equal sources give equal gateware.

    Raises:
        ValueError: If a parameter is out of its range.
    """

    bus_bits: int = 512
    workers: int = wire.WORKERS_MAX
    lanes: int = wire.LANES_MAX
    jobs: int = 8
    slots: int = 512
    link_timeout: int = 1 << 17
    ports: int = 1
    ram_output_register: int = 0
    build_time: int = 0
    build_commit: int = 0

    def __post_init__(self) -> None:
        for name in ("build_time", "build_commit"):
            if not 0 <= getattr(self, name) < 1 << 32:
                raise ValueError(f"{name} must be 0 to 2**32 - 1, not {getattr(self, name)}")
        if self.bus_bits not in (32, 64, 128, 256, 512):
            raise ValueError(f"bus_bits must be one of 32, 64, 128, 256, 512, not {self.bus_bits}")
        if not 1 <= self.workers <= wire.WORKERS_MAX:
            raise ValueError(f"workers must be 1 to {wire.WORKERS_MAX}, not {self.workers}")
        if not 1 <= self.lanes <= wire.LANES_MAX:
            raise ValueError(f"lanes must be 1 to {wire.LANES_MAX}, not {self.lanes}")
        if not 1 <= self.jobs <= 256:
            raise ValueError(f"jobs must be 1 to 256, not {self.jobs}")
        if not 2 <= self.slots <= 32768 or self.slots & (self.slots - 1):
            raise ValueError(f"slots must be a power of two from 2 to 32768, not {self.slots}")

        if self.ram_output_register not in (0, 1):
            raise ValueError(f"ram_output_register must be 0 or 1, not {self.ram_output_register}")
        if not 1 <= self.ports <= 8:
            raise ValueError(f"ports must be 1 to 8, not {self.ports}")
        if not 2 <= self.link_timeout <= 1 << 24:
            raise ValueError(f"link_timeout must be 2 to 2**24, not {self.link_timeout}")

    @property
    def bus_bytes(self) -> int:
        """Bytes of a beat."""
        return self.bus_bits // 8

    @property
    def checked_bits(self) -> int:
        """Bits of a beat in memory: its words, and behind them the words' residues."""
        return checked_bits(self.bus_bits)

    @property
    def arrival_waits(self) -> int:
        """Cycles for which a beat of a block waits behind the receive buffer, 0 or 1.

        It does so for the slot memory's output register; on narrow buses for its block's exponent.
        """
        return int(self.ram_output_register or self.header_beats > 1)

    @property
    def slot_word_bits(self) -> int:
        """Bits of a block's word in the slot memory: `Fixed.slot`."""
        return Fixed().slot().size

    @property
    def slot_beat_bits(self) -> int:
        """Bits of a block's beat in the slot memory."""
        return self.words_per_beat * self.slot_word_bits

    @property
    def header_beats(self) -> int:
        """Beats of all headers together, and of the look-ahead words: 1 at 512 bits."""
        return wire.LOOKAHEAD_OFFSET // self.bus_bytes

    @property
    def block_beats(self) -> int:
        """Beats of a block: 4 at 512 bits. Always even, so that banks alternate by beat."""
        return wire.BLOCK_BYTES // self.bus_bytes

    @property
    def frame_beats_max(self) -> int:
        """Beats of the largest frame that the engine takes.

        Blocks of partial sums are twice as long as others.
        """
        return 2 * self.header_beats + self.lanes * 2 * self.block_beats

    @property
    def payload_beats_max(self) -> int:
        """Beats of the largest frame without its headers: what the receive buffer stores."""
        return self.frame_beats_max - self.header_beats

    @property
    def buffer_beats(self) -> int:
        """Beats of the receive buffer, a power of two.

        There is room for a largest frame that arrives, one that is merged, what queues up between
        them, and what arrives while a frame passes the stages before the merge.
        """
        return 1 << ceil_log2(3 * self.payload_beats_max + PIPELINE_BEATS)

    @property
    def words_per_beat(self) -> int:
        """Elements of 32 bits in a beat, and adders in the engine: 16 at 512 bits."""
        return self.bus_bits // 32

    @property
    def slot_bits(self) -> int:
        """Bits of a slot's number in the pool."""
        return ceil_log2(self.slots)

    @property
    def units_bits(self) -> int:
        """Bits of the length of a frame's blocks, in units of 256 bytes."""
        return 6

    @property
    def lane_bits(self) -> int:
        """Bits of a lane's number."""
        return max(1, ceil_log2(self.lanes))

    @property
    def worker_bits(self) -> int:
        """Bits of a worker's number."""
        return max(1, ceil_log2(self.workers))

    @property
    def job_bits(self) -> int:
        """Bits of a job's number."""
        return max(1, ceil_log2(self.jobs))

    @property
    def count_bits(self) -> int:
        """Bits of a number of workers, 0 to `workers`."""
        return bits_for(self.workers)

    @property
    def beat_bits(self) -> int:
        """Bits of a beat's number within a block."""
        return ceil_log2(self.block_beats)

    @property
    def words_beat_bits(self) -> int:
        """Bits of a beat's number within the look-ahead words: 0 at 512 bits."""
        return ceil_log2(self.header_beats)

    @property
    def offset_bits(self) -> int:
        """Bits of an offset in the receive buffer, in beats."""
        return ceil_log2(self.buffer_beats)

    @property
    def block_address_bits(self) -> int:
        """Bits of a block beat's address in the slot memory: {slot, version, lane, beat}."""
        return self.slot_bits + 1 + self.lane_bits + self.beat_bits

    @property
    def words_address_bits(self) -> int:
        """Bits of a words beat's address in the slot memory: {slot, version, beat}."""
        return self.slot_bits + 1 + self.words_beat_bits
