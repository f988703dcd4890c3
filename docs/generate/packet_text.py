"""Packets of the golden model as the text that the worked examples show."""

import textwrap

import numpy as np

from afflux_sim.golden.frames import HEADER_AT, LANES, WORDS_AT, Block, Packet, parse_packet

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


def words_that_count(block: Block, element_words: int) -> list[str]:
    """Return the words of a block that are not zero, a line for each element of so many words."""
    lines = []
    for element in range(len(block) // element_words):
        words = block[element * element_words : (element + 1) * element_words]
        named = [f"word {k:2} {hexadecimal(words[k].tobytes(), 4)}" for k in np.flatnonzero(words)]
        if named:
            lines.append(f"element {element}: {'  '.join(named)}")
    return lines


def show(frame: bytes, element_words: int | None = None) -> str:
    """Return one packet: header, look-ahead words, and the first elements of each block.

    Args:
        frame: Holds it.
        element_words: Words of an element of lane 1, of which those that are not 0 are shown then.
    """
    packet = parse_packet(frame)
    shown = words_shown(packet)
    words = hexadecimal(frame[WORDS_AT : WORDS_AT + 4 * shown], 4)
    rest = f"  … lanes {shown}–15 the same" if shown < LANES else ""
    lines = [
        f"{TYPES[packet.type]}, worker {packet.worker}, round {packet.round:#x}, "
        f"{len(frame)} bytes of frame",
        f"header  {hexadecimal(frame[HEADER_AT:WORDS_AT], 22)}",
        f"words   {words}{rest}",
    ]
    for lane, block in packet.blocks.items():
        if element_words and lane == 1:
            lines += [f"lane  1 {line}" for line in words_that_count(block, element_words)]
        else:
            first = block[:ELEMENTS_SHOWN].astype("<i4").tobytes()
            lines.append(f"lane {lane:2} {hexadecimal(first, 4)}  …")
    return "\n".join(["```", *lines, "```"])


def wrapped(text: str) -> str:
    """Return prose in lines; tables, packets and headings as they are."""
    if text.startswith(("```", "|", "#")):
        return text
    return textwrap.fill(text, width=110, break_on_hyphens=False, break_long_words=False)
