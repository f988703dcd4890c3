"""The Vivado project of the AS02MC04 card: a stand-alone 25-Gbit/s aggregation appliance."""

from pathlib import Path

from afflux_hdl.contract.management import Settings
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.management.management import Management
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.port.verilog import PORT_MODULE, PortParameters, generate_port
from afflux_hdl.vivado.as02mc04_pins import CLOCKS, PART, PINS, UNUSED
from afflux_hdl.vivado.crossings import constraints, find_crossings, mark_synchronisers
from afflux_hdl.vivado.files import fill, write_files

__all__ = ["BUS_BITS", "CLOCK_HZ", "LINE_GBIT", "MAC_BITS", "parameters", "write_project"]

CLOCK_HZ = 156_250_000
"""Of the node: 100 MHz · 12.5 / 8."""

BUS_BITS = 256
MAC_BITS, MAC_CLOCK_HZ = 64, 390_625_000
LINE_GBIT = 25.0

MAC_REPOSITORY = "https://github.com/alexforencich/verilog-ethernet.git"
MAC_COMMIT = "77320a9471d19c7dd383914bc049e02d9f4f1ffb"
"""Of 27 February 2025, MIT licence: the last one, since the author works on a successor."""

MAC_FILES = (
    "rtl/eth_mac_10g.v",
    "rtl/axis_xgmii_rx_64.v",
    "rtl/axis_xgmii_tx_64.v",
    "rtl/eth_phy_10g.v",
    "rtl/eth_phy_10g_rx.v",
    "rtl/eth_phy_10g_rx_if.v",
    "rtl/eth_phy_10g_rx_frame_sync.v",
    "rtl/eth_phy_10g_rx_ber_mon.v",
    "rtl/eth_phy_10g_rx_watchdog.v",
    "rtl/eth_phy_10g_tx.v",
    "rtl/eth_phy_10g_tx_if.v",
    "rtl/xgmii_baser_dec_64.v",
    "rtl/xgmii_baser_enc_64.v",
    "rtl/lfsr.v",
)
"""All that the project takes from there."""

TOP = "as02mc04"
RTL = Path(__file__).with_name("rtl")


def parameters(**build: int) -> PortParameters:
    """Return what the node is built for.

    128 slots are 1 MiB of sums and an eighth more of residues: by Yosys 34 of the 48 ultra RAMs.
    A pause of Ethernet flow control lasts 1.34 ms at most at 25 Gbit/s: 2**18 cycles are 1.68 ms.
    """
    engine = Parameters(
        bus_bits=BUS_BITS,
        slots=128,
        link_timeout=1 << 18,
        ram_output_register=1,
        **build,
    )
    return PortParameters(node=NodeParameters(engine=engine), mac_bits=MAC_BITS)


def write_project(
    folder: Path, settings: Settings, built: PortParameters | None = None, **build: int
) -> list[Path]:
    """Write the project into `folder`, and return the paths of its files.

    Equal arguments give equal files.

    Args:
        folder: Made if it is not there.
        settings: Of the board's management.
        built: Sizes other than those of `parameters`.
        build: `build_time` and `build_commit`, as of an engine's `Parameters`.
    """
    sizes = built or parameters(**build)
    management = Management(settings=settings, clock_hz=CLOCK_HZ)
    verilog = mark_synchronisers(generate_port(sizes, management))
    values = {
        "top": TOP,
        "part": PART,
        "mac_repository": MAC_REPOSITORY,
        "mac_commit": MAC_COMMIT,
        "mac_files": "".join(f"    {name}\n" for name in MAC_FILES),
        "sources": "".join(f"    rtl/{name}\n" for name in _sources()),
        "unused": "".join(f"* {line}\n" for line in UNUSED),
        "address": settings.address or "from DHCP",
        "controller": settings.controller,
        "device": f"udp://{settings.address or 'ADDRESS'}",
    }
    files = {
        f"rtl/{PORT_MODULE}.v": verilog,
        **{
            f"rtl/{path.name}": path.read_text(encoding="utf-8") for path in sorted(RTL.glob("*.v"))
        },
        "constraints/pins.xdc": pins_xdc(),
        "constraints/crossings.tcl": constraints(find_crossings(verilog), "port"),
        "ip/gty_25g.tcl": fill(_template("gty_25g.tcl"), values),
        "build.tcl": fill(_template("as02mc04_build.tcl"), values),
        "README.md": fill(_template("as02mc04_readme.md"), values),
    }
    # The Verilog holds the board's key.
    return write_files(folder, files, secret={f"rtl/{PORT_MODULE}.v"})


def _template(name: str) -> str:
    return (RTL.parent / "templates" / name).read_text(encoding="utf-8")


def _sources() -> list[str]:
    return [f"{PORT_MODULE}.v", *(path.name for path in sorted(RTL.glob("*.v")))]


def pins_xdc() -> str:
    """Return the constraints of pins, clocks that come in, and configuration."""
    lines = [
        f"# AS02MC04: {PART}",
        "",
        "set_property CFGBVS GND [current_design]",
        "set_property CONFIG_VOLTAGE 1.8 [current_design]",
        "set_property CONFIG_MODE SPIx4 [current_design]",
        "set_property BITSTREAM.CONFIG.SPI_BUSWIDTH 4 [current_design]",
        "set_property BITSTREAM.CONFIG.SPI_FALL_EDGE Yes [current_design]",
        "set_property BITSTREAM.CONFIG.CONFIGRATE 72.9 [current_design]",
        "set_property BITSTREAM.CONFIG.UNUSEDPIN Pullup [current_design]",
        "set_property BITSTREAM.CONFIG.OVERTEMPSHUTDOWN Enable [current_design]",
        "set_property BITSTREAM.GENERAL.COMPRESS true [current_design]",
        "",
    ]
    for pin in PINS:
        properties = f"PACKAGE_PIN {pin.site}"
        if pin.standard:
            properties += f" IOSTANDARD {pin.standard}"
        if pin.pullup:
            properties += " PULLUP true"
        if pin.is_output:
            properties += " SLEW SLOW DRIVE 12"
        lines.append(f"# {pin.what}")
        lines.append(f"set_property -dict {{{properties}}} [get_ports {{{pin.port}}}]")
    lines.append("")
    for port, (name, period_ns) in CLOCKS.items():
        lines.append(f"create_clock -name {name} -period {period_ns} [get_ports {port}]")
    slow = [pin.port for pin in PINS if pin.standard == "LVCMOS33"]
    ins = " ".join(name for name in slow if "led" not in name)
    outs = " ".join(name for name in slow if "led" in name)
    lines += [
        "",
        "# People press and look, and modules are plugged in: no cycle counts.",
        f"set_false_path -from [get_ports {{{ins}}}]",
        f"set_false_path -to [get_ports {{{outs}}}]",
        "set_false_path -to [get_pins */stages_reg*/PRE]",
        "",
    ]
    return "\n".join(lines)
