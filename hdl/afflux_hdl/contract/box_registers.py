"""Registers and counters of the box: what stands around nodes in the OpenNIC shell.

They are a page of their own, `BOX_BASE`, in the window that the shell gives to the box; node 0 has
the page at 0 and node n the one at `node_base(n)`. `docs/boards.md` shows the same.
"""

from afflux_hdl.contract.registers import Counter

__all__ = [
    "BAR2_OFFSET",
    "BOX_BASE",
    "BOX_COUNTER_BASE",
    "BOX_IDENTITY",
    "BOX_REGISTERS",
    "HOST_COUNTERS",
    "PAGE_BYTES",
    "PORT_COUNTERS",
    "box_counter_address",
    "node_base",
]

BAR2_OFFSET = 0x100000
"""Where the shell puts the window of `box_250mhz` in BAR 2."""

PAGE_BYTES = 0x1000
"""Of the registers of a node, and of those of the box."""

BOX_BASE = 0x1000
"""Offset of the box's page in the window."""

BOX_IDENTITY = 0x41464258
"""The text "AFBX"."""

BOX_REGISTERS = {"box_identity": 0x0, "box_ports": 0x4, "box_nodes": 0x8, "box_functions": 0xC}
"""Offsets in the page: the identity, and how many network ports, nodes and streams to and from the
host the box has. All are read only."""

BOX_COUNTER_BASE = 0x100
"""Offset of the first counter in the page. Each has 32 bits, wraps, and cannot be written."""

PORT_COUNTERS = (
    Counter("rx_size_mismatch", "frame from the adapter whose size is not that of its bytes"),
    Counter("rx_malformed", "frame from the adapter with null bytes where none may be: dropped"),
    Counter(
        "rx_dropped", "frame from the adapter without room in the port's buffer: dropped whole"
    ),
    Counter("tx_frames", "frame to the adapter"),
    Counter("tx_refused", "frame for the adapter that is cut off, and does not leave"),
    Counter("tx_dropped", "frame for the adapter larger than its buffer, or that waits too long"),
)
"""Of each port, in this order."""

HOST_COUNTERS = (
    Counter("h2c_size_mismatch", "frame from the host whose size is not that of its bytes"),
    Counter("h2c_malformed", "frame from the host with null bytes where none may be: dropped"),
    Counter("h2c_no_destination", "frame from the host for a port that is not there: dropped"),
    Counter("c2h_frames", "frame to the host"),
    Counter("c2h_refused", "frame for the host that is cut off, and does not leave"),
    Counter("c2h_dropped", "frame for the host larger than its buffer, or that waits too long"),
)
"""Of each stream to and from the host, in this order."""

_STRIDE = 8 * 4


def box_counter_address(name: str, index: int, *, ports: int) -> int:
    """Return the byte address, in the box's window, of a counter.

    Args:
        name: One of `PORT_COUNTERS` or `HOST_COUNTERS`.
        index: Number of the port, or of the stream to and from the host.
        ports: Network ports of the box.

    Raises:
        ValueError: If there is no such counter, or no such port.
    """
    first = BOX_BASE + BOX_COUNTER_BASE
    for n, counter in enumerate(PORT_COUNTERS):
        if counter.name == name:
            if not 0 <= index < ports:
                raise ValueError(f"{name} of port {index}: the box has {ports}")
            return first + _STRIDE * index + 4 * n
    for n, counter in enumerate(HOST_COUNTERS):
        if counter.name == name:
            return first + _STRIDE * (ports + index) + 4 * n
    raise ValueError(f"the box has no counter {name!r}")


def node_base(node: int) -> int:
    """Return the offset of a node's registers in the window of the box."""
    return 2 * PAGE_BYTES * node
