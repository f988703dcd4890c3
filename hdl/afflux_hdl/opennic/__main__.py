"""`python -m afflux_hdl.opennic`: write the plugin for a card."""

import argparse
import sys
from pathlib import Path

from afflux_hdl.node.options import add_node_options, node_from_options
from afflux_hdl.opennic.parameters import BoxParameters
from afflux_hdl.opennic.plugin import write_plugin
from afflux_hdl.opennic.streams import BUS_BITS
from afflux_hdl.vivado.alveo import ALVEO

__all__ = ["main"]

FIXED = ("bus_bits", "ports")
"""Sizes of the engine that follow from the shell and from the ports of the box."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m afflux_hdl.opennic", description=__doc__)
    parser.add_argument("--board", required=True, help=", ".join(ALVEO))
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder to write into")
    parser.add_argument("--ports", type=int, default=1, help="100-Gbit/s ports (%(default)s)")
    parser.add_argument("--nodes", type=int, default=1, help="1, or one a port (%(default)s)")
    parser.add_argument("--functions", type=int, help="streams of the host (one for each port)")
    default = BoxParameters.port_buffer_bytes
    parser.add_argument("--port-buffer-bytes", type=int, default=default)
    add_node_options(parser, FIXED)
    # The shell's clock has 250 MHz, which ask for it.
    parser.set_defaults(ram_output_register=1)
    options = parser.parse_args(arguments)
    try:
        ports, nodes = options.ports, options.nodes
        # Too many or too few of the box are its own to refuse.
        shared = min(max(ports, 1), 8) if nodes == 1 else 1
        parameters = BoxParameters(
            node=node_from_options(options, bus_bits=BUS_BITS, ports=shared),
            ports=ports,
            nodes=nodes,
            functions=options.functions or ports,
            port_buffer_bytes=options.port_buffer_bytes,
        )
        written = write_plugin(options.board, parameters, options.output)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    sys.stdout.write("".join(f"{path}\n" for path in written))


if __name__ == "__main__":
    main()
