"""`python -m benchmarks.network.nccl`: NCCL's plugin beside rings, into build/bench/nccl.json.

Nodes on hosts that are namespaces of this machine make all-reduces through the plugin's tables as
NCCL's proxy does, without a GPU: through software aggregators of packets and of streams, over
streams among themselves, and in a ring over the plugin's Net part. With --socket LIBRARY there is a
ring over NCCL's own transport by sockets, too, compiled as a plugin. Runs of all alternate; each
figure is the least of its runs, as other programs on the machine only add to it.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from afflux.commands.bench.interruption import terminated_as_interrupted
from afflux.commands.bench.registry import Row
from afflux.commands.nccl_env import library_path
from benchmarks.network.launch import RanksEnded, aggregator
from benchmarks.network.namespaces import Network, NotPermitted, missing
from benchmarks.network.nccl_nodes import Nodes, NodesEnded, nodes_on
from benchmarks.network.nccl_tables import NAME, WAYS, measured_sizes, text_table
from benchmarks.report.figures import merge_rows, read_rows

__all__ = ["main"]

_SIZES = (8, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 25 << 20)
_RUN_S = 0.15
_MOST_CALLS = 200
_PORT_GBIT = 10.0
"""Of the aggregator, at least: else that of the nodes."""


def _communicators(
    network: Network, wanted: Sequence[str], socket: Path | None, held: ExitStack
) -> dict[str, Nodes]:
    """Form a communicator for each way of summing; they wait while others are measured."""
    made: dict[str, Nodes] = {}
    for name in wanted:
        settings: dict[str, str] = {}
        library = library_path()
        if name == "soft":
            address, _ = held.enter_context(aggregator(network.aggregator))
            settings = {"AFFLUX_AGGREGATOR": f"udp://{address}"}
        elif name == "streams":
            address, _ = held.enter_context(aggregator(network.aggregator, "streams"))
            settings = {"AFFLUX_AGGREGATOR": f"streams://{address}"}
        elif name == "mesh":
            settings = {"AFFLUX_AGGREGATOR": "streams://"}
        elif name == "socket":
            if socket is None:
                continue
            library = socket
        way = "collnet" if settings else "ring"
        made[name] = held.enter_context(nodes_on(network.hosts, library, way, settings))
    return made


def _measure(
    hosts: int, gbit: float | None, sizes: Sequence[int], given: argparse.Namespace
) -> list[Row]:
    rounds: int = given.rounds
    rows: list[Row] = []
    port = None if gbit is None else max(gbit, _PORT_GBIT)
    with ExitStack() as held:
        network = held.enter_context(Network(hosts, gbit=gbit, aggregator_gbit=port))
        made = _communicators(network, given.ways, given.socket, held)
        for size in sizes:
            runs: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
            calls = {
                name: max(1, min(_MOST_CALLS, int(_RUN_S / nodes.measure(size, 1)[0])))
                for name, nodes in made.items()
            }
            for _ in range(rounds):
                for name, nodes in made.items():
                    runs[name].append(nodes.measure(size, calls[name]))
            for name, found in runs.items():
                row: Row = {"bench": NAME, "way": name, "hosts": hosts, "rate_gbit": gbit}
                row |= {"bytes": size, "runs": rounds, "calls": calls[name]}
                row |= {"seconds": min(took for took, _ in found)}
                rows.append(row | {"processor_s": min(used for _, used in found)})
            best = {name: min(took for took, _ in found) for name, found in runs.items()}
            said = ", ".join(f"{name} {1e3 * each:.3f} ms" for name, each in best.items())
            print(f"  {hosts} nodes, {gbit} Gbit/s, {size} bytes: {said}", flush=True)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network.nccl", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=Path("build/bench/nccl.json"), help="file (%(default)s)"
    )
    parser.add_argument(
        "--hosts", type=int, nargs="+", default=[2, 4, 8], help="nodes (%(default)s)"
    )
    parser.add_argument(
        "--gbit", type=float, nargs="+", default=[1, 10, 25],
        help="rates of their links; 0: no limit (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--sizes", type=int, nargs="+", default=_SIZES, help="bytes (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (%(default)s)")
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS, default=list(WAYS), help="who sums (all)"
    )
    parser.add_argument("--socket", type=Path, help="NCCL's transport by sockets, as a plugin")
    parser.add_argument("--add", action="store_true", help="keep rows of other nodes and rates")
    given = parser.parse_args(argv)
    if reason := missing():
        print(reason, file=sys.stderr)
        return 1
    rows = [row for row in read_rows(given.output) if given.add and row["bench"] == NAME]
    status = 0
    try:
        with terminated_as_interrupted():
            for gbit in given.gbit:
                for hosts in given.hosts:
                    rate = gbit or None
                    rows = [r for r in rows if (r["hosts"], r["rate_gbit"]) != (hosts, rate)]
                    rows += _measure(hosts, rate, given.sizes, given)
                    merge_rows(given.output, {NAME}, rows)
    except (NodesEnded, RanksEnded, NotPermitted) as error:
        print(f"python -m benchmarks.network.nccl: {error}", file=sys.stderr)
        status = 1
    print(text_table(rows))
    print(measured_sizes(rows), end="")
    return status


if __name__ == "__main__":
    sys.exit(main())
