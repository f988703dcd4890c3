"""Settings: from options and files, their key's file, and into a design that is placed already."""

import argparse
import os
import random
import stat
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from afflux_drivers.device.key import key_of_file
from afflux_hdl.boards import placed_settings
from afflux_hdl.boards.key_file import new_key, read_key, write_private
from afflux_hdl.boards.options import add_options, settings_of
from afflux_hdl.boards.placed_settings import PLACED, Contents, patched
from afflux_hdl.contract.management import SETTINGS_BYTES, Settings
from tests.support.planting import names_with

SETTINGS = Settings(
    mac=0x020000000009,
    address=None,
    controller="10.1.2.3",
    key=bytes(range(100, 116)),
    name="a board",
)
CONTENTS = Contents(settings=SETTINGS, build_time=1_790_000_000, build_commit=0x0C0FFEE1)
BUILD_AT = 1000
"""Group of 9 bits where the words of the build begin; those of the settings do at 0."""


def as_nextpnr(memories: dict[int, list[int]]) -> str:
    """Write block RAMs as nextpnr does: eight groups a line, in three digits."""
    text = ".device LFE5U-25F\n\n.tile R10C10:PLC2\narc: A1 B1\n\n"
    for number, groups in memories.items():
        text += f".bram_init {number}\n"
        for at in range(0, len(groups), 8):
            text += " ".join(f"{group:03x}" for group in groups[at : at + 8]) + " \n"
        text += "\n"
    return text + ".tile R11C11:PLC2\nenum: X Y\n"


def read(text: str, number: int) -> list[int]:
    block = text.split(f".bram_init {number}\n")[1].split("\n\n")[0]
    return [int(group, 16) for group in block.split()]


