"""The cost of each stage of the data path alone, by the code that runs it in a job.

Costs are seconds of processor time for a byte of the tensor, or of the tensors of all workers that
pass an aggregator. Nothing leaves the machine.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from afflux_drivers import _native
from afflux_drivers.collective import Reduction
from afflux_hdl.contract import wire

__all__ = ["Stages", "aggregator_stages", "measure_stages", "worker_stages"]

_FLOAT32 = int(wire.Dtype.FLOAT32)
_SUM = Reduction.SUM.number
_EMPTY_CALLS = 2000


@dataclass(frozen=True)
class Stages:
    """Costs of stages alone, in seconds.

    Attributes:
        scan, encode, decode: Of blocks at a worker, into packets and out of them; for a byte.
        copy: Of a packet that has come, at a worker; for a byte.
        merge: Of the packets of two workers, at an aggregator; for a byte.
        join: Of packets into the messages that the kernel takes; for a byte.
        send, receive: System calls that carry packets, their own costs left out; for a byte.
        join_gathered, send_gathered: The same with headers apart from blocks, as an aggregator has
            them.
        send_uncut, receive_unjoined: The same where each packet passes the kernel alone.
        call: A system call that carries nothing.
        memcpy: Of a tensor to another place; for a byte.
    """

    scan: float
    encode: float
    decode: float
    copy: float
    merge: float
    join: float
    send: float
    receive: float
    join_gathered: float
    send_gathered: float
    send_uncut: float
    receive_unjoined: float
    call: float
    memcpy: float

    @property
    def without_offloads(self) -> float:
        """The additional cost of a byte that is sent, and received, in packets of its own."""
        return max(0.0, self.send_uncut + self.receive_unjoined - self.send - self.receive)


def measure_stages(lanes: int, slots: int, tensor_bytes: int, repeats: int = 3) -> Stages:
    """Measure all stages, each some times, of which medians are taken.

    Args:
        lanes: Blocks of a packet.
        slots: Packets that are sent before any is received.
        tensor_bytes: Size of the tensor, which should be larger than the caches.
        repeats: How often.
    """
    packets = _Packets(lanes, slots, tensor_bytes)
    found: list[Stages] = []
    for _ in range(repeats):
        empty = _native.empty_calls(_EMPTY_CALLS)
        call = empty.seconds / empty.calls

        def carried(cost: _native.Cost, call: float = call) -> float:
            return max(0.0, cost.seconds - cost.calls * call) / cost.bytes

        plain = _native.exchange_packets(lanes, slots, tensor_bytes, False, True)
        gathered = _native.exchange_packets(lanes, slots, tensor_bytes, True, True)
        alone = _native.exchange_packets(lanes, slots, tensor_bytes // 4, False, False)
        copied = _native.copy_packets(lanes, tensor_bytes)
        merged = _native.merge_packets(2, lanes, slots, tensor_bytes)
        found.append(
            Stages(
                **packets.measure(),
                copy=copied.seconds / copied.bytes,
                merge=merged.seconds / merged.bytes,
                join=plain.join.seconds / plain.join.bytes,
                send=carried(plain.send),
                receive=carried(plain.receive),
                join_gathered=gathered.join.seconds / gathered.join.bytes,
                send_gathered=carried(gathered.send),
                send_uncut=carried(alone.send),
                receive_unjoined=carried(alone.receive),
                call=call,
            )
        )
    return Stages(**{name: median(vars(each)[name] for each in found) for name in vars(found[0])})


class _Packets:
    """A tensor that goes into a worker's packets, and out of them.

    Args:
        lanes, slots: Of the job.
        tensor_bytes: Of float32.
    """

    def __init__(self, lanes: int, slots: int, tensor_bytes: int) -> None:
        blocks = max(1, tensor_bytes // wire.BLOCK_BYTES)
        count = blocks * wire.BLOCK_ELEMENTS
        self._lanes, self._slots = lanes, slots
        self._elements: NDArray[np.float32] = np.linspace(1, 2, count, dtype=np.float32)
        self._back = np.ones_like(self._elements)

    def measure(self) -> Mapping[str, float]:
        """Return seconds for a byte: of a worker's stages, and of a memcpy."""

        def scan() -> None:
            _native.scan_blocks(_FLOAT32, self._elements)

        def walk(back: bool) -> None:
            _native.walk_columns(
                self._elements, self._back, _FLOAT32, _SUM, 2, self._slots, back, self._lanes
            )

        scanned = self._seconds(scan)
        sent = self._seconds(lambda: walk(False))
        both = self._seconds(lambda: walk(True))
        copied = self._seconds(lambda: np.copyto(self._back, self._elements))
        return {
            "scan": scanned,
            "encode": max(0.0, sent - scanned),
            "decode": max(0.0, both - sent),
            "memcpy": copied,
        }

    def _seconds(self, work: Callable[[], object]) -> float:
        begin = time.thread_time()
        work()
        return (time.thread_time() - begin) / self._elements.nbytes


def worker_stages(stages: Stages, calls_per_byte: float) -> dict[str, float]:
    """Return what a byte costs a worker that sends it and receives its sum, by stage."""
    return {
        "scan": stages.scan,
        "encode": stages.encode,
        "joining packets": stages.join,
        "kernel, sending": stages.send,
        "kernel, receiving": stages.receive,
        "copy": stages.copy,
        "decode": stages.decode,
        "system calls": calls_per_byte * stages.call,
    }


def aggregator_stages(stages: Stages, calls_per_byte: float) -> dict[str, float]:
    """Return what a byte costs an aggregator that receives it, and sends one of a result."""
    return {
        "kernel, receiving": stages.receive,
        "merge": stages.merge,
        "joining packets": stages.join_gathered,
        "kernel, sending": stages.send_gathered,
        "system calls": calls_per_byte * stages.call,
    }
