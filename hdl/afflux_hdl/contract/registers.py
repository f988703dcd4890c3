"""The register map: control of the engine, job table, counters.

Gateware, drivers and the reference page derive from one table. Plain Python: it imports neither
amaranth nor torch nor numpy. Registers are 32 bits wide; addresses are in bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TypeVar

__all__ = [
    "COUNTERS",
    "COUNTER_BASE",
    "FRAME_COUNTERS",
    "IDENTITY",
    "REGISTERS",
    "RELEASE",
    "Access",
    "Command",
    "Counter",
    "Reason",
    "Register",
    "WriteRefused",
    "address_of",
    "counter_address",
]

IDENTITY = 0x4146_4C58
"""Value of the identity register: "AFLX"."""

RELEASE = 0x000100
"""Value of the build_version register, 0.1.0: major, minor and patch in one octet each."""


class WriteRefused(Exception):
    """A register write had no effect: there is no such register, or it cannot be written now."""


class Access(Enum):
    """The access rights of a register. One that is write-only reads as zero."""

    READ_ONLY = "ro"
    READ_WRITE = "rw"
    WRITE_ONLY = "wo"

    @property
    def writable(self) -> bool:
        """Whether such a register may be written."""
        return self is not Access.READ_ONLY


class Command(IntEnum):
    """Values of the `job_command` register. They act on the job that `job_index` selects."""

    CREATE = 1
    DESTROY = 2
    JOIN_PARENT = 3


class Reason(IntEnum):
    """Values of the `job_reason` register: why the latest command was refused."""

    NONE = 0
    COMMAND = 1
    INDEX = 2
    WORKERS = 3
    LANES = 4
    SLOTS = 5
    OVERLAP = 6
    GROUP = 7
    DISABLED = 8
    NO_PARENT = 9

    @property
    def meaning(self) -> str:
        """One line for the reference page, and for error messages."""
        return _REASONS[self]


_REASONS = {
    Reason.NONE: "it was not refused",
    Reason.COMMAND: "there is no such command",
    Reason.INDEX: "job_index is not below build_jobs",
    Reason.WORKERS: "job_workers is 0 or more than build_workers",
    Reason.LANES: "job_lanes is 0 or more than build_lanes",
    Reason.SLOTS: "job_slot_count is 0, or the slots do not all lie within the pool",
    Reason.OVERLAP: "a slot belongs to another job",
    Reason.GROUP: "job_group_address is neither 0 nor a multicast address",
    Reason.DISABLED: "the job that is to join its parent does not exist",
    Reason.NO_PARENT: "the job that is to join its parent has none",
}


@dataclass(frozen=True)
class Register:
    """One 32-bit register.

    Attributes:
        name: Name used by gateware, drivers and documents alike.
        address: Byte address.
        width: Bits in use, from bit 0; the others read as zero.
        access: The parties that may write it.
        meaning: One line for the reference page.
    """

    name: str
    address: int
    width: int
    access: Access
    meaning: str


RO, RW, WO = Access.READ_ONLY, Access.READ_WRITE, Access.WRITE_ONLY

REGISTERS = (
    Register("identity", 0x000, 32, RO, 'constant 0x41464C58, "AFLX"'),
    Register("protocol", 0x004, 8, RO, "protocol version that the engine speaks"),
    Register("build_workers", 0x008, 8, RO, "most workers of a job"),
    Register("build_lanes", 0x00C, 8, RO, "most lanes of a slot"),
    Register("build_jobs", 0x010, 9, RO, "most jobs at once"),
    Register("build_slots", 0x014, 17, RO, "slots of the pool, shared by all jobs"),
    Register("build_bus_bits", 0x018, 16, RO, "bits of the packet streams"),
    Register("build_version", 0x01C, 24, RO, "release of the gateware: major, minor, patch octet"),
    Register("build_time", 0x030, 32, RO, "when it was made, seconds since 1970; 0: unknown"),
    Register("build_commit", 0x034, 32, RO, "first 32 bits of its sources' commit; 0: unknown"),
    Register("local_mac_low", 0x020, 32, RW, "engine's MAC address, last four octets"),
    Register("local_mac_high", 0x024, 16, RW, "engine's MAC address, first two octets"),
    Register("local_address", 0x028, 32, RW, "engine's IPv4 address, first octet uppermost"),
    Register("local_port", 0x02C, 16, RW, "engine's UDP port"),
    Register("job_index", 0x040, 8, RW, "job that the command acts on"),
    Register("job_key_low", 0x044, 32, WO, "key of the job run, lower half"),
    Register("job_key_high", 0x048, 32, WO, "key of the job run, upper half"),
    Register("job_workers", 0x04C, 8, RW, "number of workers N"),
    Register("job_lanes", 0x050, 8, RW, "number of lanes F"),
    Register("job_slot_base", 0x054, 16, RW, "first slot of the job in the pool"),
    Register("job_slot_count", 0x058, 17, RW, "number of slots of the job"),
    Register("job_round", 0x05C, 32, RW, "first round r0 of every slot of the job"),
    Register("job_credit", 0x060, 16, RW, "packets that a worker may have in flight"),
    Register(
        "job_command", 0x064, 2, RW, "write 1: create the job, 2: destroy it, 3: join its parent"
    ),
    Register("job_busy", 0x068, 1, RO, "1 while a command is carried out"),
    Register("job_group_address", 0x06C, 32, RW, "multicast group for results, 0: none"),
    Register("job_group_port", 0x070, 16, RW, "UDP port of the group"),
    Register("job_parent_mac_low", 0x074, 32, RW, "parent's MAC address, last four octets"),
    Register("job_parent_mac_high", 0x078, 16, RW, "parent's MAC address, first two octets"),
    Register("job_parent_address", 0x07C, 32, RW, "parent's IPv4 address, 0: no parent"),
    Register("job_parent_port", 0x080, 16, RW, "parent's UDP port"),
    Register("job_parent_job", 0x084, 8, RW, "job number at the parent"),
    Register("job_parent_worker", 0x088, 8, RW, "own worker number at the parent"),
    Register("job_parent_key_low", 0x08C, 32, WO, "key of the parent's job run, lower half"),
    Register("job_parent_key_high", 0x090, 32, WO, "key of the parent's job run, upper half"),
    Register("job_enabled", 0x094, 1, RO, "1 if the job that job_index selects exists"),
    Register("job_parent_joined", 0x098, 1, RO, "1 if it has joined its parent"),
    Register("job_reason", 0x09C, 4, RO, "why the latest command was refused, 0: it was not"),
    Register("receive_level", 0x0A0, 16, RO, "beats in the receive buffer"),
    Register("receive_peak", 0x0A4, 16, RO, "most beats that were ever in it"),
    Register("delivery_level", 0x0A8, 17, RO, "deliveries in the queue"),
    Register("delivery_peak", 0x0AC, 17, RO, "most deliveries that were ever in it"),
    Register("debug_slot", 0x0B0, 15, RW, "slot of the pool that the registers below look at"),
    Register("debug_round", 0x0B4, 32, RO, "its latest open round R"),
    Register("debug_seen_low", 0x0B8, 32, RO, "workers 0 to 31 whose contribution to R is in"),
    Register("debug_seen_high", 0x0BC, 32, RO, "workers 32 to 63"),
    Register("debug_phase", 0x0C0, 2, RO, "bit 0: all are in; bit 1: waiting for the parent"),
    Register("debug_version_0", 0x0C4, 18, RO, "version 0: bit 17 held, bit 16 conflict, present"),
    Register("debug_version_1", 0x0C8, 18, RO, "version 1, likewise"),
    Register("job_options", 0x0CC, 1, RW, "bit 0: workers may move while the job runs"),
    Register("debug_worker", 0x0D0, 16, RW, "job << 8 | worker that the registers below look at"),
    Register("debug_peer_mac_low", 0x0D4, 32, RO, "MAC address that it joined from, last octets"),
    Register("debug_peer_mac_high", 0x0D8, 17, RO, "first two octets; bit 16: has joined"),
    Register("debug_peer_address", 0x0DC, 32, RO, "IPv4 address that it joined from"),
    Register("debug_peer_port", 0x0E0, 16, RO, "UDP port that it joined from"),
    Register("job_group_key_low", 0x0E4, 32, WO, "key of results to the group, lower half"),
    Register("job_group_key_high", 0x0E8, 32, WO, "key of results to the group, upper half"),
    Register("transmit_control", 0x0EC, 1, RW, "1: discard all that would be sent"),
    Register("transmit_state", 0x0F0, 1, RO, "1: output is discarded, by command or as tx waits"),
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
    Counter("bad_ip", "IPv4 options, fragment, wrong header checksum, or source that no host has"),
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
    Counter("joins", "join accepted, here or by the parent"),
    Counter("accepted", "contribution added to its round"),
    Counter("duplicates", "contribution that had been added before"),
    Counter("stale", "contribution or probe of a round that is long over"),
    Counter("premature", "contribution or probe of a round that cannot be open yet"),
    Counter("probes", "probe answered"),
    Counter("receive_overflow", "frame lost because a receive buffer was full"),
    Counter("parent_results", "result of the parent taken"),
    Counter("state_errors", "frame dropped because a bit of its slot's state had flipped"),
)
"""Every frame that enters increments exactly one of these."""

COUNTERS = (
    Counter("frames_in", "frames received, whatever became of them"),
    *FRAME_COUNTERS,
    Counter("blocks_accepted", "blocks of accepted contributions"),
    Counter("rounds", "rounds completed"),
    Counter("conflicts", "rounds completed as a conflict"),
    Counter("overflows", "additions of elements that left the range of int32"),
    Counter("replays", "results sent again to one worker, partial sums sent up again"),
    Counter("replays_dropped", "results not sent again: already queued, or the queue was full"),
    Counter("replies_dropped", "missing and joined packets not sent: the queue was full"),
    Counter("frames_out", "frames sent"),
    Counter("bytes_in", "bytes of all frames received"),
    Counter("bytes_out", "bytes of all frames sent"),
    Counter("results_dropped", "results not queued: the slot's version was queued already"),
    Counter("results_discarded", "queued deliveries not sent: job or round over, or not joined"),
    Counter("refusals_dropped", "refused packets not sent: beyond their rate, or queue half full"),
    Counter("frames_discarded", "frames not sent, or cut, because the link was down"),
    Counter("data_errors", "frames sent with a wrong checksum: a bit of their data had flipped"),
)

COUNTER_BASE = 0x100
"""Address of the first counter. Each takes two words, the lower one first, both as they are now.

