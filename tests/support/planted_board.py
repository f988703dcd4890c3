"""The simulated board from a copy of its sources, with a bug planted in them."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import afflux_hdl
from afflux_hdl.contract.management import Settings
from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.settings_file import settings_from_file
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import BOARD, build_library
from afflux_sim.rtl.verilated_board import BoardClocks, BoardParameters, VerilatedBoard
from tests.support.checkout import BUILD
from tests.support.planting import Bug, copy_package
from tests.support.shadow import environment_with

__all__ = ["planted_board"]


@contextmanager
def planted_board(
    name: str, bug: Bug, parameters: BoardParameters, settings: Settings, clocks: BoardClocks
) -> Iterator[VerilatedBoard]:
    """Open a simulated board with a bug.

    Args:
        name: Of the copy of the sources, below `build/tests/planted`; no two bugs have the same.
        bug: The bug; its file is given below `afflux_hdl`.
        parameters: The board's sizes.
        settings: Its settings.
        clocks: Its clocks.
    """
    folder = BUILD / "tests" / "planted" / f"board-{name.replace(' ', '-')}"
    shutil.rmtree(folder, ignore_errors=True)
    copy_package(afflux_hdl, folder, bug)
    sizes = asdict(parameters.node)
    options = {
        **sizes.pop("engine"),
        **sizes,
        "clock_hz": parameters.clock_hz,
        "entropy_blocks": parameters.entropy_blocks,
        "entropy_spacing_bits": parameters.entropy_spacing_bits,
    }
    command = [sys.executable, "-m", "afflux_hdl.boards.verilog", "-o", str(folder)]
    for option, value in options.items():
        command += [f"--{option.replace('_', '-')}", str(value)]
    subprocess.run(command, env=environment_with(folder), check=True, capture_output=True)
    verilog = settings_from_file((folder / "afflux_rgmii.v").read_text())
    library = build_library(find_toolchain(), default_folder(), verilog, 32, model=BOARD)
    ports = parameters.node.engine.ports
    with VerilatedBoard.from_library(library, settings, clocks, ports=ports) as board:
        yield board
