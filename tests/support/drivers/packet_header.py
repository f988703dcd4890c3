"""The Afflux header as tests take it apart and put it together."""

import struct
from typing import NamedTuple

from afflux_hdl.contract import wire

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}

HEADER = struct.Struct("<" + "".join(_CODES[field.size] for field in wire.FIELDS))
"""Packs and unpacks the 22 header bytes, in wire order."""


class Header(NamedTuple):
    """The fields of the Afflux header, in wire order."""

    version_type: int
    opcode_dtype: int
    job: int
    worker: int
    slot: int
    present: int
    round: int
    key: int
    operation: int

    @property
    def type(self) -> int:
        """Packet type, a `wire.Type` if it is a known one."""
        return self.version_type & 15


if Header._fields != tuple(field.name for field in wire.FIELDS):
    raise ImportError(f"Header lists {Header._fields}, the contract {wire.FIELDS}")
