"""Flash images in Intel's hexadecimal format, .mcs: lines of `:`, length, address, type, data, sum.

Types: 00 data, 01 end, 02 and 04 the address above 16 bits. Each line has a checksum; here all are
verified, since the addresses decide what is overwritten.
"""

import hashlib
import io
from pathlib import Path

from afflux_drivers.flash.errors import FlashRefused
from afflux_drivers.flash.image import Image
from afflux_drivers.flash.xilinx_file import SYNC_WORD

__all__ = ["read_mcs"]

_DATA, _END, _SEGMENT, _LINEAR = 0, 1, 2, 4
_SEGMENT_BYTES = 1 << 16
_SYNC_WITHIN = 4096
_SWAPPED = bytes(int(f"{octet:08b}"[::-1], 2) for octet in SYNC_WORD)


def read_mcs(path: Path, data: bytes) -> Image:
    """Look at an .mcs file: its lines, and from where to where it reaches.

    Raises:
        FlashRefused: A line is wrong, the end is missing, or there is no bitstream in it.
    """
    base, first, end, ended = 0, None, 0, False
    beginning = bytearray()
    for number, line in enumerate(io.BytesIO(data), 1):
        text = line.strip()
        if not text:
            continue
        if ended:
            raise FlashRefused(f"{path}, line {number}: there is more after the end")
        record = _record(path, number, text)
        kind, content = record[3], record[4:-1]
        within = int.from_bytes(record[1:3], "big")
        address = base + within
        if kind == _DATA:
            if within + len(content) > _SEGMENT_BYTES:
                # Some tools go on with the next 64 KiB, some at the beginning of these.
                raise FlashRefused(f"{path}, line {number} reaches beyond its 64 KiB")
            if address < (address if first is None else first):
                raise FlashRefused(f"{path}, line {number}: addresses go down to {address:#x}")
            first = address if first is None else first
            if address <= first + len(beginning) < first + _SYNC_WITHIN:
                beginning[address - first :] = content
            end = max(end, address + len(content))
        elif kind == _END:
            ended = True
        elif kind in (_SEGMENT, _LINEAR) and len(content) == 2:
            base = int.from_bytes(content, "big") << (4 if kind == _SEGMENT else 16)
        elif kind not in (3, 5):
            raise FlashRefused(f"{path}, line {number}: a record of type {kind} is not known here")
    if not ended:
        raise FlashRefused(f"{path}: its end is missing: the file is truncated")
    if first is None or not (SYNC_WORD in beginning or _SWAPPED in beginning):
        raise FlashRefused(f"{path}: there is no bitstream at its first address")
    return Image(
        path=path,
        kind="mcs",
        part="",
        idcode=None,
        start=first,
        size=end - first,
        digest=hashlib.sha256(data).hexdigest(),
        content=data,
    )


def _record(path: Path, number: int, text: bytes) -> bytes:
    """Return the bytes of a line, checked."""
    try:
        record = bytes.fromhex(text[1:].decode("ascii")) if text[:1] == b":" else b""
    except ValueError:
        record = b""
    if len(record) < 5 or len(record) != 5 + record[0]:
        raise FlashRefused(f"{path}, line {number} is not a line of an .mcs file")
    if sum(record) & 0xFF:
        raise FlashRefused(f"{path}, line {number}: its checksum is wrong: the file is damaged")
    return record
