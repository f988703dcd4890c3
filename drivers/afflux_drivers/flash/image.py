"""An image that may be loaded: what all kinds of bitstream files say about themselves."""

from dataclasses import dataclass
from pathlib import Path

from afflux_drivers.flash.errors import FlashRefused

__all__ = ["Image", "read_file"]

_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Image:
    """What was found in a bitstream file.

    Attributes:
        path: The file.
        kind: "bit", "svf" or "mcs".
        part: FPGA and package that it names; empty if it names none.
        idcode: JTAG identity that it expects; None if it has none.
        start: First address in a flash that it says itself; None if it says none.
        size: Bytes that it takes from there.
        digest: SHA-256 of the file.
    """

    path: Path
    kind: str
    part: str
    idcode: int | None
    start: int | None
    size: int
    digest: str


def read_file(path: Path) -> bytes:
    """Return what a file has.

    Raises:
        FlashRefused: It cannot be read, is empty, or is larger than any bitstream.
    """
    try:
        # A FIFO or a device would be waited for.
        if not path.is_file():
            raise FlashRefused(f"{path}: there is no such file")
        size = path.stat().st_size
        if not 0 < size <= _MOST_BYTES:
            raise FlashRefused(f"{path}: a file of {size} bytes is no bitstream")
        return path.read_bytes()
    except OSError as error:
        raise FlashRefused(f"{path}: cannot read it: {error.strerror}") from None