Reading has no effect, so any number of readers may read at the same time. The two words belong
together if the upper one is the same before and after the lower one is read.
"""


_Entry = TypeVar("_Entry", Register, Counter)


def _find(entries: Sequence[_Entry], name: str, what: str) -> tuple[int, _Entry]:
    """Return index and entry of that name."""
    for index, entry in enumerate(entries):
        if entry.name == name:
            return index, entry
    raise KeyError(f"no {what} is called {name!r}")


def address_of(name: str) -> int:
    """Return the byte address of the register called `name`.

    Raises:
        KeyError: If there is none.
    """
    return _find(REGISTERS, name, "register")[1].address


def counter_address(name: str) -> int:
    """Return the byte address of the lower word of the counter called `name`.

    Raises:
        KeyError: If there is none.
    """
    return COUNTER_BASE + 8 * _find(COUNTERS, name, "counter")[0]


# The node: what stands between a network port, a host and the engine. Its registers and counters
# follow the engine's in one address space.

__all__ += [
    "NODE_BASE",
    "NODE_COUNTERS",
    "NODE_COUNTER_BASE",
    "NODE_FRAME_COUNTERS",
    "NODE_HOST_COUNTERS",
    "NODE_IDENTITY",
    "NODE_REGISTERS",
    "PORT_COUNTERS",
    "PORT_IDENTITY",
    "PORT_REGISTERS",
    "node_address_of",
    "node_counter_address",
    "port_address_of",
]

NODE_BASE = 0x800
"""First address of the node; all below are the engine's. A power of two."""

