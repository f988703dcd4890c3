"""An end of streams that was written from `docs/streams.md` alone sums with this project's.

It is rank 1 of three: it connects with rank 0, accepts the connection of rank 2, and takes part in
all-reduces in one hop and in two, with and without blocks of zeros.
"""

import hashlib
import hmac
import queue
import secrets
import socket
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise

import numpy as np

from afflux_drivers.collective import Reduction
from afflux_drivers.collectives.call import GroupCall
from afflux_drivers.streams.worker import StreamsWorker
from afflux_hdl.contract import wire
from tests.support.drivers.meshes import SECRET, TIMEOUT_S, Meshes

RANKS, OWN = 3, 1
NAME = "00f1e2d3c4b5a697/0/0"
BLOCK, PIECE_BLOCKS, AHEAD = 256, 512, 16
CALL, CONTRIBUTION, RESULT = 1, 2, 3
HEAD = struct.Struct("<IIIBBH")


def receive(tcp: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += (more := tcp.recv(size - len(data)))
        if not more:
            raise EOFError
    return data


class Codes:
    """The codes of one direction of a handshake."""

    def __init__(self, sender: str, nonces: bytes) -> None:
        key = hmac.digest(SECRET, b"afflux streams 1: key", "sha256")
        self._key = hmac.digest(key, f"afflux control 1: {sender}".encode() + nonces, "sha256")
        self._numbers = count()

    def frame(self, text: bytes) -> bytes:
        numbered = struct.pack(">Q", next(self._numbers)) + text
        return hmac.digest(self._key, numbered, "sha256").hex().encode() + b" " + text


def codes(connecting: bytes, accepting: bytes) -> tuple[Codes, Codes]:
    nonces = bytes.fromhex((connecting + accepting).decode())
    return Codes("client to server", nonces), Codes("server to client", nonces)


def claim(connecting: int, accepting: int) -> bytes:
    numbers = struct.pack(">7I", RANKS, 1, connecting, accepting, 0, connecting, 1)
    return hashlib.sha256(NAME.encode()).digest() + numbers


def connect(endpoint: tuple[str, int], lower: int) -> socket.socket:
    tcp = socket.create_connection(endpoint, TIMEOUT_S)
    own = secrets.token_hex(16).encode()
    tcp.sendall(b"afflux streams 1" + own)
    challenge = receive(tcp, 97)
    ours, theirs = codes(own, challenge[:32])
    assert challenge[32:] == theirs.frame(b"")
    tcp.sendall(ours.frame(claim(OWN, lower)))
    assert receive(tcp, 66) == theirs.frame(b"\0")
    return tcp


def accept(listener: socket.socket, higher: int) -> socket.socket:
    listener.setblocking(True)
    listener.settimeout(TIMEOUT_S)
    tcp, _ = listener.accept()
    hello, own = receive(tcp, 48), secrets.token_hex(16).encode()
    theirs, ours = codes(hello[16:], own)
    tcp.sendall(own + ours.frame(b""))
    assert receive(tcp, 125) == theirs.frame(claim(higher, OWN))
    tcp.sendall(ours.frame(b"\0"))
    return tcp


class Stranger:
    """Rank 1. A thread for each connection puts messages in a queue, so peers can always send."""

    def __init__(self, peers: dict[int, socket.socket]) -> None:
        self._peers = peers
        self._operation = 0
        self._came: queue.Queue[tuple[int, tuple[int, ...], bytes]] = queue.Queue()
        self._threads = [threading.Thread(target=self._read, args=(rank,)) for rank in peers]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for each in self._peers.values():
            each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for tcp in self._peers.values():
            tcp.close()

    def all_reduce(self, tensor: np.ndarray) -> None:
        """Sum in place; the elements are such that additions in any order give the same."""
        self._operation += 1
        name = f"0:sum:float32:{tensor.size}".encode()
        call = struct.pack("<3Q4B4x", tensor.size, zlib.crc32(name), 0, 0, 1, 0, 0)
        hops = 1 if tensor.nbytes // RANKS * (RANKS - 1) * (RANKS - 2) <= 65536 else 2
        parts = self._parts(tensor, hops)
        own = parts[OWN].copy()
        reduced, contributed = 0, dict.fromkeys(self._peers, 0)
        left = {rank: 1 + pieces(own) + (hops - 1) * pieces(parts[rank]) for rank in self._peers}
        for rank in self._peers:
            self._send(rank, CALL, 0, 0, call)
            for piece in range(min(pieces(parts[rank]), AHEAD)):
                self._send_piece(rank, CONTRIBUTION, piece, parts[rank])
        later = []
        while any(left.values()):
            message = rank, (_, operation, piece, kind, bitmaps, _), payload = self._came.get(
                timeout=TIMEOUT_S
            )
            if operation != self._operation:
                assert operation == self._operation + 1 and not left[rank]
                later.append(message)
                continue
            left[rank] -= 1
            if kind == CALL:
                assert payload == call
                continue
            where = part_of(own if kind == CONTRIBUTION else parts[rank], piece)
            elements = unpack(payload, bitmaps, where.size * 4)
            if kind == RESULT:
                where[:] = elements
                if piece + AHEAD < pieces(parts[rank]):
                    self._send_piece(rank, CONTRIBUTION, piece + AHEAD, parts[rank])
                continue
            where += elements
            contributed[rank] += 1
            while reduced < min(contributed.values()):
                for each in self._peers if hops == 2 else ():
                    self._send_piece(each, RESULT, reduced, own)
                reduced += 1
        parts[OWN][:] = own
        for message in later:
            self._came.put(message)

    def _parts(self, tensor: np.ndarray, hops: int) -> list[np.ndarray]:
        if hops == 1:
            return [tensor] * RANKS
        blocks = -(-tensor.nbytes // BLOCK)
        borders = [blocks * rank // RANKS * BLOCK // 4 for rank in range(RANKS + 1)]
        return [tensor[first:last] for first, last in pairwise(borders)]

    def _send(self, rank: int, kind: int, piece: int, bitmaps: int, payload: bytes) -> None:
        head = HEAD.pack(len(payload), self._operation, piece, kind, bitmaps, 0)
        self._peers[rank].sendall(head + payload)

    def _send_piece(self, rank: int, kind: int, piece: int, part: np.ndarray) -> None:
        data = part_of(part, piece).tobytes()
        blocks = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
        there = [any(each) for each in blocks]
        bitmap = np.packbits(there, bitorder="little").tobytes()
        present = b"".join(each for each, is_there in zip(blocks, there, strict=True) if is_there)
        self._send(rank, kind, piece, 1, bitmap + present)

    def _read(self, rank: int) -> None:
        tcp = self._peers[rank]
        while True:
            try:
                head = HEAD.unpack(receive(tcp, HEAD.size))
                self._came.put((rank, head, receive(tcp, head[0])))
            except (EOFError, OSError):
                return


def pieces(part: np.ndarray) -> int:
    return -(-part.nbytes // (PIECE_BLOCKS * BLOCK))


def part_of(part: np.ndarray, piece: int) -> np.ndarray:
    each = PIECE_BLOCKS * BLOCK // 4
    return part[piece * each : (piece + 1) * each]


def unpack(payload: bytes, bitmaps: int, size: int) -> np.ndarray:
    """Return the elements of a piece of so many bytes."""
    if not bitmaps:
        return np.frombuffer(payload, np.float32)
    blocks = -(-size // BLOCK)
    at = -(-blocks // 8)
    data = bytearray(size)
    flags = np.unpackbits(np.frombuffer(payload[:at], np.uint8), bitorder="little")
    for block in map(int, np.flatnonzero(flags[:blocks])):
        end = min((block + 1) * BLOCK, size)
        here = end - block * BLOCK
        data[block * BLOCK : end] = payload[at : at + here]
        at += here
    assert at == len(payload)
    return np.frombuffer(data, np.float32)


def tensors(size: int, density: float) -> list[np.ndarray]:
    """Return a tensor for each rank, of small integers, and of blocks of zeros."""
    random = np.random.default_rng(size)
    found = []
    for _ in range(RANKS):
        numbers = random.integers(1, 100, size).astype(np.float32)
        there = random.random(-(-size // 64)) < density
        found.append(numbers * np.repeat(there, 64)[:size])
    return found


def test_an_end_that_was_written_from_the_page_sums_with_ours() -> None:
    sizes = [(1_000, 1.0), (1_000_001, 1.0), (1_500_003, 0.3), (20_000, 0.5), (3_000_000, 0.01)]
    inputs = [tensors(*each) for each in sizes]
    outputs = [[each.copy() for each in ranks] for ranks in inputs]

    def native(rank: int, mesh: list[list[socket.socket]]) -> None:
        worker = StreamsWorker(rank, [[each[0] if each else None for each in mesh]])
        for ranks in outputs:
            call = GroupCall.of(wire.Dtype.FLOAT32, Reduction.SUM, ranks[rank].shape)
            worker.run((), ranks[rank].ctypes.data, call, TIMEOUT_S, lambda: None)
        worker.close()

    with Meshes(RANKS, group=NAME) as meshes, ThreadPoolExecutor() as pool:
        meshes.start(0, 2)
        lower = connect(meshes.endpoints[0], 0)
        stranger = Stranger({0: lower, 2: accept(meshes.listeners[OWN].tcp, 2)})
        first, last = meshes.wait(0, 2)
        jobs = [pool.submit(native, 0, first), pool.submit(native, 2, last)]
        try:
            for ranks in outputs:
                stranger.all_reduce(ranks[OWN])
            for job in jobs:
                job.result()
        finally:
            stranger.close()
    for before, after in zip(inputs, outputs, strict=True):
        for each in after:
            np.testing.assert_array_equal(each, sum(before))
