"""A node as NCCL's proxy makes one: it opens the plugin, and calls its tables.

Each node is a process of its own; the test's process carries handles between them, as NCCL's
bootstrap does.
"""

import contextlib
import ctypes
import mmap
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.network.host import Host
from tests.support.checkout import BUILD
from tests.support.forking import context
from tests.support.nccl.tables import HANDLE_BYTES, Logger, PluginLibrary, properties_of

__all__ = [
    "DATA_TYPES",
    "LIBRARY",
    "RED_OPS",
    "Buffer",
    "Comm",
    "Node",
    "PluginError",
    "run_nodes",
]

LIBRARY = str(BUILD / "native" / "libnccl-net-afflux.so")

DATA_TYPES = {"int32": 2, "float16": 6, "float32": 7, "bfloat16": 9}
RED_OPS = {"sum": 0, "max": 2, "min": 3}
NUMPY: dict[str, npt.DTypeLike] = {
    "int32": np.int32,
    "float16": np.float16,
    "float32": np.float32,
    "bfloat16": np.uint16,
}

_HOST_POINTER = 1


class PluginError(Exception):
    """A function of a table has returned an error; the text ends with the last warning."""


class Buffer:
    """Memory of its own pages, as the proxy's mapped buffers; all zeros at first."""

    def __init__(self, size: int) -> None:
        self._pages = mmap.mmap(-1, size)
        self.bytes = np.frombuffer(self._pages, np.uint8)
        self.address = self.bytes.ctypes.data
        self.size = size

    def view(self, dtype: str, offset: int, count: int) -> npt.NDArray[Any]:
        """Return elements that begin at a byte."""
        size = np.dtype(NUMPY[dtype]).itemsize
        return self.bytes[offset : offset + count * size].view(NUMPY[dtype])

    def unmap(self) -> None:
        """Give the pages back: whoever touches them now crashes."""
        del self.bytes
        self._pages.close()


@dataclass
class Comm:
    """A communicator: what connect gave, and the handles of registered memory."""

    node: "Node"
    pointer: int
    handles: dict[int, int] = field(default_factory=dict)

    def register(self, buffer: Buffer) -> None:
        out = ctypes.c_void_p()
        args = self.pointer, buffer.address, buffer.size, _HOST_POINTER, ctypes.byref(out)
        self.node.check("regMr", *args)
        self.handles[buffer.address] = out.value or 0

    def deregister(self, buffer: Buffer) -> None:
        self.node.check("deregMr", self.pointer, self.handles.pop(buffer.address))

    def iallreduce(
        self,
        send: tuple[Buffer, int],
        receive: tuple[Buffer, int],
        count: int,
        dtype: str,
        red_op: str,
    ) -> int | None:
        """Post an all-reduce between offsets of buffers; None where the plugin says later."""
        out = ctypes.c_void_p()
        addresses = [buffer.address + offset for buffer, offset in (send, receive)]
        handles = [self.handles.get(buffer.address) for buffer, _ in (send, receive)]
        codes = DATA_TYPES[dtype], RED_OPS[red_op]
        self.node.check(
            "iallreduce", self.pointer, *addresses, count, *codes, *handles, ctypes.byref(out)
        )
        return out.value

    def test(self, request: int) -> int | None:
        """Return the bytes of a request that is over, else None."""
        done, size = ctypes.c_int(-1), ctypes.c_int(-1)
        self.node.check("test", request, ctypes.byref(done), ctypes.byref(size))
        return size.value if done.value else None

    def wait(self, request: int, limit_s: float = 30.0) -> int:
        """Test until the request is over."""
        until = time.monotonic() + limit_s
        while (size := self.test(request)) is None:
            assert time.monotonic() < until, "a request is not over in time"
            # The nodes share few processors.
            os.sched_yield()
        return size

    def all_reduce(
        self, tensor: npt.NDArray[Any], dtype: str, red_op: str, buffers: tuple[Buffer, Buffer]
    ) -> npt.NDArray[Any]:
        """Reduce a tensor through the beginnings of two registered buffers."""
        send, receive = buffers
        send.view(dtype, 0, len(tensor))[:] = tensor
        request = self.iallreduce((send, 0), (receive, 0), len(tensor), dtype, red_op)
        assert request is not None
        assert self.wait(request) == tensor.nbytes
        return receive.view(dtype, 0, len(tensor)).copy()

    def close(self) -> None:
        self.node.check("closeColl", self.pointer)


