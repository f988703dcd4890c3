"""Whether a file may go to a place of a board. The refused cases could brick a card."""

from pathlib import Path

from afflux_drivers.flash import lattice_file, mcs_file, xilinx_file
from afflux_drivers.flash.boards import FlashBoard
from afflux_drivers.flash.errors import FlashRefused
from afflux_drivers.flash.image import Image, read_file
from afflux_drivers.flash.report import Report

__all__ = ["check_image", "check_place", "normal_part", "read_image"]

_ERASED_AT_ONCE = 4096
"""The smallest sector of these flashes: an image must begin at one."""


def read_image(board: FlashBoard, path: Path) -> Image:
    """Read a file of a kind that the board takes.

    Raises:
        FlashRefused: It takes no such files, or this is not one, or is damaged.
    """
    kinds = {
        "lattice": {".bit": lattice_file.read_bit, ".svf": lattice_file.read_svf},
        "xilinx": {".bit": xilinx_file.read_bit, ".mcs": mcs_file.read_mcs},
    }[board.maker]
    read = kinds.get(path.suffix.lower())
    if read is None:
        raise FlashRefused(f"{path}: {board.name} takes {' and '.join(kinds)} files")
    return read(path, read_file(path))


def normal_part(name: str) -> str:
    """Return a part's name without what differs between tools: speed grade, prefix, case.

    lfe5u-25f-cabga256 for LFE5U-25F-6CABGA256, xcu50-fsvh2104 for xcu50-fsvh2104-2-e.
    """
    words = name.lower().split("-")
    if words[0].startswith("lfe5") and len(words) == 3:
        return "-".join([*words[:2], words[2].lstrip("0123456789")])
    device = words[0] if words[0].startswith("xc") else f"xc{words[0]}"
    return "-".join([device, *words[1:2]])


def check_image(board: FlashBoard, image: Image, report: Report | None) -> None:
    """Check that an image is for this board's part.

    Raises:
        FlashRefused: It is for another one, or nobody knows for which.
    """
    part = image.part or (report.part if report is not None else "")
    if image.idcode is not None and board.idcodes and not _fits(board, image.idcode):
        expected = ", ".join(f"{each:#010x}" for each in sorted(board.idcodes))
        raise FlashRefused(
            f"{image.path} is for the part with the identity {image.idcode:#010x}; {board.name} "
            f"has {board.part} ({expected})"
        )
    if part and normal_part(part) != normal_part(board.part):
        raise FlashRefused(f"{image.path} is for {part}; {board.name} has {board.part}")
    if not part and image.idcode is None:
        raise FlashRefused(
            f"{image.path} does not say for which part it is, and no report beside it does: give "
            "the .bit file, of which the flash image is made here"
        )
    if report is not None and report.board and report.board != board.name:
        raise FlashRefused(f"{report.path}: this was built for {report.board}, not {board.name}")
    if report is not None and report.missed:
        raise FlashRefused(
            f"{report.path}: {image.path} misses its clocks ({', '.join(report.missed)}), so it "
            "may compute wrong values: make it with further seeds, or with smaller sizes"
        )


def _fits(board: FlashBoard, idcode: int) -> bool:
    # The upper four bits of AMD's are the revision of the silicon.
    mask = 0x0FFF_FFFF if board.maker == "xilinx" else 0xFFFF_FFFF
    return any(not (idcode ^ each) & mask for each in board.idcodes)


def check_place(board: FlashBoard, image: Image, partition: str | None, offset: int | None) -> int:
    """Return at which offset of the flash an image begins.

    Args:
        board: The board.
        image: The image to write.
        partition: Name of the partition; None is the usual one.
        offset: The offset on the command line; None is the beginning of the partition.

    Raises:
        FlashRefused: Not all of it would be inside the partition.
    """
    place = board.partition(partition)
    start = image.start if image.start is not None else place.offset if offset is None else offset
    if offset is not None and start != offset:
        raise FlashRefused(f"{image.path} begins at {start:#010x}, and --offset is {offset:#010x}")
    if start < place.offset:
        raise FlashRefused(
            f"{image.path} would be written from {start:#010x}, below {place.offset:#010x}, where "
            f"the partition {place.name!r} of {board.name} begins. The flash below restores a card "
            "that does not start, so nothing here writes to it (AMD answer record 71915)"
            if board.tool == "vivado"
            else f"{image.path} would be written from {start:#010x}, below {place.offset:#010x}, "
            f"where the partition {place.name!r} of {board.name} begins"
        )
    if start % _ERASED_AT_ONCE:
        raise FlashRefused(
            f"an image must begin at a multiple of {_ERASED_AT_ONCE}, not at {start:#010x}: what "
            "is erased for it would reach before it"
        )
    if start + image.size > place.offset + place.size:
        raise FlashRefused(
            f"{image.path} has {image.size} bytes and would end at {start + image.size:#010x}, "
            f"after the end of the partition {place.name!r} of {board.name} at "
            f"{place.offset + place.size:#010x}"
        )
    return start
