"""Has a simulated board take its settings from a file when it starts, and not from its Verilog.

So one build is every board, as one bitstream is: there the settings are patched into a placed
design (`hdl/afflux_hdl/boards/placed_settings.py`), and the key is in no netlist.
"""

import re

__all__ = ["ARGUMENT", "settings_from_file", "settings_lines"]

ARGUMENT = "+afflux_settings="
"""Before the name of the file, among the arguments of the simulator."""

# As Yosys writes a memory of this name, and its initial values.
_MEMORY = re.compile(
    r"^  reg \[15:0\] settings \[\d+:0\];\n"
    r"  initial begin\n(?:    settings\[\d+\] = .*;\n)+  end\n",
    re.MULTILINE,
)

_FROM_FILE = """\
  string settings_file;
  initial if ($value$plusargs("afflux_settings=%s", settings_file))
    $readmemh(settings_file, settings);
"""


def settings_from_file(verilog: str) -> str:
    """Return the same Verilog, whose memory `settings` is read from a file if one is named.

    Raises:
        ValueError: There is not exactly one such memory.
    """
    text, found = _MEMORY.subn(lambda match: match[0] + _FROM_FILE, verilog)
    if found != 1:
        raise ValueError(f"there are {found} memories called settings in this Verilog, not 1")
    return text


def settings_lines(settings: bytes) -> str:
    """Return what such a file has: words of 16 bits, the first octet in the low bits."""
    words = (int.from_bytes(settings[at : at + 2], "little") for at in range(0, len(settings), 2))
    return "".join(f"{word:04x}\n" for word in words)
