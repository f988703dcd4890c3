"""The boards' facts: pins are there, none is used twice, and both spellings of the control pins."""

import re

import pytest

from afflux_hdl.boards.board import Board, pins_of
from afflux_hdl.boards.ecp5_top import top_pins
from afflux_hdl.boards.status_leds import PURPOSES
from afflux_hdl.boards.table import BOARDS, board_of

ALL = pytest.mark.parametrize("board", BOARDS.values(), ids=list(BOARDS))


@ALL
def test_all_pins_are_there_and_none_is_used_twice(board: Board) -> None:
    widths = {name: len(pins) for name, pins in top_pins(board)}
    assert widths.pop("rgmii_rx_data") == widths.pop("rgmii_tx_data") == 4
    assert set(widths.values()) == {1}
    assert {"clock", "phy_reset", "rgmii_rx_clk", "rgmii_rx_ctl"} <= widths.keys()
    assert {"rgmii_tx_clk", "rgmii_tx_ctl"} <= widths.keys()
    assert {name for name in widths if name.startswith("led_")} == {
        f"led_{purpose}" for purpose in board.leds
    }
    assert board.leds.keys() <= PURPOSES.keys()
    sites = [pin.site for _, pins in top_pins(board) for pin in pins]
    assert len(sites) == len(set(sites))
    assert all(dict(pin.attributes)["IO_TYPE"] for _, pins in top_pins(board) for pin in pins)


@ALL
def test_nextpnr_is_told_the_same_part_as_amaranth_boards_has(board: Board) -> None:
    family, size = re.fullmatch(r"LFE5(U|UM|UM5G)-(\d\d)F", board.device).groups()
    option = {"U": "", "UM": "um-", "UM5G": "um5g-"}[family] + f"{size}k"
    assert board.arguments == (
        f"--{option}",
        "--package",
        board.package,
        "--speed",
        board.speed,
    )


# As the boards' schematics and litex-boards have them, typed in once more.
@pytest.mark.parametrize(
    ("name", "pins"),
    [
        ("colorlight-5a-75b", "P6 M1 N6 N1 M5 N5 M6 M2 M3 L1 L3 P2 L4 P5"),
        ("ecpix5-45f", "K23 E11 A11 B11 A10 B10 A9 A12 C9 D8 C8 B8 A8 C13"),
        ("ecpix5-85f", "K23 E11 A11 B11 A10 B10 A9 A12 C9 D8 C8 B8 A8 C13"),
        ("versa-ecp5", "P3 L20 U19 T20 U20 T19 R18 P19 R20 N19 N20 P18 P20 U17"),
    ],
)
def test_pins_are_those_of_the_schematics(name: str, pins: str) -> None:
    found = [pin for _, each in top_pins(BOARDS[name]) for pin in each]
    assert [pin.site for pin in found[:14]] == pins.split()
    # The reset of every PHY is low when it is active.
    assert found[13].inverted


# Likewise, of the second PHY. On the Colorlight both have one reset.
@pytest.mark.parametrize(
    ("name", "pins"),
    [
        ("colorlight-5a-75b", "M16 L15 P13 N13 P14 M15 M12 R15 T14 R12 R13 R14"),
        ("versa-ecp5", "J19 F19 G18 G16 H18 H17 C20 E19 J17 J16 D19 D20 F20"),
    ],
)
def test_pins_of_the_second_port_come_behind_the_first_ones(name: str, pins: str) -> None:
    board = BOARDS[name]
    first, both = list(top_pins(board)), list(top_pins(board, 2))
    assert [each for each in both if each in first] == first
    second = [(at, each) for at, each in both if (at, each) not in first]
    assert [pin.site for _, each in second for pin in each] == pins.split()
    assert [at for at, _ in second][:6] == [
        *("rgmii_rx_clk_1", "rgmii_rx_ctl_1", "rgmii_rx_data_1"),
        *("rgmii_tx_clk_1", "rgmii_tx_ctl_1", "rgmii_tx_data_1"),
    ]
    sites = [pin.site for _, each in both for pin in each]
    assert len(sites) == len(set(sites))
    with pytest.raises(ValueError, match=f"{name} has 2 network ports: ports cannot be 3"):
        list(top_pins(board, 3))


def test_both_spellings_of_the_control_pins_are_taken() -> None:
    second = pins_of(BOARDS["versa-ecp5"].platform, "eth_rgmii", 1)
    assert second["tx_ctl"][0].site == "E19"
    assert second["rx_ctl"][0].site == "F19"


def test_the_phy_of_the_ecpix5_gets_its_mode_from_pulled_up_pins() -> None:
    pins = dict(top_pins(BOARDS["ecpix5-45f"]))
    assert all(("PULLMODE", "UP") in pin.attributes for pin in pins["rgmii_rx_data"])


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="no board is called 'ecpix6'; there are colorlight"):
        board_of("ecpix6")
    with pytest.raises(ValueError, match="VersaECP5Platform has no resource eth_rgmii 2"):
        pins_of(BOARDS["versa-ecp5"].platform, "eth_rgmii", 2)
    with pytest.raises(ValueError, match="ecpix5-45f has 1 network port: ports cannot be 2"):
        BOARDS["ecpix5-45f"].clock_mhz(2)