class Node:
    """One process that has opened the plugin.

    Args:
        version: Of the tables.
        rank: Own number.
        size: How many there are.
        gather: Exchanges a value for those of all nodes.

    Attributes:
        log: All that the plugin has logged: level and text.
        profiler: NCCL's function for events of the network; None: there is none.
    """

    def __init__(
        self, version: int, rank: int, size: int, gather: Callable[[Any], list[Any]]
    ) -> None:
        self.rank, self.size, self.gather = rank, size, gather
        self.plugin = PluginLibrary(os.environ.get("NCCL_NET_PLUGIN", LIBRARY), version)
        self.version = version
        self.log: list[tuple[int, str]] = []
        self.profiler: Any = None
        self._logger = Logger(self._take_log)
        self._context = ctypes.c_void_p()
        self._net_context = ctypes.c_void_p()

    def _take_log(
        self, level: int, flags: int, file: bytes, line: int, form: bytes, text: int
    ) -> None:
        assert form == b"NET/Afflux: %s"
        self.log.append((level, ctypes.string_at(text).decode()))

    def warnings(self) -> list[str]:
        return [text for level, text in self.log if level == 2]

    def check(self, name: str, *arguments: Any) -> None:
        """Call a function of CollNet's table; raise if it returns an error."""
        result = self.plugin.collnet(name, *arguments)
        if result != 0:
            told = self.warnings()
            raise PluginError(f"{name}: {result}: {told[-1] if told else 'no warning'}")

    def init(self) -> int:
        """Initialise Net and CollNet in NCCL's order; return how many devices CollNet has."""
        net, collnet = self.plugin.net, self.plugin.collnet
        config, contexts = ctypes.c_int(-1), (self._net_context, self._context)
        if self.version >= 11:
            first, second = (ctypes.byref(each) for each in contexts)
            done = net("init", first, 7, ctypes.addressof(config), self._logger, self.profiler)
            done = done or collnet("init", second, 7, self._logger)
        elif self.version == 10:
            done = net("init", self._logger, self.profiler) or collnet("init", self._logger)
        else:
            done = net("init", self._logger) or collnet("init", self._logger)
        if done != 0:
            raise PluginError(f"init: {done}: {self.warnings()[-1]}")
        count = ctypes.c_int(-1)
        self.check("devices", ctypes.byref(count))
        return count.value

    def properties(self, device: int = 0) -> dict[str, Any]:
        """Return CollNet's properties, which must be Net's."""
        both = []
        for table in (self.plugin.collnet, self.plugin.net):
            made = properties_of(self.version)()
            assert table("getProperties", device, ctypes.addressof(made)) == 0
            both.append(
                {name: getattr(made, name) for name, *_ in made._fields_ if name != "vProps"}
            )
        assert both[0] == both[1]
        return both[0]

    def context(self) -> tuple[Any, ...]:
        """Return the first argument of functions that take the context of init."""
        return (self._context,) if self.version >= 11 else ()

    def listen(self) -> tuple[bytes, int]:
        """Return a handle and the listening communicator."""
        handle = ctypes.create_string_buffer(HANDLE_BYTES)
        out = ctypes.c_void_p()
        self.check("listen", *self.context(), 0, ctypes.addressof(handle), ctypes.byref(out))
        assert out.value is not None
        return handle.raw, out.value

    def connect(self, handles: Sequence[bytes], listening: int) -> Comm:
        """Form a communicator; the listener is closed if that succeeds, as NCCL does it."""
        kept = [ctypes.create_string_buffer(each, HANDLE_BYTES) for each in handles]
        pointers = (ctypes.c_void_p * len(kept))(*map(ctypes.addressof, kept))
        out = ctypes.c_void_p()
        self.check("connect", pointers, self.size, self.rank, listening, ctypes.byref(out))
        assert out.value is not None
        self.check("closeListen", listening)
        return Comm(self, out.value)

    def form(self) -> Comm:
        """Listen, exchange handles, connect."""
        handle, listening = self.listen()
        return self.connect(self.gather(handle), listening)

    def finalize(self) -> None:
        """End as NCCL does; only newer versions have it."""
        if self.version >= 11:
            assert self.plugin.net("finalize", self._net_context) == 0
            self.check("finalize", self._context)


