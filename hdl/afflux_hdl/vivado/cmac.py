"""The files for a node behind AMD's CMAC on an Alveo card."""

from pathlib import Path

from afflux_hdl.contract.management import Settings
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.management.management import Management
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.port.verilog import PORT_MODULE, PortParameters, generate_port
from afflux_hdl.vivado.alveo import Alveo
from afflux_hdl.vivado.as02mc04 import RTL as VIVADO_RTL
from afflux_hdl.vivado.crossings import constraints, find_crossings, mark_synchronisers
from afflux_hdl.vivado.files import fill, write_files

__all__ = ["CLOCK_HZ", "parameters", "write_cmac"]

CLOCK_HZ = 250_000_000
BITS = 512
RX_BEATS, TX_BEATS = 512, 512

HERE = Path(__file__).parent


def parameters(**build: int) -> PortParameters:
    """Return what the node is built for: the sizes of `docs/cost.md`.

    32 KiB before the node keep 512 frames of a flood that is too fast for it; 32 KiB behind it keep
    seven of the engine's longest frames.
    """
    engine = Parameters(bus_bits=BITS, ram_output_register=1, **build)
    return PortParameters(
        node=NodeParameters(engine=engine),
        mac_bits=BITS,
        rx_beats=RX_BEATS,
        tx_beats=TX_BEATS,
    )


def write_cmac(
    folder: Path,
    card: Alveo,
    settings: Settings,
    built: PortParameters | None = None,
    **build: int,
) -> list[Path]:
    """Write the files for `card` into `folder`, and return their paths.

    Equal arguments give equal files.

    Args:
        folder: Made if it is not there.
        card: The card; its first cage is used.
        settings: Of its management.
        built: Sizes other than those of `parameters`.
        build: `build_time` and `build_commit`, as of an engine's `Parameters`.
    """
    sizes = built or parameters(**build)
    management = Management(settings=settings, clock_hz=CLOCK_HZ)
    verilog = mark_synchronisers(generate_port(sizes, management))
    crossings = find_crossings(verilog)
    sources = ("afflux_cmac.v", f"{PORT_MODULE}.v")
    cage = card.cage
    one, two, three, four = cage.lanes
    values = {
        "board": card.name,
        "part": card.part,
        "core": cage.core,
        "refclk_mhz": f"{cage.refclk_hz / 1e6:.10g}",
        "refclk_p": cage.refclk_pins[0],
        "refclk_n": cage.refclk_pins[1],
        "lane_one": one,
        "lane_two": two,
        "lane_three": three,
        "lane_four": four,
        "first_lane": one,
        "last_lane": four,
        "lanes": ", ".join(cage.lanes),
        "sources": "".join(f"    rtl/{name}\n" for name in sources),
        "address": settings.address or "from DHCP",
        "controller": settings.controller,
    }

    def filled(name: str) -> str:
        return fill((HERE / "templates" / "cmac" / name).read_text(encoding="utf-8"), values)

    files = {
        f"rtl/{PORT_MODULE}.v": verilog,
        "rtl/afflux_cmac.v": (HERE / "templates" / "cmac" / "afflux_cmac.v").read_text(
            encoding="utf-8"
        ),
        "rtl/afflux_entropy.v": (VIVADO_RTL / "afflux_entropy.v").read_text(encoding="utf-8"),
        "ip/cmac_100g.tcl": filled("cmac_100g.tcl"),
        "constraints/crossings.tcl": constraints(crossings, "port"),
        "constraints/crossings_ooc.tcl": constraints(crossings, ""),
        "ooc.tcl": filled("ooc.tcl"),
        "build.tcl": filled("build.tcl"),
        "README.md": filled("readme.md"),
    }
    return write_files(folder, files, secret={f"rtl/{PORT_MODULE}.v"})
