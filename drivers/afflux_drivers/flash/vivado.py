"""Vivado's hardware manager: the scripts that load Alveo cards over JTAG. Not run here: no Vivado.

An .mcs file is made in one run and programmed in another, so that it is looked at in between: where
it reaches to does not depend on what a script asked for.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from afflux_drivers.flash.boards import FlashBoard
from afflux_drivers.flash.checks import check_place, read_image
from afflux_drivers.flash.errors import FlashFailed
from afflux_drivers.flash.image import Image
from afflux_drivers.flash.runner import Runner

__all__ = ["find_vivado", "flash_script", "image_script", "load_script", "prepare_vivado"]

_SRAM_LIMIT_S = 600.0
_FLASH_LIMIT_S = 3600.0
_MIB = 1 << 20


def find_vivado() -> str:
    """Return the program that runs scripts of the hardware manager.

    Raises:
        FlashFailed: There is none.
    """
    for name in ("vivado", "vivado_lab"):
        if found := shutil.which(name):
            return found
    raise FlashFailed(
        "neither vivado nor vivado_lab is on PATH: source its settings64.sh. The Lab Edition is "
        "free and does all that is needed here"
    )


def _quoted(text: object) -> str:
    """Return a word of Tcl that stands for exactly this text."""
    escaped = "".join(f"\\{sign}" if sign in '\\"$[]{}' else sign for sign in str(text))
    return f'"{escaped}"'


def _open(board: FlashBoard, hw_device: str | None, target: str | None) -> str:
    """Return the lines that find the one FPGA that is meant, or end with what there is."""
    glob = hw_device or board.device_glob
    chosen = f"open_hw_target {_quoted(target)}" if target else "open_hw_target"
    return f"""\
open_hw_manager
connect_hw_server -allow_non_jtag
{chosen}
set glob {_quoted(glob)}
set devices [get_hw_devices -quiet $glob]
if {{[llength $devices] != 1}} {{
    puts "AFFLUX: {board.name} should be one device $glob; there are: [get_hw_devices]"
    exit 3
}}
set device [lindex $devices 0]
current_hw_device $device
refresh_hw_device -update_hw_probes false $device
"""


def load_script(
    board: FlashBoard, bitstream: Path, hw_device: str | None = None, target: str | None = None
) -> str:
    """Return the script that loads the FPGA until the next power cycle."""
    return f"""\
{_open(board, hw_device, target)}set_property PROBES.FILE {{}} $device
set_property FULL_PROBES.FILE {{}} $device
set_property PROGRAM.FILE {_quoted(bitstream)} $device
program_hw_devices $device
refresh_hw_device $device
close_hw_manager
exit 0
"""


def image_script(board: FlashBoard, bitstream: Path, image: Path, offset: int) -> str:
    """Return the script that makes a flash image of a bitstream."""
    place = board.partitions[0]
    flash_mib = (place.offset + place.size) // _MIB
    load = f"up {offset:#010x} {bitstream}"
    return f"""\
write_cfgmem -force -format mcs -size {flash_mib} -interface SPIx4 \\
    -loadbit {_quoted(load)} -file {_quoted(image)}
exit 0
"""


def flash_script(
    board: FlashBoard, image: Path, hw_device: str | None = None, target: str | None = None
) -> str:
    """Return the script that writes a flash image, verifies it, and starts the FPGA from it.

    Only the sectors that the image has are erased (`use_file`).
    """
    return f"""\
{_open(board, hw_device, target)}set parts [get_cfgmem_parts {_quoted(board.flash_part)}]
create_hw_cfgmem -hw_device $device [lindex $parts 0]
set memory [get_property PROGRAM.HW_CFGMEM $device]
set_property PROGRAM.ADDRESS_RANGE {{use_file}} $memory
set_property PROGRAM.FILES [list {_quoted(image)}] $memory
set_property PROGRAM.UNUSED_PIN_TERMINATION {{pull-none}} $memory
set_property PROGRAM.BLANK_CHECK 0 $memory
set_property PROGRAM.ERASE 1 $memory
set_property PROGRAM.CFG_PROGRAM 1 $memory
set_property PROGRAM.VERIFY 1 $memory
set_property PROGRAM.CHECKSUM 0 $memory
create_hw_bitstream -hw_device $device [get_property PROGRAM.HW_CFGMEM_BITFILE $device]
program_hw_devices $device
refresh_hw_device -update_hw_probes false $device
program_hw_cfgmem -hw_cfgmem $memory
boot_hw_device $device
close_hw_manager
exit 0
"""


def prepare_vivado(
    board: FlashBoard,
    image: Image,
    *,
    offset: int | None,
    folder: Path,
    runner: Runner,
    hw_device: str | None = None,
    target: str | None = None,
    limit_s: float | None = None,
) -> Callable[[], None]:
    """Return what loads an image into the FPGA, or writes it to the flash and starts from there.

    A flash image has been made of a .bit file then, and looked at.

    Args:
        board: The board.
        image: The image, which has been checked.
        offset: Where in the flash; None loads it into the FPGA, until that is switched off.
        folder: For scripts and the flash image.
        runner: Runs the programs.
        hw_device: The name of the FPGA in the hardware manager, if not as usual.
        target: The JTAG target, if there are several.
        limit_s: Seconds for each run; None for the usual ones.

    Raises:
        FlashFailed: There is no Vivado, or it fails.
        FlashRefused: The image that Vivado has made would reach beyond its partition.
    """
    program = "vivado" if runner.dry else find_vivado()
    path = image.file

    def run(script: str, usual_s: float) -> None:
        file = folder / "flash.tcl"
        runner.do(f"write {file}:\n{script.rstrip()}", lambda: file.write_text(script))
        words = ["-mode", "batch", "-nojournal", "-nolog", "-notrace", "-source", str(file)]
        runner.run([program, *words], limit_s=usual_s if limit_s is None else limit_s)

    if offset is None:
        return lambda: run(load_script(board, path, hw_device, target), _SRAM_LIMIT_S)
    if image.kind == "bit":
        made = folder / "image.mcs"
        run(image_script(board, path, made, offset), _SRAM_LIMIT_S)
        if runner.dry:
            runner.say(f"({made.name} is looked at: all of it must lie in its partition)")
        else:
            check_place(board, read_image(board, made), None, offset)
        path = made
    return lambda: run(flash_script(board, path, hw_device, target), _FLASH_LIMIT_S)
