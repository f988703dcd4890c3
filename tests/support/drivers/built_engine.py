"""The native software engine, built by a test from its sources, with a bug in them or without."""

import ctypes
import hashlib
import os
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from afflux_hdl.contract.registers import WriteRefused
from tests.support.checkout import BUILD
from tests.support.drivers.native_builds import OBJECTS, SOURCES, compiler
from tests.support.planting import Bug

FOLDER = BUILD / "tests" / "engine"


def build(bug: Bug | None = None) -> ctypes.CDLL:
    """Return the engine as a library; it is built again only if a source has changed."""
    parts = [*(SOURCES / "packet").glob("*.*pp"), *(SOURCES / "engine").glob("*.*pp")]
    sources = {path: path.read_text() for path in sorted(parts)}
    if bug is not None:
        path = SOURCES / bug.file
        sources[path] = bug.planted_in(sources[path])
    front = Path(__file__).with_name("engine_library.cpp")
    contract = sorted((SOURCES / "contract").glob("*.hpp"))
    texts = [*sources.values(), *(path.read_text() for path in [front, *contract])]
    digest = hashlib.sha256("\0".join([compiler(), *texts]).encode()).hexdigest()[:16]
    folder = FOLDER / digest
    library = folder / "engine.so"
    if not library.exists():
        for path, text in sources.items():
            copy = folder / path.relative_to(SOURCES)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text)
        # One translation unit: the headers are read once, and the sources are small.
        parts = [front, *folder.glob("*/*.cpp")]
        whole = folder / "whole.cpp"
        whole.write_text("".join(f'#include "{path}"\n' for path in parts))
        # Written aside, as another test process may do the same.
        aside = folder / f"engine.{os.getpid()}.so"
        options = ["-std=c++20", "-O1", "-fPIC", "-shared", f"-I{folder}", f"-I{SOURCES}"]
        archives = [str(OBJECTS / f"lib{part}.a") for part in ("sums", "arithmetic")]
        subprocess.run([compiler(), *options, "-o", str(aside), str(whole), *archives], check=True)
        aside.rename(library)
    found = ctypes.CDLL(str(library))
    found.engine_problem.restype = ctypes.c_char_p
    found.engine_new.restype = ctypes.c_void_p
    found.engine_delete.argtypes = [ctypes.c_void_p]
    found.engine_read.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    found.engine_read.restype = ctypes.c_uint32
    found.engine_write.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32]
    found.engine_receive.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    found.engine_send.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]
    found.engine_send.restype = ctypes.c_size_t
    return found


class BuiltEngine:
    """An engine of such a library; see `afflux_drivers.aggregator.engine.Engine`."""

    name = "soft"

    def __init__(
        self,
        library: ctypes.CDLL,
        workers: int = 64,
        lanes: int = 16,
        jobs: int = 8,
        slots: int = 512,
    ) -> None:
        self._library = library
        self._handle = library.engine_new(workers, lanes, jobs, slots)
        self._check(ValueError)

    def __del__(self) -> None:
        self._library.engine_delete(self._handle)

    def play(self, frames: Sequence[bytes]) -> list[bytes]:
        for frame in frames:
            self._library.engine_receive(self._handle, frame, len(frame))
            self._check(RuntimeError)
        address = ctypes.c_void_p()
        length = self._library.engine_send(self._handle, ctypes.byref(address))
        sent = ctypes.string_at(address, length) if length else b""
        out, at = [], 0
        while at < len(sent):
            (size,) = struct.unpack_from("<I", sent, at)
            out.append(sent[at + 4 : at + 4 + size])
            at += 4 + size
        return out

    feed = play

    def read(self, address: int) -> int:
        return self._library.engine_read(self._handle, address)

    def write(self, address: int, value: int) -> None:
        self._library.engine_write(self._handle, address, value)
        self._check(WriteRefused)

    def close(self) -> None:
        pass

    def _check(self, kind: type[Exception]) -> None:
        problem = self._library.engine_problem().decode()
        if problem:
            raise kind(problem)
