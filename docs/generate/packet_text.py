"""Packets of the golden model as the text that the worked examples show."""

import textwrap

from afflux_sim.golden.frames import HEADER_AT, LANES, WORDS_AT, Packet, parse_packet

__all__ = ["TYPES", "show", "wrapped"]

TYPES = {
    0: "DATA",
    1: "PROBE",
    2: "JOIN",
    8: "RESULT",
    9: "CONFLICT",
    10: "MISSING",
    11: "JOINED",
    12: "REFUSED",
}

ELEMENTS_SHOWN = 4


def hexadecimal(data: bytes, group: int) -> str:
    """Return bytes in hexadecimal, in groups that two spaces separate."""
    return "  ".join(data[i : i + group].hex(" ") for i in range(0, len(data), group))


def words_shown(packet: Packet) -> int:
    """Return how many look-ahead words to show: up to the last that differs from those after it."""
    shown = LANES
    while shown > 1 and packet.words[shown - 1] == packet.words[shown - 2]:
        shown -= 1
    return shown


def show(frame: bytes, shown: int = ELEMENTS_SHOWN) -> str:
    """Return one packet: header, look-ahead words, and the first words of each block.

    Args:
        frame: Holds it.
        shown: Words of each block of lane 1 that are shown; of other lanes four are.
    """
    packet = parse_packet(frame)
    lanes = words_shown(packet)
    words = hexadecimal(frame[WORDS_AT : WORDS_AT + 4 * lanes], 4)
    rest = f"  … lanes {lanes}–15 the same" if lanes < LANES else ""
    lines = [
        f"{TYPES[packet.type]}, worker {packet.worker}, round {packet.round:#x}, "
        f"{len(frame)} bytes of frame",
        f"header  {hexadecimal(frame[HEADER_AT:WORDS_AT], 22)}",
        f"words   {words}{rest}",
    ]
    for lane, block in packet.blocks.items():
        first = block[: shown if lane == 1 else ELEMENTS_SHOWN]
        title = f"lane {lane:2}"
        for start in range(0, first.size, ELEMENTS_SHOWN):
            row = first[start : start + ELEMENTS_SHOWN].astype("<i4").tobytes()
            more = "" if start + ELEMENTS_SHOWN < first.size else "  …"
            lines.append(f"{title} {hexadecimal(row, 4)}{more}")
            title = " " * len(title)
    return "\n".join(["```", *lines, "```"])


def wrapped(text: str) -> str:
    """Return prose in lines; tables, packets and headings as they are."""
    if text.startswith(("```", "|", "#")):
        return text
    return textwrap.fill(text, width=110, break_on_hyphens=False, break_long_words=False)
