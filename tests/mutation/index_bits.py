"""Bits of addresses and indices in a netlist: what tells a slot, job, worker or lane from others.

They are the address ports of all memories, and all bits that come to one of them as they are: by
way of registers, multiplexers, queues, or as one operand of an addition. So a slot's number is
followed back from slot memory to the header that it came in, and wherever it goes from there, such
as to a comparison, there is a place too.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.mutation.cell_bits import CELL, MEMORY, SOURCES, CellBits, reached, through_memory
from tests.mutation.mutants import Place, stage_of

__all__ = ["address_bits", "index_bits", "index_places"]

_ADDRESSES = ("RD_ADDR", "WR_ADDR")
"""Of a memory: the addresses of all its ports, side by side."""


def index_bits(text: str, bits: CellBits) -> set[str]:
    """Return the bits that become an address of a memory, or a part of one.

    Args:
        text: The flat netlist as RTLIL.
        bits: Of the same.
    """
    sources: dict[str, set[str]] = defaultdict(set)
    waiting: set[str] = set()
    for cell in CELL.finditer(text):
        ports = bits.ports(cell["name"].removeprefix("\\"))
        for source, target in _passed_on(cell["kind"], ports):
            sources[target].add(source)
        if cell["kind"] == MEMORY:
            waiting |= {bit for port in _ADDRESSES for bit in ports[port]}
    for target, source in bits.connected(text):
        sources[target].add(source)
    return reached(waiting, sources)


def _passed_on(kind: str, ports: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Return which bits of a cell's inputs become which of its outputs."""
    if kind == MEMORY:
        yield from through_memory(ports)
    elif "Q" in ports and "D" in ports:
        yield from zip(ports["D"], ports["Q"], strict=True)
    elif kind in ("$mux", "$add"):
        for name in "AB":
            yield from zip(ports[name], ports["Y"], strict=False)


def index_places(text: str, seed: int = 1) -> dict[str, list[Place]]:
    """Return by stage each place at which there is such a bit.

    Args:
        text: The flat netlist as RTLIL.
        seed: Of which other bit of a port is mixed into one.
    """
    choose = random.Random(seed)
    bits = CellBits(text)
    indices = index_bits(text, bits)
    stages: dict[str, list[Place]] = defaultdict(list)
    for cell in CELL.finditer(text):
        found = SOURCES.search(cell["attributes"])
        name = cell["name"].removeprefix("\\")
        for port, has in bits.ports(name).items():
            for n, bit in enumerate(has):
                if bit not in indices:
                    continue
                wire, _, at = bit.partition(" ")
                others = [other for other in range(len(has)) if other != n]
                place = Place(
                    name=cell["name"],
                    port=f"\\{port}",
                    bit=n,
                    other=choose.choice(others) if others else None,
                    wire=wire if wire.startswith("\\") else "",
                    wire_bit=int(at),
                    sources=tuple(found[1].split("|")) if found else (),
                )
                stages[stage_of(name, cell["body"])].append(place)
    return dict(stages)


def address_bits(text: str) -> Iterator[tuple[str, int, list[tuple[str, int]]]]:
    """Yield each memory, each bit of its addresses, and where each of its ports has that bit."""
    bits = CellBits(text)
    for cell in CELL.finditer(text):
        if cell["kind"] != MEMORY:
            continue
        name = cell["name"].removeprefix("\\")
        ports = bits.ports(name)
        if not ports["WR_CLK"]:
            # Nothing of a job is in what is never written.
            continue
        width = len(ports["WR_ADDR"]) // len(ports["WR_CLK"])
        for bit in range(width):
            places = [
                (port, at)
                for port in _ADDRESSES
                for at in range(bit, len(ports[port]), width)
                if ports[port][at] not in "01x"
            ]
            if places:
                yield name, bit, places
