"""Put a board's settings, and what tells its build, into a design that is placed already.

Both are the beginning of a memory that synthesis puts into a block RAM. nextpnr writes the content
of each into its text as `.bram_init`: 2,048 groups of 9 bits, in the order of addresses. A design
is placed with settings that nobody uses, and a build that never was, `PLACED`; their octets are
looked for there, and replaced. New ones then take seconds, no key is ever in a netlist, and the
same sources are placed alike, whenever that is.

Tested: `tests/hdl/test_boards_settings.py`.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from afflux_hdl.contract.management import Settings

__all__ = ["PLACED", "PLACEHOLDER", "Contents", "patched"]

PLACEHOLDER = Settings(
    mac=0x02_AF_F1_0C_00_01,
    address="192.0.2.9",
    controller="192.0.2.1",
    key=bytes.fromhex("5eed0fa11b0a2d5b0000ffff13579bdf"),
    name="placeholder",
)
"""The placed design. Addresses are of TEST-NET-1 (RFC 5737), and the key is printed here."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The initial content of a design's memories.

    Attributes:
        settings: Of its management.
        build_time, build_commit: The values of these registers.
    """

    settings: Settings
    build_time: int
    build_commit: int

    def octets(self) -> dict[str, bytes]:
        """Return those of each memory, by a name for it."""
        build = self.build_time | self.build_commit << 32
        return {"settings": self.settings.to_bytes(), "build": build.to_bytes(8, "little")}


PLACED = Contents(settings=PLACEHOLDER, build_time=0x5EED_B017, build_commit=0xA112_4FE8)
"""The placed design. No bit is the same in both words of the build: Yosys would not store it."""

GROUP_BITS = 9
GROUPS = 2048
GROUPS_OF_WORD = {8: 1, 16: 2, 32: 4}
"""Groups that a word of so many bits takes, in a block RAM that is 9, 18 or 36 bits wide."""

_BLOCK = re.compile(r"^\.bram_init (\d+)\n((?:[0-9a-fA-F ]+\n)+)", re.MULTILINE)


def patched(text: str, contents: Contents, *, before: Contents = PLACED) -> str:
    """Return nextpnr's text with `contents` where those `before` were, in every copy of them.

    Raises:
        ValueError: If one of these is nowhere.
    """
    new = contents.octets()
    found = dict.fromkeys(new, 0)

    def replaced(block: re.Match[str]) -> str:
        nonlocal found
        rows = [row.split() for row in block[2].splitlines()]
        groups = [int(group, 16) for row in rows for group in row]
        if len(groups) != GROUPS:
            raise ValueError(f".bram_init {block[1]} has {len(groups)} groups, not {GROUPS}")
        for name, word_bits in itertools.product(new, GROUPS_OF_WORD):
            wanted = _as_groups(before.octets()[name], word_bits)
            given = _as_groups(new[name], word_bits)
            for at in _places(groups, wanted):
                groups[at : at + len(given)] = given
                found[name] += 1
        digits, rest = len(rows[0][0]), iter(groups)
        lines = [" ".join(f"{next(rest):0{digits}x}" for _ in row) for row in rows]
        return f".bram_init {block[1]}\n" + "".join(f"{line}\n" for line in lines)

    patched_text = _BLOCK.sub(replaced, text)
    for name, places in found.items():
        if not places:
            raise ValueError(f"the place of the {name} is not in the placed design")
    return patched_text


def _as_groups(data: bytes, word_bits: int) -> list[int]:
    """Return the groups of 9 bits of a row of words, each of which starts a new one."""
    size = word_bits // 8
    groups = []
    for at in range(0, len(data), size):
        word = int.from_bytes(data[at : at + size], "little")
        for n in range(GROUPS_OF_WORD[word_bits]):
            groups.append(word >> GROUP_BITS * n & (1 << GROUP_BITS) - 1)
    return groups


def _places(groups: list[int], wanted: list[int]) -> Iterator[int]:
    for at in range(len(groups) - len(wanted) + 1):
        if groups[at] == wanted[0] and groups[at : at + len(wanted)] == wanted:
            yield at
