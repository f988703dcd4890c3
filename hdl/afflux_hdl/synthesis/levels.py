"""Logic levels: the longest paths from register to register in a netlist of primitives.

A level is one LUT, or one whole carry chain. Multiplexers beside the LUTs (MUXF7, MUXF8, MUXF9)
belong to the LUTs that feed them. A memory made of LUTs that is read without a clock is a level.
Paths start at outputs of registers, block and ultra RAMs, at what memories of LUTs hold, and at the
module's inputs; they end at inputs of the same (clocks apart) and at the module's outputs, as if
there were registers outside. A path without logic has 0 levels.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from afflux_hdl.synthesis.netlist import SOURCE_LINES, Cell, Netlist
from afflux_hdl.synthesis.primitives import Arc, arcs, is_sequential, read_addresses

__all__ = ["Levels", "Path"]

CLOCKS = frozenset({"C", "CLK", "WCLK", "CLKARDCLK", "CLKBWRCLK"})
"""Names of clock inputs."""

OUTSIDE = "pins"
"""Stage of the module's own ports."""

NAMELESS = "memories"
"""Stage of registers that the tool has added around memories: they have no name in the source."""


@dataclass(frozen=True)
class Path:
    """A longest path to one endpoint.

    Attributes:
        levels: Its logic levels.
        start, end: Registers, memories or ports, with the path of instances.
        start_stage, stage: First instance below the engine on those paths.
        through: Primitives on the way, from start to end.
    """

    levels: int
    start: str
    end: str
    start_stage: str
    stage: str
    through: tuple[str, ...]


class Levels:
    """Levels of every endpoint of a netlist.

    Args:
        netlist: A netlist of primitives only.
        within: Instance whose parts are the stages, such as `engine`; empty for the top.

    Raises:
        ValueError: If there is a primitive that is not known, or a loop without a register.
    """

    def __init__(self, netlist: Netlist, within: str = "") -> None:
        self._within = f"{within}." if within else ""
        self._names = netlist.names
        self._scopes = netlist.scopes
        self._into, self._cells = _graph(netlist.cells)
        self._starts: dict[int, tuple[str, Cell | None]] = {}
        for name, nets in netlist.inputs.items():
            self._starts |= {net: (name, None) for net in nets if net is not None}
        for cell in netlist.cells:
            if is_sequential(cell):
                for nets in cell.outputs.values():
                    self._starts |= {net: (cell.name, cell) for net in nets if net is not None}
        self._arrival = _arrivals(self._into, self._starts)
        self._ends = sorted(_endpoints(netlist), key=lambda end: (end[0], end[1]))

    @property
    def worst(self) -> int:
        """Levels of the longest path."""
        return max((self._arrival.get(net, 0) for net, _, _ in self._ends), default=0)

    def histogram(self) -> dict[int, int]:
        """Return how many endpoints there are with each number of levels."""
        return dict(sorted(Counter(self._arrival.get(net, 0) for net, _, _ in self._ends).items()))

    def paths(self, least: int = 0) -> list[Path]:
        """Return a path for each pair of start and end with at least so many levels, longest first.

        Bits of a register, and its inputs for data and enable, count as one end.
        """
        found: dict[tuple[str, str], Path] = {}
        for net, name, cell in self._ends:
            levels = self._arrival.get(net, 0)
            if levels < least:
                continue
            path = self._trace(net, name, cell)
            known = found.get((path.start, path.end))
            if known is None or known.levels < levels:
                found[path.start, path.end] = path
        return sorted(found.values(), key=lambda path: (-path.levels, path.end, path.start))

    def stages(self) -> dict[str, Path]:
        """Return the longest path that ends in each stage."""
        best: dict[str, tuple[int, int, str, Cell | None]] = {}
        for net, name, cell in self._ends:
            stage = self._stage(self._instance(name, cell), cell)
            levels = self._arrival.get(net, 0)
            if stage not in best or best[stage][0] < levels:
                best[stage] = (levels, net, name, cell)
        return {stage: self._trace(*best[stage][1:]) for stage in sorted(best)}

    def _trace(self, net: int, name: str, cell: Cell | None) -> Path:
        through: list[str] = []
        levels = at = self._arrival.get(net, 0)
        while net not in self._starts or at > 0:
            arc = next(
                (a for a in self._into[net] if self._arrival.get(a.start, 0) + a.levels == at),
                None,
            )
            if arc is None:
                break
            through.append(self._cells[arc])
            net, at = arc.start, at - arc.levels
        start, start_cell = self._starts.get(net, ("constant", None))
        start_instance = self._instance(start, start_cell)
        end_instance = self._instance(name, cell)
        return Path(
            levels=levels,
            start=self._register(start, start_cell, start_instance),
            end=self._register(name, cell, end_instance),
            start_stage=self._stage(start_instance, start_cell),
            stage=self._stage(end_instance, cell),
            through=tuple(reversed(through)),
        )

    def _instance(self, name: str, cell: Cell | None) -> str:
        """Return the path of the instance that a start or end lies in."""
        if cell is None:
            return ""
        if not name.startswith("$"):
            return name.rpartition(".")[0]
        for file, first, _ in SOURCE_LINES.findall(cell.source):
            inside = [s for s in self._scopes if s.file == file and s.first <= int(first) <= s.last]
            if inside:
                return inside[0].path
        aliases = self._aliases(cell)
        return (
            max(aliases, key=lambda alias: alias.count(".")).rpartition(".")[0] if aliases else ""
        )

    def _aliases(self, cell: Cell) -> list[str]:
        """Return all names of a cell's outputs."""
        nets = [net for found in cell.outputs.values() for net in found if net is not None]
        return sorted({alias for net in nets for alias in self._names.get(net, ())})

    def _register(self, name: str, cell: Cell | None, instance: str) -> str:
        """Return the source's name for a start or end, without the number of the bit."""
        if cell is None or not name.startswith("$"):
            return name
        known = self._aliases(cell)
        own = [alias for alias in known if alias.rpartition(".")[0] == instance]
        return min(own or known, default=NAMELESS).partition("[")[0]

    def _stage(self, instance: str, cell: Cell | None) -> str:
        if cell is None:
            return OUTSIDE
        inner = instance.removeprefix(self._within)
        return inner.partition(".")[0] or NAMELESS


