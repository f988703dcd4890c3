"""The outcome of a build, in words: slack by clock, use, sizes that fit, settings.

Tested: `tests/hdl/test_boards_flow.py`.
"""

from collections.abc import Mapping
from typing import Any

from afflux_hdl.boards.board import Board
from afflux_hdl.boards.port import frame_bytes_max
from afflux_hdl.boards.status_leds import PURPOSES
from afflux_hdl.contract import wire
from afflux_hdl.contract.management import Settings
from afflux_hdl.node.parameters import NodeParameters

__all__ = ["MARGIN", "clocks_of", "crossings_of", "missed", "report", "spare"]

MARGIN = 1.1
"""How much faster than its clock a domain must be."""

LUTS_SHOWN, DEPTH_SHOWN = 200, 4
"""Parts that the report lists: with so many LUTs, at most so deep."""

PORTS = {1: "a port", 2: "two ports"}

WIRE_EXTRA_BYTES = 20
"""Preamble and gap, beside frame and check sequence."""


def clocks_of(entry: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return for each clock its frequency, and the frequency possible in the bitstream."""
    return dict(_packed(entry)["clocks"])


def crossings_of(entry: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return for each pair of clocks the longest delay in the bitstream, and its limit.

    Bits of a Gray count must not be apart by a cycle of the clock that counts: then more than one
    would change within what looks like one moment. nextpnr has no constraint for that. If the
    longest path is no longer than that cycle, the difference of any two is shorter.
    """
    return _crossings(_packed(entry))


def _crossings(placed: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    found = {}
    for name, delay_ns in placed.get("crossings_ns", {}).items():
        period_ns = 1000 / placed["clocks"][name.partition(" ")[0]]["clock_mhz"]
        found[name] = {"delay_ns": delay_ns, "most_ns": round(period_ns, 2)}
    return found


def spare(placed: Mapping[str, Any]) -> dict[str, float]:
    """Return how well a placement does with each clock and crossing: below 1, it is missed.

    Args:
        placed: The figures of one seed.
    """
    clocks = placed["clocks"].items()
    return {
        **{name: each["fmax_mhz"] / each["clock_mhz"] / MARGIN for name, each in clocks},
        **{name: each["most_ns"] / each["delay_ns"] for name, each in _crossings(placed).items()},
    }


def missed(entry: Mapping[str, Any]) -> list[str]:
    """Return what the bitstream misses: clocks, with their margin, and crossings."""
    return [name for name, ratio in spare(_packed(entry)).items() if ratio < 1]


def _packed(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    placed: Mapping[str, Any] = entry["seeds"][str(entry["seed_in_bitstream"])]
    return placed


def report(board: Board, node: NodeParameters, settings: Settings, entry: Mapping[str, Any]) -> str:
    """Return the report; it does not show the key."""
    engine = node.engine
    placed = _packed(entry)
    lines = [f"{board.title}, {entry['device']}", ""]
    lines.append(f"clocks, of seed {entry['seed_in_bitstream']}, which need x {MARGIN}:")
    for name, clock in sorted(clocks_of(entry).items()):
        period_ns, least_ns = 1000 / clock["clock_mhz"], 1000 / clock["fmax_mhz"]
        lines.append(
            f"  {name:5} {clock['clock_mhz']:7.2f} MHz, could be {clock['fmax_mhz']:7.2f}"
            f"  slack {period_ns - least_ns:6.2f} of {period_ns:.2f} ns"
            f"  x {clock['fmax_mhz'] / clock['clock_mhz']:.2f}"
            f"{'  MISSED' if name in missed(entry) else ''}"
        )
    lines += ["", "from clock to clock, the longest delay, which must not exceed a cycle there:"]
    for name, each in sorted(crossings_of(entry).items()):
        lines.append(
            f"  {name:12} {each['delay_ns']:6.2f} of {each['most_ns']:.2f} ns"
            f"{'  MISSED' if name in missed(entry) else ''}"
        )
    lines += ["", "use:"]
    for name in ("lut4", "ff", "ebr"):
        of = placed["available"][name]
        lines.append(f"  {name:5} {placed[name]:7,} of {of:7,}  {placed[name] / of:6.1%}")
    lines += ["", "use by part, each with all that is in it (LUT4, FF, EBR):"]
    for path, use in sorted(entry.get("parts", {}).items()):
        depth = path.count(".")
        if path and (use["lut4"] >= LUTS_SHOWN or use["ebr"]) and depth <= DEPTH_SHOWN:
            name = "  " * depth + path.rsplit(".", 1)[-1]
            lines.append(f"  {use['lut4']:7,} {use['ff']:7,} {use['ebr']:4}  {name}")
    frame = frame_bytes_max(engine.lanes)
    data = engine.lanes * wire.BLOCK_BYTES
    clock_mhz = float(board.clock_mhz(engine.ports))
    share = data / (frame + WIRE_EXTRA_BYTES)
    lines += [
        "",
        "what fits:",
        f"  {engine.jobs} job(s) of up to {engine.workers} workers, {engine.slots} slots,"
        f" {engine.lanes} lanes: frames of up to {frame} bytes",
        f"  engine: 32 bits at {clock_mhz:g} MHz,"
        f" {32 * clock_mhz / 1000:g} Gbit/s, for {PORTS[engine.ports]} of 1",
        f"  computed, not measured: of 1 Gbit/s {share:.1%} are elements, {125 * share:.1f} MB/s;"
        " N workers share the way in, and unicast results the way out",
        "",
        "settings in the bitstream:",
        f"  address {settings.address or 'by DHCP'},"
        f" MAC {settings.mac.to_bytes(6, 'big').hex(':')}, name {settings.name!r}",
        f"  controller {settings.controller}; UDP port {settings.port} is the management's,"
        f" {settings.engine_port} the engine's",
        "",
        "LEDs:",
        *(f"  {purpose}: {PURPOSES[purpose]}" for purpose in board.leds),
        "",
        f"delays of RGMII: data in {board.rx_delay_ps} ps, clock out {board.tx_clock_delay_ps} ps"
        f" ({board.delays_from})",
        "",
        "not tried on a board. What to know:",
        *(f"  * {note}" for note in board.notes),
    ]
    return "\n".join(lines) + "\n"
