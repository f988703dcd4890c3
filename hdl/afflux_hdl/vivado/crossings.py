"""Where the generated Verilog crosses between clocks, and the timing constraints for that.

The places are read from the Verilog, so none can be misspelt; that none is forgotten, and none is
there that is not meant, is tested beside the netlist.

Tested: `tests/hdl/test_clock_crossings.py`, `tests/hdl/test_vivado.py`.
"""

import re
from dataclasses import dataclass

__all__ = ["Crossings", "constraints", "find_crossings", "mark_synchronisers"]

_MODULE = re.compile(
    r"^module \\?(?P<path>\S+?) ?\((?P<ports>[^)]*)\);(?P<body>.*?)^endmodule",
    re.MULTILINE | re.DOTALL,
)
_MEMORY = re.compile(r"^ *reg \[[^]]+\] \S+ \[", re.MULTILINE)
_STAGE = re.compile(r"^( *)(reg (?:\[[^]]+\] )?stage\d+\b)", re.MULTILINE)


@dataclass(frozen=True)
class Crossings:
    """Instances below the top module, as Vivado names them.

    Attributes:
        synchronisers: Two registers for each bit of a Gray count.
        resets: Two registers that a reset sets at once.
        memories: Parts with a memory that is written by one clock and read by the other.
    """

    synchronisers: tuple[str, ...]
    resets: tuple[str, ...]
    memories: tuple[str, ...]


def find_crossings(verilog: str) -> Crossings:
    """Return the crossings in the Verilog of `afflux_hdl.port.verilog`."""
    modules = {_instance(module["path"]): module for module in _MODULE.finditer(verilog)}
    synchronisers = tuple(
        path
        for path, module in sorted(modules.items())
        if path.endswith("cdc") and "async_ff" not in module["ports"]
    )
    resets = tuple(
        path for path, module in sorted(modules.items()) if "async_ff_rst" in module["ports"]
    )
    owners = sorted({_owner(path) for path in synchronisers})
    memories = tuple(path for path in owners if _MEMORY.search(modules[path]["body"]))
    return Crossings(synchronisers, resets, memories)


def mark_synchronisers(verilog: str) -> str:
    """Return the Verilog with the attribute that keeps a synchroniser's registers side by side."""

    def marked(module: re.Match[str]) -> str:
        if not module["path"].endswith(("cdc", "rst_sync")):
            return module[0]
        return _STAGE.sub(r'\1(* ASYNC_REG = "TRUE", SHREG_EXTRACT = "NO" *) \2', module[0])

    return _MODULE.sub(marked, verilog)


def _instance(module: str) -> str:
    """Return the path of the instance of a module: "top.a.b" to "a/b"."""
    return "/".join(module.split(".")[1:])


def _owner(synchroniser: str) -> str:
    """Return the crossing that a synchroniser belongs to: "a/tx/freed/cdc" to "a/tx"."""
    parts = synchroniser.split("/")
    return "/".join(parts[:-2] if parts[-1] == "cdc" else parts[:-1])


def constraints(crossings: Crossings, prefix: str) -> str:
    """Return the constraints as Tcl.

    Args:
        crossings: The crossings.
        prefix: Instance of the generated top module in the design, or "" if it is the design.
    """
    place = f"{prefix}/" if prefix else ""

    def listed(paths: tuple[str, ...]) -> str:
        return "".join(f"    {place}{path}\n" for path in paths)

    return _TEXT.format(
        synchronisers=listed(crossings.synchronisers),
        resets=listed(crossings.resets),
        memories=listed(crossings.memories),
    )


_TEXT = """\
# Crossings between clocks. Generated from the Verilog, which names each of these instances.

# Counts in Gray code. Two of their bits may be less than a cycle apart: then the sampled value is
# the count before a change or after it.
foreach crossing {{
{synchronisers}}} {{
    set first [get_cells -quiet "$crossing/stage0_reg*"]
    if {{[llength $first] == 0}} {{
        error "no synchroniser at $crossing: has its hierarchy been dissolved?"
    }}
    set from [all_fanin -flat -startpoints_only -only_cells \\
        [get_pins -of_objects $first -filter {{REF_PIN_NAME == D}}]]
    set from [filter $from {{IS_SEQUENTIAL}}]
    set slow [get_property PERIOD [get_clocks -of_objects [lindex $from 0]]]
    set fast [get_property PERIOD [get_clocks -of_objects [lindex $first 0]]]
    set period [expr {{min($slow, $fast)}}]
    set_max_delay -datapath_only -from $from -to $first $period
    set_bus_skew -from $from -to $first $period
}}

# Resets begin without a clock and end with one.
foreach crossing {{
{resets}}} {{
    set stages [get_cells "$crossing/stage*_reg"]
    set_false_path -to [get_pins -of_objects $stages -filter {{REF_PIN_NAME == PRE}}]
}}

# Memories with two clocks. In block RAM nothing crosses but inside it. If Vivado has chosen LUTs, a
# word is read three cycles or more after it was written.
foreach crossing {{
{memories}}} {{
    set luts [get_cells -quiet -hierarchical \\
        -filter "NAME =~ $crossing/* && PRIMITIVE_GROUP == CLB && PRIMITIVE_SUBGROUP == LUTRAM"]
    if {{[llength $luts]}} {{
        set_max_delay -datapath_only -from $luts [get_property -min PERIOD [all_clocks]]
    }}
}}
"""