def words_of(groups: list[int], word_bits: int, count: int) -> bytes:
    """Read words as the hardware does: 9 bits from each group, the first in the low bits."""
    each = {8: 1, 16: 2, 32: 4}[word_bits]
    data = b""
    for word in range(count):
        value = sum(groups[word * each + n] << 9 * n for n in range(each))
        data += (value & (1 << word_bits) - 1).to_bytes(word_bits // 8, "little")
    return data


def in_memory(contents: Contents, word_bits: int, seed: int) -> list[int]:
    """Return a memory that begins with settings, and has a build further on; the rest is random."""
    choose = random.Random(seed)
    each = {8: 1, 16: 2, 32: 4}[word_bits]
    build = struct.pack("<II", contents.build_time, contents.build_commit)
    groups = [choose.randrange(512) for _ in range(2048)]
    step = word_bits // 8
    for start, data in ((0, contents.settings.to_bytes()), (BUILD_AT, build)):
        for word in range(len(data) // step):
            value = int.from_bytes(data[word * step : (word + 1) * step], "little")
            for n in range(each):
                groups[start + word * each + n] = value >> 9 * n & 511
    return groups


def check(patch: Any, word_bits: int) -> None:
    other = [random.Random(9).randrange(512) for _ in range(2048)]
    before = in_memory(PLACED, word_bits, 1)
    text = as_nextpnr({3: other, 7: before, 8: other})
    after = patch(text, CONTENTS)
    assert read(after, 3) == read(after, 8) == other
    groups = read(after, 7)
    data = words_of(groups, word_bits, SETTINGS_BYTES * 8 // word_bits)
    assert Settings.from_bytes(data) == SETTINGS
    each = {8: 1, 16: 2, 32: 4}[word_bits]
    build = words_of(groups[BUILD_AT:], word_bits, 64 // word_bits)
    assert struct.unpack("<II", build) == (CONTENTS.build_time, CONTENTS.build_commit)
    used, end = SETTINGS_BYTES * 8 // word_bits * each, BUILD_AT + 64 // word_bits * each
    assert groups[used:BUILD_AT] == before[used:BUILD_AT]
    assert groups[end:] == before[end:]
    # The other way round everything is as it was, the packer's format included.
    back = patch(after, PLACED, before=CONTENTS)
    assert [line.strip() for line in back.splitlines()] == [
        line.strip() for line in text.splitlines()
    ]


@pytest.mark.parametrize("word_bits", [8, 16, 32])
def test_settings_go_into_the_one_memory_that_has_the_others(word_bits: int) -> None:
    check(patched, word_bits)


def test_every_copy_of_the_memory_is_patched() -> None:
    memory = in_memory(PLACED, 16, 1)
    after = patched(as_nextpnr({1: memory, 2: memory}), CONTENTS)
    assert read(after, 1) == read(after, 2) == read(patched(as_nextpnr({1: memory}), CONTENTS), 1)


def test_a_design_without_settings_or_build_is_refused() -> None:
    with pytest.raises(ValueError, match="the place of the settings is not in"):
        patched(as_nextpnr({1: [0] * 2048}), CONTENTS)
    no_build = in_memory(PLACED, 16, 1)[:BUILD_AT] + [0] * (2048 - BUILD_AT)
    with pytest.raises(ValueError, match="the place of the build is not in"):
        patched(as_nextpnr({1: no_build}), CONTENTS)
    with pytest.raises(ValueError, match=r"bram_init 1 has 8 groups, not 2048"):
        patched(as_nextpnr({1: [0] * 8}), CONTENTS)


def test_no_bit_of_the_build_that_is_placed_is_the_same_in_both_words() -> None:
    """Synthesis leaves such a bit out of the memory, and there would be no place for another."""
    assert PLACED.build_time ^ PLACED.build_commit == 0xFFFF_FFFF


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("word >> GROUP_BITS * n", "word >> 8 * n"),
        ("groups[at : at + len(given)] = given", "groups[at : at + len(given) - 1] = given[:-1]"),
        ("self.build_commit << 32", "self.build_commit << 31"),
        ("(1 << GROUP_BITS) - 1", "255"),
    ],
)
def test_planted_bugs_are_noticed(right: str, wrong: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        check(names_with(placed_settings, right, wrong)["patched"], 16)


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return parser.parse_args(words)


def test_without_a_key_one_is_made_kept_and_used_again(tmp_path: Path) -> None:
    first, path = settings_of(options(), "ecpix5-85f", tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert settings_of(options(), "ecpix5-85f", tmp_path) == (first, path)
    assert (first.address, first.controller, first.name) == ("10.77.0.9", "10.77.0.1", "ecpix5-85f")
    other, _ = settings_of(options(), "ecpix5-45f", tmp_path)
    assert other.key != first.key and other.mac != first.mac
    # Locally administered, of one host.
    assert first.mac >> 40 == 0x02
    assert first.key.hex() not in repr(first)


def test_the_command_line_counts_more_than_the_file(tmp_path: Path) -> None:
    file, key_file = tmp_path / "s.toml", tmp_path / "k"
    write_private(key_file, bytes(range(16)))
    file.write_text(
        f'mac = "02:00:00:00:00:07"\naddress = "10.0.0.7"\nport = 5000\nkey_file = "{key_file}"\n'
    )
    settings, used = settings_of(
        options("--settings", str(file), "--address", "dhcp"), "board", tmp_path / "out"
    )
    assert (settings.mac, settings.address, settings.port) == (0x020000000007, None, 5000)
    assert settings.key == bytes(range(16)) and used == key_file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('key = "00"', "must not have a key in it"),
        ('adress = "10.0.0.7"', "has 'adress'; settings are mac, address"),
        ('port = "5000"', "port in .* must be int, not '5000'"),
        ("port 5000", "are not TOML"),
        ('mac = "02:00:00"', "mac must be a MAC address such as .*, not '02:00:00'"),
        ('mac = "01:00:00:00:00:00"', "mac must be the MAC address of one host"),
        ('controller = "10.77.0.9"', "address and controller are both 10.77.0.9"),
    ],
)
def test_wrong_settings_are_named(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        settings_of(options("--settings", str(file)), "board", tmp_path)


@pytest.mark.parametrize("name", ["address", "controller"])
def test_a_board_in_a_network_has_no_address_of_one_host_alone(name: str, tmp_path: Path) -> None:
    """Simulated boards have such ones, but those settings are made otherwise."""
    with pytest.raises(ValueError, match=rf"{name} 127\.0\.0\.2 is a host's own"):
        settings_of(options(f"--{name}", "127.0.0.2"), "board", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        bytes(range(0x80, 0x90)),
        b"\n" + bytes(14) + b" ",
        b"00112233445566778899AAbbccddeeff\r\n",
        b"   00112233445566778899AAbbccddeeff",
        # Not keys: half the digits, too many, of another kind, behind a mark of byte order.
        b"0123456789abcdef",
        b"0123456789abcde\n",
        b"0" * 64,
        b"0x00112233445566778899AAbbccddeef",
        b"\xef\xbb\xbf00112233445566778899AAbbccddeeff",
        b"",
    ],
)
def test_who_builds_and_who_controls_read_the_same_key(content: bytes, tmp_path: Path) -> None:
    def outcome(read: Any) -> bytes | None:
        try:
            key: bytes = read()
        except ValueError:
            return None
        return key

    path = tmp_path / "key"
    write_private(path, content)
    assert outcome(lambda: read_key(path)) == outcome(lambda: key_of_file(str(path)))


def test_a_key_file_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(ValueError, match="is not a regular file"):
        read_key(tmp_path / "key")


def test_a_disk_that_is_full_leaves_no_half_of_a_key(tmp_path: Path) -> None:
    """A process that may write no byte into a file."""
    path = tmp_path / "key"
    script = (
        "import pathlib, resource, signal, sys\n"
        "from afflux_hdl.boards.key_file import new_key\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "new_key(pathlib.Path(sys.argv[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path], check=False, capture_output=True, text=True
    )
    assert "OSError" in done.stderr
    assert not path.exists()


def test_a_key_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = new_key(path)
    assert read_key(path) == key
    with pytest.raises(FileExistsError):
        new_key(path)
    path.chmod(0o640)
    with pytest.raises(ValueError, match=r"others may read the key file .*, mode 640"):
        read_key(path)
    write_private(path, b"0123")
    with pytest.raises(ValueError, match="must have 32 hexadecimal digits or 16 bytes"):
        read_key(path)
    with pytest.raises(ValueError, match=r"cannot read the key file .*: No such file"):
        read_key(tmp_path / "none")
