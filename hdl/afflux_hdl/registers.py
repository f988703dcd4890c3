"""The register map: control of the engine, job table, counters.

One table makes the gateware, the drivers and the reference page. Plain Python: it imports neither
amaranth nor torch nor numpy. Registers are 32 bits wide; addresses are in bytes.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum

__all__ = [
    "COUNTERS",
    "COUNTER_BASE",
    "FRAME_COUNTERS",
    "IDENTITY",
    "REGISTERS",
    "Access",
    "Command",
    "Counter",
    "Register",
    "address_of",
    "counter_address",
]

IDENTITY = 0x4146_4C58
"""Value of the identity register: "AFLX"."""


class Access(Enum):
    """Who may write a register."""

    READ_ONLY = "ro"
    READ_WRITE = "rw"


class Command(IntEnum):
    """Values of the job_command register. They act on the job that job_index selects."""

    CREATE = 1
    DESTROY = 2


@dataclass(frozen=True)
class Register:
    """One 32-bit register.

    Attributes:
        name: Name used by gateware, drivers and documents alike.
        address: Byte address.
        width: Bits in use, from bit 0; the others read as zero.
        access: Who may write it.
        meaning: One line for the reference page.
    """

    name: str
    address: int
    width: int
    access: Access
    meaning: str


RO, RW = Access.READ_ONLY, Access.READ_WRITE

REGISTERS = (
    Register("identity", 0x000, 32, RO, 'constant 0x41464C58, "AFLX"'),
    Register("protocol", 0x004, 8, RO, "protocol version that the engine speaks"),
    Register("build_workers", 0x008, 8, RO, "most workers of a job"),
    Register("build_lanes", 0x00C, 8, RO, "most lanes of a slot"),
    Register("build_jobs", 0x010, 9, RO, "most jobs at once"),
    Register("build_slots", 0x014, 17, RO, "slots of the pool, shared by all jobs"),
    Register("build_bus_bits", 0x018, 16, RO, "bits of the packet streams"),
    Register("local_mac_low", 0x020, 32, RW, "engine's MAC address, last four octets"),
    Register("local_mac_high", 0x024, 16, RW, "engine's MAC address, first two octets"),
    Register("local_address", 0x028, 32, RW, "engine's IPv4 address, first octet uppermost"),
    Register("local_port", 0x02C, 16, RW, "engine's UDP port"),
    Register("job_index", 0x040, 8, RW, "job that the command acts on"),
    Register("job_key_low", 0x044, 32, RW, "key of the job run, lower half"),
    Register("job_key_high", 0x048, 32, RW, "key of the job run, upper half"),
    Register("job_workers", 0x04C, 8, RW, "number of workers N"),
    Register("job_lanes", 0x050, 8, RW, "number of lanes F"),
    Register("job_slot_base", 0x054, 16, RW, "first slot of the job in the pool"),
    Register("job_slot_count", 0x058, 17, RW, "number of slots of the job"),
    Register("job_round", 0x05C, 32, RW, "first round r0 of every slot of the job"),
    Register("job_credit", 0x060, 16, RW, "packets that a worker may have in flight"),
    Register("job_command", 0x064, 2, RW, "write 1: create the job, 2: destroy it; reads 0"),
    Register("job_busy", 0x068, 1, RO, "1 while a command is carried out"),
)


@dataclass(frozen=True)
class Counter:
    """One 64-bit event counter, cleared by reset only. Wraps.

    Attributes:
        name: Name used by gateware, golden model, drivers and documents alike.
        meaning: One line for the reference page.
    """

    name: str
    meaning: str


FRAME_COUNTERS = (
    Counter("mac_error", "frame that the MAC marked as bad"),
    Counter("not_ours", "frame that is not addressed to the engine's MAC, IPv4 address and port"),
    Counter("bad_ip", "IPv4 options, fragment, or wrong IPv4 header checksum"),
    Counter("bad_version", "protocol version not spoken here"),
    Counter("bad_length", "frame, IPv4, UDP length and present bitmap disagree"),
    Counter("bad_checksum", "UDP checksum neither zero nor right"),
    Counter("bad_type", "packet type or opcode not known"),
    Counter("bad_job", "job not enabled"),
    Counter("bad_key", "key is not the job's"),
    Counter("bad_worker", "worker number not below the job's N"),
    Counter("bad_address", "worker has not joined, or source is not the one it joined from"),
    Counter("bad_slot", "slot number outside the job's range"),
    Counter("bad_present", "block for a lane not below F, or a block in a packet that has none"),
    Counter("joins", "join accepted"),
    Counter("accepted", "contribution added to its round"),
    Counter("duplicates", "contribution that had been added before"),
    Counter("stale", "contribution or probe of a round that is long over"),
    Counter("premature", "contribution or probe of a round that cannot be open yet"),
    Counter("probes", "probe answered"),
    Counter("receive_overflow", "frame lost because a receive buffer was full"),
)
"""Every frame that enters increments exactly one of these."""

COUNTERS = (
    Counter("frames_in", "frames received, whatever became of them"),
    *FRAME_COUNTERS,
    Counter("blocks_accepted", "blocks of accepted contributions"),
    Counter("rounds", "rounds completed"),
    Counter("conflicts", "rounds completed as a conflict"),
    Counter("overflows", "additions of elements that left the range of int32"),
    Counter("replays", "results sent again to one worker"),
    Counter("replays_dropped", "results not sent again: already queued, or the queue was full"),
    Counter("replies_dropped", "missing, joined and refused packets not sent: the queue was full"),
    Counter("frames_out", "frames sent"),
)

COUNTER_BASE = 0x100
"""Address of the first counter. Each takes two words; reading the lower latches the upper."""


def address_of(name: str) -> int:
    """Byte address of the register called ``name``. Raises ``KeyError`` if there is none."""
    for register in REGISTERS:
        if register.name == name:
            return register.address
    raise KeyError(f"no register is called {name!r}")


def counter_address(name: str) -> int:
    """Byte address of the lower word of the counter ``name``. Raises ``KeyError`` if none."""
    for index, counter in enumerate(COUNTERS):
        if counter.name == name:
            return COUNTER_BASE + 8 * index
    raise KeyError(f"no counter is called {name!r}")
