"""Write an appliance out as Verilog, from RGMII pins to RGMII pins with its clocks as pins.

`python -m afflux_hdl.boards.verilog -o DIR` writes what simulations run: module `afflux_rgmii`
(`afflux_hdl.boards.ecp5_top`) with the management, and settings that nobody uses. Bitstreams are
made from the tops of boards, by `python -m afflux_hdl.boards`.

Tested: `tests/sim/test_verilated_board.py`.
"""

import argparse
import sys
from pathlib import Path

from afflux_hdl.boards.ecp5_top import APPLIANCE_MODULE, generate_appliance
from afflux_hdl.boards.placed_settings import PLACEHOLDER
from afflux_hdl.management.management import Management
from afflux_hdl.node.options import add_node_options, node_from_options

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Write an appliance out as Verilog.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder to write into")
    parser.add_argument("--clock-hz", type=int, default=50_000_000, help="of the engine")
    parser.add_argument("--entropy-blocks", type=int, default=64)
    parser.add_argument("--entropy-spacing-bits", type=int, default=6)
    add_node_options(parser)
    options = parser.parse_args(arguments)
    try:
        management = Management(
            settings=PLACEHOLDER,
            clock_hz=options.clock_hz,
            entropy_blocks=options.entropy_blocks,
            entropy_spacing_bits=options.entropy_spacing_bits,
        )
        text = generate_appliance(node_from_options(options), management)
    except ValueError as error:
        sys.exit(f"error: {error}")
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"{APPLIANCE_MODULE}.v"
    path.write_text(text)
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
