"""Short answers of the software engine: MISSING, JOINED, REFUSED (protocol, section 5.4)."""

import numpy as np

from afflux_drivers.frames import frame_header
from afflux_drivers.packets import HEADER, datagram_bytes
from afflux_drivers.soft_job import Endpoint
from afflux_hdl import wire

__all__ = ["short_answer"]

_VERSION = wire.VERSION << 4


def short_answer(
    header: tuple[int, ...], local: Endpoint, peer: Endpoint, type_: wire.Type, *words: int
) -> bytes:
    """The frame that answers a packet with its own header.

    Args:
        header: Afflux header of the packet.
        local: The engine's endpoint.
        peer: Where the packet came from.
        type_: What the answer is.
        words: The first words of it; the others are 0.
    """
    _, opcode_dtype, job, worker, slot, _, round_, key, operation = header
    afflux = HEADER.pack(
        _VERSION | type_, opcode_dtype, job, worker, slot, 0, round_, key, operation
    )
    answer = np.zeros(wire.LANES_MAX, "<u4")
    answer[: len(words)] = words
    (mac, address, port), (to_mac, to_address, to_port) = local, peer
    front = frame_header((to_mac, mac), (address, to_address), (port, to_port), datagram_bytes(0))
    return front + afflux + answer.tobytes()
