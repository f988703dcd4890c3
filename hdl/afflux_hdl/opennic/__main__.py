"""`python -m afflux_hdl.opennic`: write the plugin for a card."""

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.opennic.boards import ALVEO
from afflux_hdl.opennic.parameters import BoxParameters
from afflux_hdl.opennic.plugin import write_plugin

__all__ = ["main"]

FIXED = ("bus_bits", "ports")
"""Parameters of the engine that follow from the shell and from the ports of the box."""

NODE_NAMES = ("host_buffer_bytes", "echo_buffer_bytes")


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
    engine_names = [each.name for each in fields(Parameters) if each.name not in FIXED]
    for defaults, names in ((Parameters(), engine_names), (NodeParameters(), NODE_NAMES)):
        for name in names:
            option = "--" + name.replace("_", "-")
            parser.add_argument(option, type=int, default=getattr(defaults, name))
    options = vars(parser.parse_args(arguments))
    try:
        ports, nodes = options["ports"], options["nodes"]
        own = max(ports, 1) if nodes == 1 else 1
        engine = Parameters(**{name: options[name] for name in engine_names}, ports=min(own, 8))
        node = NodeParameters(engine=engine, **{name: options[name] for name in NODE_NAMES})
        parameters = BoxParameters(
            node=node,
            ports=ports,
            nodes=nodes,
            functions=options["functions"] or ports,
            port_buffer_bytes=options["port_buffer_bytes"],
        )
        written = write_plugin(options["board"], parameters, options["output"])
    except ValueError as error:
        sys.exit(f"error: {error}")
    sys.stdout.write("".join(f"{path}\n" for path in written))


if __name__ == "__main__":
    main()
