"""Command-line options for the sizes of a node and its engine."""

import argparse
from collections.abc import Collection, Iterator
from dataclasses import fields

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters

__all__ = ["add_node_options", "node_from_options"]


def add_node_options(parser: argparse.ArgumentParser, fixed: Collection[str] = ()) -> None:
    """Add an option for each size, with its default.

    Args:
        parser: Gets the options.
        fixed: Names of sizes that are not for the user to choose.
    """
    for defaults in (Parameters(), NodeParameters()):
        for name in _sizes(type(defaults)):
            if name not in fixed:
                option = "--" + name.replace("_", "-")
                parser.add_argument(option, type=int, default=getattr(defaults, name))


def node_from_options(options: argparse.Namespace, **fixed: int) -> NodeParameters:
    """Return the node that the options ask for.

    Args:
        options: Parsed by a parser that `add_node_options` has prepared.
        fixed: The sizes without an option.

    Raises:
        ValueError: If a size cannot be built.
    """
    given = vars(options) | fixed
    engine = Parameters(**{name: given[name] for name in _sizes(Parameters)})
    return NodeParameters(engine=engine, **{name: given[name] for name in _sizes(NodeParameters)})


def _sizes(kind: type[Parameters] | type[NodeParameters]) -> Iterator[str]:
    return (each.name for each in fields(kind) if each.name != "engine")