Body = Callable[..., Any]


def _serve(pipe: Connection, host: Host | None, environment: dict[str, str], *call: Any) -> None:
    body, version, rank, size, arguments = call
    if host is not None:
        host.enter()
    # The server that nodes are forked from has its environment from an earlier test.
    for name in [name for name in os.environ if name.startswith(("AFFLUX_", "NCCL_"))]:
        if name != "AFFLUX_BUILD":
            del os.environ[name]
    os.environ.update(environment)

    def gather(value: Any) -> list[Any]:
        pipe.send(("gather", value))
        found: list[Any] = pipe.recv()
        return found

    try:
        pipe.send(("over", body(Node(version, rank, size, gather), *arguments)))
    except BaseException as error:
        pipe.send(("raised", f"{type(error).__name__}: {error}"))
    pipe.close()


def run_nodes(
    body: Body,
    size: int,
    *arguments: Any,
    environment: Mapping[str, str],
    own: Mapping[int, Mapping[str, str]] | None = None,
    version: int | Sequence[int] = 12,
    hosts: Sequence[Host] = (),
    limit_s: float = 60.0,
    may_fail: bool = False,
    may_die: Sequence[int] = (),
    between: Callable[[], object] | None = None,
) -> list[Any]:
    """Run `body(node, *arguments)` at each node; return their values, by rank.

    Args:
        body: A function of a module; its value must be picklable.
        size: Nodes.
        arguments: For `body`.
        environment: Variables of all nodes.
        own: Variables of single nodes in addition, by rank.
        version: Of the tables; a list has that of each node.
        hosts: A host of a network for each node; none: all are where this process is.
        limit_s: A node that takes longer fails the test.
        may_fail: Whether an error of a node is its value, and not the test's.
        may_die: Nodes that may end without a value.
        between: Called when all nodes have gathered None.
    """
    pipes: dict[Connection, int] = {}
    processes = []
    for rank in range(size):
        ours, theirs = context.Pipe()
        variables = {**environment, **(own or {}).get(rank, {})}
        host = hosts[rank] if hosts else None
        own_version = version if isinstance(version, int) else version[rank]
        call = body, own_version, rank, size, arguments
        process = context.Process(target=_serve, args=(theirs, host, variables, *call))
        process.start()
        theirs.close()
        pipes[ours] = rank
        processes.append(process)
    found: list[Any] = [None] * size
    gathered: dict[int, tuple[Connection, Any]] = {}
    until = time.monotonic() + limit_s
    try:
        while pipes:
            ready = wait(list(pipes), timeout=max(0.0, until - time.monotonic()))
            assert ready, f"nodes {sorted(pipes.values())} are not over in {limit_s:g} s"
            for each in ready:
                assert isinstance(each, Connection)
                rank = pipes[each]
                try:
                    kind, value = each.recv()
                except EOFError:
                    assert rank in may_die, f"node {rank} died"
                    del pipes[each]
                    continue
                if kind == "gather":
                    gathered[rank] = each, value
                    continue
                assert kind == "over" or may_fail, f"node {rank}: {value}"
                found[rank] = value
                del pipes[each]
            if gathered and len(gathered) == len(pipes):
                values = [gathered[rank][1] if rank in gathered else None for rank in range(size)]
                for connection, _ in gathered.values():
                    connection.send(values)
                gathered.clear()
                if between is not None and values[0] is None:
                    between()
        for process in processes:
            process.join(max(0.1, until - time.monotonic()))
    finally:
        for process in processes:
            with contextlib.suppress(ValueError):
                if process.is_alive():
                    process.kill()
                process.join()
    return found
