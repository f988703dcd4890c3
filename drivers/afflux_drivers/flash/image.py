"""An image that may be loaded: what all kinds of bitstream files say about themselves."""

import os
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path

from afflux_drivers.flash.errors import FlashFailed, FlashRefused

__all__ = ["Image", "read_file"]

_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Image:
    """The fields that were found in a bitstream file.

    Attributes:
        path: The file, as it was named.
        kind: "bit", "svf" or "mcs".
        part: FPGA and package that it names; empty if it names none.
        idcode: JTAG identity that it expects; None if it has none.
        start: First address in a flash that it says itself; None if it says none.
        size: Bytes that it takes from there.
        digest: SHA-256 of the file.
        content: The bytes that were read.
        copy: A file that has this content; None: there is none, and `path` had it.
    """

    path: Path
    kind: str
    part: str
    idcode: int | None
    start: int | None
    size: int
    digest: str
    content: bytes = field(repr=False)
    copy: Path | None = None

    @property
    def file(self) -> Path:
        """The file that programs are given: an absolute path, which no program takes for a word."""
        return (self.copy or self.path).absolute()

    def copied(self, folder: Path) -> "Image":
        """Return the same, with a copy in a folder that only this user can write to.

        Programs read it again, minutes later: what they load is what was looked at, whatever has
        become of the file meanwhile.

        Raises:
            FlashFailed: There is no space for it.
        """
        copy = folder / f"image.{self.kind}"
        try:
            copy.write_bytes(self.content)
        except OSError as error:
            raise FlashFailed(f"cannot copy {self.path} to {copy}: {error.strerror}") from None
        return replace(self, copy=copy)


def read_file(path: Path) -> bytes:
    """Return what a file has.

    Raises:
        FlashRefused: It cannot be read, is empty, or is larger than any bitstream.
    """
    try:
        # A FIFO would be waited for.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise FlashRefused(f"{path}: cannot read it: {error.strerror}") from None
    try:
        # Of the file that is open, whatever has its name by now.
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise FlashRefused(f"{path} is not a regular file")
        if not 0 < status.st_size <= _MOST_BYTES:
            raise FlashRefused(f"{path}: a file of {status.st_size} bytes is not a bitstream")
        with open(number, "rb", closefd=False) as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise FlashRefused(f"{path}: cannot read it: {error.strerror}") from None
    finally:
        os.close(number)
