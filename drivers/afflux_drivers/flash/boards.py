"""The boards that `afflux flash` knows: FPGA, flash, and the partitions that may be written."""

from dataclasses import dataclass

from afflux_drivers.flash.errors import FlashRefused

__all__ = ["BOARDS", "FlashBoard", "Partition", "board_of"]

_MIB = 1 << 20


@dataclass(frozen=True)
class Partition:
    """A range of the flash for one image.

    Attributes:
        name: Name in the command.
        offset: First byte.
        size: Bytes.
    """

    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class FlashBoard:
    """How a board is loaded.

    Attributes:
        name: Name in the command.
        part: FPGA with its package, as the maker's tools write it, without speed grade.
        maker: "lattice" or "xilinx".
        tool: "openfpgaloader" or "vivado".
        partitions: Where images may be written, the usual one first. Flash outside all of them is
            never written.
        idcodes: The FPGA's answers on JTAG; empty if the tool itself names the part.
        loader_board: openFPGALoader's name of it; empty if it has none.
        cable: JTAG adapter on the board, as openFPGALoader calls it; empty if it needs one.
        flash_part: Vivado's name of the flash.
        device_glob: The name of the FPGA in Vivado's hardware manager.
        on_pcie: It is a PCIe card, of which a host must let go before.
        comes_back: Our design in it is on PCIe too, so the host must find it again.
    """

    name: str
    part: str
    maker: str
    tool: str
    partitions: tuple[Partition, ...]
    idcodes: frozenset[int] = frozenset()
    loader_board: str = ""
    cable: str = ""
    flash_part: str = ""
    device_glob: str = ""
    on_pcie: bool = False
    comes_back: bool = False

    def partition(self, name: str | None) -> Partition:
        """Return a partition by its name; None is the usual one.

        Raises:
            FlashRefused: There is none of this name.
        """
        for each in self.partitions:
            if name in (None, each.name):
                return each
        known = ", ".join(each.name for each in self.partitions)
        raise FlashRefused(f"{self.name} has no partition {name!r}; it has {known}")


def _halves(flash_bytes: int) -> tuple[Partition, ...]:
    half = flash_bytes // 2
    return Partition("first", 0, half), Partition("second", half, half)


def _ecp5(
    name: str,
    part: str,
    idcode: int,
    flash_bytes: int,
    loader_board: str = "",
    cable: str = "",
) -> FlashBoard:
    return FlashBoard(
        name=name,
        part=part,
        maker="lattice",
        tool="openfpgaloader",
        partitions=_halves(flash_bytes),
        idcodes=frozenset({idcode}),
        loader_board=loader_board,
        cable=cable,
    )


_ALVEO_FLASH = 128 * _MIB

_ALVEO_USER = 0x0100_2000
"""Below is the golden image, which restores a card whose user image is broken, and which nobody can
write again over PCIe once it is gone (AMD answer record 71915)."""


def _alveo(name: str, part: str, device_glob: str) -> FlashBoard:
    return FlashBoard(
        name=name,
        part=part,
        maker="xilinx",
        tool="vivado",
        partitions=(Partition("user", _ALVEO_USER, _ALVEO_FLASH - _ALVEO_USER),),
        flash_part="mt25qu01g-spi-x1_x2_x4",
        device_glob=device_glob,
        on_pcie=True,
        comes_back=True,
    )


BOARDS = {
    each.name: each
    for each in (
        _ecp5("ecpix5-45f", "LFE5UM5G-45F-CABGA554", 0x8111_2043, 32 * _MIB, loader_board="ecpix5"),
        _ecp5("ecpix5-85f", "LFE5UM5G-85F-CABGA554", 0x8111_3043, 32 * _MIB, loader_board="ecpix5"),
        _ecp5(
            "colorlight-5a-75b",
            "LFE5U-25F-CABGA256",
            0x4111_1043,
            # Revision 6.1 has 2 MiB (GD25Q16C), 7.0 to 8.2 have 4 (W25Q32JV), by chubby75's pages,
            # and JTAG does not tell them apart. The lower halves are right on all of them.
            2 * _MIB,
            loader_board="colorlight",
        ),
        _ecp5("versa-ecp5", "LFE5UM-45F-CABGA381", 0x0111_2043, 16 * _MIB, cable="ft2232"),
        FlashBoard(
            name="as02mc04",
            part="xcku3p-ffvb676",
            maker="xilinx",
            tool="openfpgaloader",
            partitions=_halves(32 * _MIB),
            idcodes=frozenset({0x04A6_3093}),
            loader_board="alibaba_u3p",
            on_pcie=True,
        ),
        _alveo("au50", "xcu50-fsvh2104", "xcu50*"),
        _alveo("au55c", "xcu55c-fsvh2892", "xcu55c*"),
        _alveo("au200", "xcu200-fsgd2104", "xcu200*"),
        _alveo("au250", "xcu250-figd2104", "xcu250*"),
        _alveo("au280", "xcu280-fsvh2892", "xcu280*"),
    )
}
"""All boards, by name."""


def board_of(name: str) -> FlashBoard:
    """Return a board by its name.

    Raises:
        FlashRefused: There is none of this name; names all.
    """
    if name not in BOARDS:
        raise FlashRefused(f"board {name!r} is not known; known are {', '.join(BOARDS)}")
    return BOARDS[name]
