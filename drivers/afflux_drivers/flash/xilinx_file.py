"""Bitstream files of AMD's FPGAs as Vivado writes them, .bit.

Before the words for the FPGA stands a header: a length and so many bytes that are always the same,
then fields of one letter, a length of two bytes and a text: `a` the design and the version of
Vivado, `b` the part, `c` and `d` date and time, `e` a length of four bytes and the words.
"""

import hashlib
from pathlib import Path

from afflux_drivers.flash.errors import FlashRefused
from afflux_drivers.flash.image import Image

__all__ = ["SYNC_WORD", "read_bit"]

_MAGIC = bytes.fromhex("0009 0ff0 0ff0 0ff0 0ff0 00 0001")
SYNC_WORD = bytes.fromhex("aa995566")
"""The word for which the FPGA waits, after padding and the words that show the width of the bus."""

_SYNC_WITHIN = 4096

_WRITE_IDCODE = bytes.fromhex("30018001")
"""Type 1 packet: one word to the register IDCODE, which the FPGA compares with its own (UG570)."""

_IDCODE_WITHIN = 4096


def read_bit(path: Path, data: bytes) -> Image:
    """Look at a .bit file.

    Raises:
        FlashRefused: It is none, or too short for what its header says.
    """
    if not data.startswith(_MAGIC):
        raise FlashRefused(
            f"{path} begins with {data[:4].hex(' ')}: it is not a .bit file as Vivado writes it"
        )
    fields, words = _fields(path, data, len(_MAGIC))
    if SYNC_WORD not in words[:_SYNC_WITHIN]:
        raise FlashRefused(f"{path}: there is no synchronisation word: it is not a bitstream")
    part = fields.get("b", "")
    if not part:
        raise FlashRefused(f"{path}: its header does not name a part")
    return Image(
        path=path,
        kind="bit",
        part=part,
        idcode=_idcode(words),
        start=None,
        size=len(words),
        digest=hashlib.sha256(data).hexdigest(),
        content=data,
    )


def _idcode(words: bytes) -> int | None:
    """Return the identity that the words themselves name; None if it is not among the first.

    A header is text that anybody may have changed.
    """
    start = words.index(SYNC_WORD) + len(SYNC_WORD)
    for place in range(start, min(start + _IDCODE_WITHIN, len(words) - 7), 4):
        if words[place : place + 4] == _WRITE_IDCODE:
            return int.from_bytes(words[place + 4 : place + 8], "big")
    return None


def _fields(path: Path, data: bytes, place: int) -> tuple[dict[str, str], bytes]:
    fields: dict[str, str] = {}
    while True:
        letter = data[place : place + 1].decode("latin-1")
        if letter == "e":
            size = int.from_bytes(data[place + 1 : place + 5], "big")
            words = data[place + 5 :]
            if len(words) != size or not size:
                raise FlashRefused(
                    f"{path}: its header says {size} bytes, and {len(words)} follow: the file is "
                    "truncated or damaged"
                )
            return fields, words
        size = int.from_bytes(data[place + 1 : place + 3], "big")
        text = data[place + 3 : place + 3 + size]
        if letter not in "abcd" or not letter or len(text) != size:
            raise FlashRefused(f"{path}: its header is damaged at byte {place}")
        fields[letter] = text.rstrip(b"\0").decode("latin-1")
        place += 3 + size
