"""Bitstream files of the ECP5, as ecppack writes them: .bit for a loader, .svf for JTAG players.

A .bit begins with 0xFF 0x00 and texts that end in zeros, one of them "Part: LFE5U-25F-6CABGA256".
0xFF, and the preamble 0xFF 0xFF 0xBD 0xB3 begin the commands (Lattice FPGA-TN-02039). One of the
first is VERIFY_ID with the JTAG identity of the part; the last is ISC_PROGRAM_DONE.
"""

import hashlib
import re
from pathlib import Path

from afflux_drivers.flash.errors import FlashRefused
from afflux_drivers.flash.image import Image

__all__ = ["read_bit", "read_svf"]

_MAGIC = b"\xff\x00"
_PREAMBLE = b"\xff\xff\xbd\xb3"
_VERIFY_ID = 0xE2
_BYPASS = 0xFF
_RESET_CRC = 0x3B
_COMMAND_BYTES = 4
_DONE = b"\x5e\x00\x00\x00"
_PART = re.compile(rb"Part:\s*([^\s\0]+)")
_SVF_ID = re.compile(
    rb"SIR\s+8\s+TDI\s*\(E0\);\s*SDR\s+32\s+TDI\s*\(0+\)\s*TDO\s*\(([0-9A-F]{8})\)"
    rb"\s*MASK\s*\(FFFFFFFF\);",
    re.IGNORECASE,
)
# Configuration is left, and the status must show that it was taken.
_SVF_DONE = re.compile(
    rb"SIR\s+8\s+TDI\s*\(26\);.*TDO\s*\(00000100\)\s*MASK\s*\(00002100\);\s*$",
    re.IGNORECASE | re.DOTALL,
)


def read_bit(path: Path, data: bytes) -> Image:
    """Look at a .bit file.

    Raises:
        FlashRefused: It is none of an ECP5, or its end is missing.
    """
    if not data.startswith(_MAGIC):
        raise FlashRefused(
            f"{path} begins with {data[:2].hex(' ')}, not {_MAGIC.hex(' ')}: it is not a bitstream "
            "of an ECP5"
        )
    start = data.find(_PREAMBLE, len(_MAGIC))
    if start < 0:
        raise FlashRefused(f"{path}: there is no preamble: it is not a bitstream of an ECP5")
    part = _PART.search(data[:start])
    idcode = _idcode(data, start + len(_PREAMBLE))
    if idcode is None:
        raise FlashRefused(
            f"{path}: it does not say for which part it is (VERIFY_ID), so no FPGA could refuse it"
        )
    if not data.rstrip(b"\xff").endswith(_DONE):
        raise FlashRefused(f"{path}: its end is missing (ISC_PROGRAM_DONE): the file is truncated")
    return Image(
        path=path,
        kind="bit",
        part=part[1].decode("latin-1") if part else "",
        idcode=idcode,
        start=None,
        size=len(data),
        digest=hashlib.sha256(data).hexdigest(),
        content=data,
    )


def _idcode(data: bytes, place: int) -> int | None:
    """Return the identity of the first commands, of which those before VERIFY_ID are known."""
    while place < len(data) and data[place] == _BYPASS:
        place += 1
    if data[place : place + 1] == bytes([_RESET_CRC]):
        place += _COMMAND_BYTES
    if data[place : place + 1] != bytes([_VERIFY_ID]) or place + 8 > len(data):
        return None
    return int.from_bytes(data[place + 4 : place + 8], "big")


def read_svf(path: Path, data: bytes) -> Image:
    """Look at an .svf file.

    Raises:
        FlashRefused: It does not check the identity of a part, or its end is missing.
    """
    found = _SVF_ID.search(data[:4096])
    if found is None:
        raise FlashRefused(
            f"{path}: it does not check the identity of the part: not one of ecppack"
        )
    if not _SVF_DONE.search(data[-4096:]):
        raise FlashRefused(f"{path}: its end is missing: the file is truncated")
    return Image(
        path=path,
        kind="svf",
        part="",
        idcode=int(found[1], 16),
        start=None,
        size=len(data),
        digest=hashlib.sha256(data).hexdigest(),
        content=data,
    )