def _graph(cells: Iterable[Cell]) -> tuple[dict[int, list[Arc]], dict[Arc, str]]:
    """Return the arcs into each net, and the primitive of each arc."""
    known = list(cells)
    chained = frozenset(
        net
        for cell in known
        if cell.type in ("CARRY4", "CARRY8")
        for net in cell.outputs["CO"]
        if net is not None
    )
    into: dict[int, list[Arc]] = defaultdict(list)
    primitives = {}
    for cell in known:
        for arc in arcs(cell, chained):
            into[arc.end].append(arc)
            primitives[arc] = cell.type
    return into, primitives


def _arrivals(into: dict[int, list[Arc]], starts: Iterable[int]) -> dict[int, int]:
    """Return the most levels on any path to each net."""
    arrival = dict.fromkeys(starts, 0)
    out_of: dict[int, list[Arc]] = defaultdict(list)
    missing = {net: len(found) for net, found in into.items()}
    sources = set()
    for found in into.values():
        for arc in found:
            out_of[arc.start].append(arc)
            sources.add(arc.start)
    ready = [net for net in sources if net not in missing]
    while ready:
        net = ready.pop()
        level = arrival.setdefault(net, 0)
        for arc in out_of[net]:
            arrival[arc.end] = max(arrival.get(arc.end, 0), level + arc.levels)
            missing[arc.end] -= 1
            if not missing[arc.end]:
                del missing[arc.end]
                ready.append(arc.end)
    if missing:
        raise ValueError(f"{len(missing)} nets are in or behind a loop without a register")
    return arrival


def _endpoints(netlist: Netlist) -> Iterable[tuple[int, str, Cell | None]]:
    """Yield the nets where paths end, with the name and cell of what they end at."""
    for name, nets in netlist.outputs.items():
        yield from ((net, name, None) for net in nets if net is not None)
    for cell in netlist.cells:
        if not is_sequential(cell):
            continue
        skipped = CLOCKS | read_addresses(cell)
        for port, nets in cell.inputs.items():
            if port not in skipped:
                yield from ((net, cell.name, cell) for net in nets if net is not None)