NODE_IDENTITY = 0x4146_4C4E
"""Value of the node_identity register: "AFLN"."""

NODE_REGISTERS = (
    Register("node_identity", NODE_BASE, 32, RO, 'constant 0x41464C4E, "AFLN"'),
    Register("host_path", NODE_BASE + 0x4, 1, RW, "1, as after reset: frames pass to and from it"),
    Register("build_host_buffer", NODE_BASE + 0x8, 32, RO, "bytes of the buffer in each direction"),
    Register("build_echo_buffer", NODE_BASE + 0xC, 32, RO, "bytes of the buffer of echo requests"),
)

PORT_IDENTITY = 0x4146_4C50
"""Value of the port_identity register: "AFLP"."""

PORT_REGISTERS = (
    Register("port_identity", NODE_BASE + 0x80, 32, RO, 'constant 0x41464C50, "AFLP"'),
    Register("port_rx_dropped", NODE_BASE + 0x84, 32, RO, "frames without room before the node"),
    Register("port_tx_cut", NODE_BASE + 0x88, 32, RO, "frames not sent: too long, or no link"),
)
"""Of a node behind a MAC that has clocks of its own (`hdl/afflux_hdl/port`), or behind two PHYs of
a board (`hdl/afflux_hdl/boards/port.py`), and of no other."""

