"""Bitstream files: which board takes which, where they may go, and which are not bitstreams."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux_drivers.flash import lattice_file, mcs_file, xilinx_file
from afflux_drivers.flash.boards import BOARDS, board_of
from afflux_drivers.flash.checks import check_image, check_place, normal_part, read_image
from afflux_drivers.flash.errors import FlashRefused
from afflux_drivers.flash.report import Report, find_report
from afflux_hdl.boards.table import BOARDS as OPEN_BOARDS
from afflux_hdl.vivado.alveo import ALVEO
from tests.support.drivers.bitstreams import (
    ecp5_bit,
    ecp5_svf,
    mcs,
    mcs_line,
    written,
    xilinx_bit,
    xilinx_words,
)

COLORLIGHT, AU50, AS02MC04 = board_of("colorlight-5a-75b"), board_of("au50"), board_of("as02mc04")
USER = 0x0100_2000
FLASH_END = 128 << 20
PATH = Path("a.bit")


def test_an_unknown_board_is_named_with_those_that_are_known():
    with pytest.raises(FlashRefused, match=r"'au51' is not known; known are ecpix5-45f, .*, au280"):
        board_of("au51")


def test_boards_are_those_that_bitstreams_are_made_for():
    """Names and parts are written down twice, as drivers know nothing of gateware."""
    for name, card in ALVEO.items():
        assert normal_part(BOARDS[name].part) == normal_part(card.part)
    for name, board in OPEN_BOARDS.items():
        device, package = board.platform.device, board.platform.package
        known = {"BG256": "CABGA256", "BG381": "CABGA381", "BG554": "CABGA554"}
        assert BOARDS[name].part == f"{device}-{known[package]}"


@pytest.mark.parametrize("board", BOARDS.values(), ids=lambda board: board.name)
def test_a_board_takes_its_own_files_and_no_others(board, tmp_path):
    parts = {"lattice": "LFE5U-25F-6CABGA256", "xilinx": "xcu50-fsvh2104-2-e"}
    for maker, content in (("lattice", ecp5_bit()), ("xilinx", xilinx_bit())):
        path = written(tmp_path / f"{maker}.bit", content)
        if board.maker != maker:
            with pytest.raises(FlashRefused, match="it is not"):
                read_image(board, path)
            continue
        image = read_image(board, path)
        assert image.part == parts[maker]
        if normal_part(image.part) == normal_part(board.part):
            check_image(board, image, None)
        else:
            with pytest.raises(FlashRefused, match=f"{board.name} has {board.part}"):
                check_image(board, image, None)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("LFE5U-25F-6CABGA256", "lfe5u-25f-cabga256"),
        ("LFE5UM5G-45F-8CABGA554", "lfe5um5g-45f-cabga554"),
        ("LFE5U-25F-CABGA256", "lfe5u-25f-cabga256"),
        ("xcu250-figd2104-2L-e", "xcu250-figd2104"),
        ("u250-figd2104-2L-e", "xcu250-figd2104"),
        ("XCKU3P-FFVB676-1-E", "xcku3p-ffvb676"),
    ],
)
def test_parts_without_what_tools_write_differently(text, normal):
    assert normal_part(text) == normal


@pytest.mark.parametrize(
    ("part", "idcode", "reason"),
    [
        ("LFE5U-25F-6CABGA381", 0x41111043, "is for LFE5U-25F-6CABGA381"),
        ("LFE5UM-45F-8CABGA381", 0x01112043, "identity 0x01112043"),
        # The text is only a comment; the FPGA compares the code.
        ("LFE5U-25F-6CABGA256", 0x41112043, "identity 0x41112043"),
        ("", 0x41112043, "identity 0x41112043"),
    ],
)
def test_an_ecp5_file_for_another_part(tmp_path, part, idcode, reason):
    image = read_image(COLORLIGHT, written(tmp_path / "a.bit", ecp5_bit(part, idcode)))
    with pytest.raises(FlashRefused, match=reason):
        check_image(COLORLIGHT, image, None)


def test_an_ecp5_file_without_comments_goes_by_its_code(tmp_path):
    image = read_image(COLORLIGHT, written(tmp_path / "a.bit", ecp5_bit("", 0x41111043)))
    check_image(COLORLIGHT, image, None)


def test_files_that_ecppack_has_written(tmp_path):
    """The formats here are as the packer of `make bitstream` writes them, not as we think."""
    (tmp_path / "a.config").write_text(
        ".device LFE5U-25F\n.comment Part: LFE5U-25F-6CABGA256\n.comment more: text\n"
    )
    program = str(Path(sys.executable).with_name("yowasp-ecppack"))
    command = [program, "--compress", "a.config", "--bit", "a.bit", "--svf", "a.svf"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    for name in ("a.bit", "a.svf"):
        image = read_image(COLORLIGHT, tmp_path / name)
        assert image.idcode == 0x41111043
        check_image(COLORLIGHT, image, None)
    assert image.part == ""
    assert read_image(COLORLIGHT, tmp_path / "a.bit").part == "LFE5U-25F-6CABGA256"
    for name in ("a.bit", "a.svf"):
        content = (tmp_path / name).read_bytes()
        for kept in (len(content) // 2, len(content) - 20):
            with pytest.raises(FlashRefused, match="truncated"):
                read_image(COLORLIGHT, written(tmp_path / f"short{name[1:]}", content[:kept]))


def read(kind, content):
    reads = {
        "ecp5": lattice_file.read_bit,
        "svf": lattice_file.read_svf,
        "bit": xilinx_file.read_bit,
        "mcs": mcs_file.read_mcs,
    }
    return reads[kind](PATH, content)


WHOLE = {
    "ecp5": ecp5_bit(),
    "svf": ecp5_svf(),
    "bit": xilinx_bit(size=1024),
    "mcs": mcs(USER, xilinx_words(1024)),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_no_part_of_a_file_passes_for_the_whole(kind):
    content = WHOLE[kind]
    read(kind, content)
    # Padding and the last line's end may be missing.
    least = {"ecp5": len(content) - 4, "svf": len(content) - 1, "mcs": len(content) - 1}
    for kept in range(least.get(kind, len(content))):
        with pytest.raises(FlashRefused):
            read(kind, content[:kept])
    for kept in range(least.get(kind, len(content)), len(content)):
        read(kind, content[:kept])


@given(st.sampled_from(sorted(WHOLE)), st.binary(max_size=200))
def test_anything_is_read_or_refused(kind, content):
    for each in (content, WHOLE[kind][:40] + content, WHOLE[kind][:-20] + content):
        try:
            read(kind, each)
        except FlashRefused as error:
            assert str(PATH) in str(error)


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_line_of_an_mcs_file_is_refused(data):
    content = bytearray(WHOLE["mcs"])
    place = data.draw(st.integers(0, len(content) - 2))
    content[place] = data.draw(st.sampled_from(b"0123456789ABCDEF:x"))
    if content.upper() == WHOLE["mcs"]:
        return
    with pytest.raises(FlashRefused, match="line"):
        read("mcs", bytes(content))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "end is missing"),
        (mcs_line(1, 0, b""), "no bitstream"),
        (mcs(USER, bytes(64)), "no bitstream"),
        (WHOLE["mcs"] + mcs_line(0, 0, b"\0"), "more after the end"),
        (mcs_line(6, 0, b"") + WHOLE["mcs"], "type 6 is not known"),
        (mcs_line(4, 0, b"\1") + WHOLE["mcs"], "type 4 is not known"),
        # It would first look right, and then write over the golden image.
        (WHOLE["mcs"][:-12] + mcs_line(4, 0, b"\0\0") + mcs_line(0, 16, b"x") + WHOLE["mcs"][-12:],
         "addresses go down to 0x10"),
        (WHOLE["mcs"].replace(b"\n", b"\n\n").replace(b"\n", b"\r\n") + b"\n", None),
    ],
)  # fmt: skip
def test_lines_of_an_mcs_file(content, reason):
    if reason is None:
        assert read("mcs", content).start == USER
        return
    with pytest.raises(FlashRefused, match=reason):
        read("mcs", content)


def test_an_mcs_file_says_from_where_to_where():
    image = read("mcs", mcs(USER + 0xF000, xilinx_words(10000)))
    assert (image.start, image.size) == (USER + 0xF000, 10000)
    lines = mcs_line(2, 0, (0x1000).to_bytes(2, "big")) + mcs_line(0, 0x10, xilinx_words(128))
    assert read("mcs", lines + mcs_line(1, 0, b"")).start == 0x10010


@pytest.mark.parametrize(
    ("start", "fits"),
    [
        (0, False),
        (USER - 0x1000, False),
        (USER - 1, False),
        (USER, True),
        (USER + 0x1000, True),
        (USER + 1, False),
        (FLASH_END - 4096, True),
        (FLASH_END, False),
    ],
)
def test_nothing_is_written_outside_the_users_part_of_an_alveo(start, fits):
    flash = mcs_file.read_mcs(PATH, mcs(start, xilinx_words(4096)))
    bit = xilinx_file.read_bit(PATH, xilinx_bit(size=4096))
    assert bit.start is None
    for image, offset in ((flash, None), (flash, start), (bit, start)):
        if fits:
            assert check_place(AU50, image, None, offset) == start
        else:
            with pytest.raises(FlashRefused):
                check_place(AU50, image, None, offset)


def test_the_last_byte_counts():
    image = xilinx_file.read_bit(PATH, xilinx_bit(size=4096))
    whole = FLASH_END - USER
    assert check_place(AU50, replace(image, size=whole), None, None) == USER
    with pytest.raises(FlashRefused, match="would end at 0x08000001"):
        check_place(AU50, replace(image, size=whole + 1), None, None)


def test_writes_below_say_why():
    image = xilinx_file.read_bit(PATH, xilinx_bit())
    with pytest.raises(FlashRefused, match=r"from 0x00000000, below 0x01002000.*record 71915"):
        check_place(AU50, image, None, 0)
    flash = mcs_file.read_mcs(PATH, WHOLE["mcs"])
    with pytest.raises(FlashRefused, match="begins at 0x01002000, and --offset is 0x01003000"):
        check_place(AU50, flash, None, 0x0100_3000)


def test_halves_of_a_flash_do_not_overlap():
    first, second = AS02MC04.partitions
    assert first.offset + first.size == second.offset == 16 << 20
    image = xilinx_file.read_bit(PATH, xilinx_bit("xcku3p-ffvb676-1-e"))
    assert check_place(AS02MC04, image, None, None) == 0
    assert check_place(AS02MC04, image, "second", None) == 16 << 20
    for partition, offset in (("second", 0), ("first", 16 << 20), (None, 16 << 20)):
        with pytest.raises(FlashRefused):
            check_place(AS02MC04, image, partition, offset)
    with pytest.raises(FlashRefused, match="no partition 'third'; it has first, second"):
        check_place(AS02MC04, image, "third", None)


def test_a_flash_image_needs_somebody_who_knows_its_part(tmp_path):
    image = mcs_file.read_mcs(PATH, WHOLE["mcs"])
    with pytest.raises(FlashRefused, match="does not say for which part"):
        check_image(AU50, image, None)
    report = Report(path=Path("a.json"), part="xcu50-fsvh2104-2-e")
    check_image(AU50, image, report)
    with pytest.raises(FlashRefused, match="is for xcu250"):
        check_image(AU50, image, replace(report, part="xcu250-figd2104-2L-e"))
    with pytest.raises(FlashRefused, match="was built for au55c, not au50"):
        check_image(AU50, image, replace(report, board="au55c"))
    with pytest.raises(FlashRefused, match=r"misses its clocks \(tx, rx\).*further seeds"):
        check_image(AU50, image, replace(report, missed=("tx", "rx")))


def test_reports_beside_a_file(tmp_path):
    bit = tmp_path / "a.bit"
    assert find_report(bit, "") is None
    (tmp_path / "report.json").write_text('{"build_time": 5}')
    assert find_report(bit, "").build_time == 5
    (tmp_path / "a.json").write_text(
        '{"build_time": 6, "sha256": "AB", "board": null, "missed": ["tx"]}'
    )
    report = find_report(bit, "ab")
    assert (report.build_time, report.board, report.missed) == (6, "", ("tx",))
    with pytest.raises(FlashRefused, match="is about another file"):
        find_report(bit, "cd")
    for wrong in (
        *("[]", "{", "[" * 100_000, '{"build_time": "x"}', '{"build_time": true}'),
        *('{"board": 1}', '{"build_time": -1}', '{"build_time": 100000000000000000000}'),
    ):
        (tmp_path / "a.json").write_text(wrong)
        with pytest.raises(FlashRefused, match=r"a\.json"):
            find_report(bit, "")


def sparse(path, size):
    path.touch()
    os.truncate(path, size)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "not a regular file"),
        (lambda path: path.touch(), "0 bytes"),
        (os.mkfifo, "not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (lambda path: sparse(path, 10 << 30), "a file of 10737418240 bytes is not a bitstream"),
    ],
)
def test_what_is_no_file(tmp_path, make, reason):
    make(tmp_path / "a.bit")
    with pytest.raises(FlashRefused, match=reason):
        read_image(AU50, tmp_path / "a.bit")
    with pytest.raises(FlashRefused, match=r"au50 takes \.bit and \.mcs files"):
        read_image(AU50, tmp_path / "a.bin")


@pytest.mark.parametrize("kind", [2, 4])
def test_a_line_that_some_tools_would_wrap_is_refused(tmp_path, kind):
    """Its end lies beyond its 64 KiB, or at their beginning: where the golden image is."""
    start = 0x2000 if kind == 2 else USER
    upper = 0x1000 if kind == 2 else 0x0100
    lines = mcs(start, xilinx_words(256)).splitlines(keepends=True)
    lines[-1:-1] = [
        mcs_line(kind, 0, upper.to_bytes(2, "big")),
        mcs_line(0, 0xFFF8, bytes(16)),
    ]
    path = written(tmp_path / "a.mcs", b"".join(lines))
    with pytest.raises(FlashRefused, match=r"line 19 reaches beyond its 64 KiB"):
        read_image(AU50, path)
    lines[-2] = mcs_line(0, 0xFFF8, bytes(8))
    image = read_image(AU50, written(path, b"".join(lines)))
    assert image.start == start
    assert (start + image.size) % 0x10000 == 0


def test_a_header_that_was_changed_is_not_believed(tmp_path):
    """The value that the FPGA will compare stands in the words themselves."""
    content = bytearray(xilinx_bit("xcku3p-ffvb676-1-e"))
    place = content.index(bytes.fromhex("aa995566")) + 8
    for idcode, fits in ((0x04A63093, True), (0x14A63093, True), (0x14B77093, False)):
        content[place : place + 8] = bytes.fromhex("30018001") + idcode.to_bytes(4, "big")
        image = read_image(AS02MC04, written(tmp_path / "a.bit", bytes(content)))
        assert image.idcode == idcode
        if fits:
            check_image(AS02MC04, image, None)
        else:
            with pytest.raises(FlashRefused, match="the part with the identity 0x14b77093"):
                check_image(AS02MC04, image, None)
    # Nobody here knows those of Alveo cards.
    image = read_image(AU50, written(tmp_path / "b.bit", xilinx_bit()))
    check_image(AU50, replace(image, idcode=1), None)


def test_partitions_of_a_board_whose_revisions_differ():
    """2 MiB on revision 6.1, 4 on the others; `ecppack` makes 582,369 bytes without --compress."""
    first, second = COLORLIGHT.partitions
    assert (first.offset, first.offset + first.size) == (0, second.offset)
    assert second.offset + second.size <= 2 << 20
    assert min(first.size, second.size) >= 582_369