PORT_COUNTERS = tuple(each.name for each in PORT_REGISTERS[1:])
"""Those that count, modulo 2**32, from when the FPGA was configured: no reset of the node clears
them. That of a board clears all there is."""

NODE_FRAME_COUNTERS = (
    Counter("to_engine", "frame for the engine, which judges and counts it"),
    Counter("to_host", "frame passed to the host"),
    Counter("host_overflow", "frame for the host that did not fit into its buffer"),
    Counter("host_off", "frame for the host while host_path was 0, or of no use to a management"),
    Counter("arp_replies", "ARP request answered"),
    Counter("echo_replies", "ICMP echo request answered"),
    Counter("echo_bad", "ICMP echo request with a wrong checksum or length"),
    Counter(
        "replies_dropped",
        "ARP or echo request not answered: beyond their rate, or no room, "
        "be an echo request faulty or not",
    ),
    Counter("bad_frames", "frame that the MAC marked as bad, not for the engine"),
)
"""Every frame from the network increments exactly one of these."""

NODE_HOST_COUNTERS = (
    Counter("from_host", "frame of the host taken, to be sent"),
    Counter("from_host_oversize", "frame of the host larger than its buffer, not marked as bad"),
    Counter("from_host_bad", "frame that the host marked as bad"),
    Counter("from_host_off", "frame of the host while host_path was 0"),
    Counter("from_host_discarded", "frame of the host for which there was no room: link down"),
)
"""Every frame from the host increments exactly one of these."""

NODE_COUNTERS = (
    *NODE_FRAME_COUNTERS,
    *NODE_HOST_COUNTERS,
    Counter("network_frames_in", "frames received from the network"),
    Counter("network_bytes_in", "bytes of these"),
    Counter("network_frames_out", "frames sent to the network"),
    Counter("network_bytes_out", "bytes of these"),
)

NODE_COUNTER_BASE = NODE_BASE + 0x100
"""Address of the node's first counter. Each takes two words, as the engine's do."""


def node_address_of(name: str) -> int:
    """Return the byte address of the node's register called `name`.

    Raises:
        KeyError: If there is none.
    """
    return _find(NODE_REGISTERS, name, "register of the node")[1].address


def port_address_of(name: str) -> int:
    """Return the byte address of the register called `name` of a node behind a MAC.

    Raises:
        KeyError: If there is none.
    """
    return _find(PORT_REGISTERS, name, "register of the port")[1].address


def node_counter_address(name: str) -> int:
    """Return the byte address of the lower word of the node's counter called `name`.

    Raises:
        KeyError: If there is none.
    """
    return NODE_COUNTER_BASE + 8 * _find(NODE_COUNTERS, name, "counter of the node")[0]
