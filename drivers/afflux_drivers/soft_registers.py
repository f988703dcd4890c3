"""The register file of the software engine: names, widths and access from the register map."""

from collections.abc import Callable, Mapping

from afflux_hdl import registers

__all__ = ["RegisterFile"]

_BY_ADDRESS = {register.address: register for register in registers.REGISTERS}
_COUNTERS_END = registers.COUNTER_BASE + 8 * len(registers.COUNTERS)


class RegisterFile:
    """Registers and 64-bit counters, read and written in words of 32 bits.

    What the map does not name reads as 0 and ignores writes, as does a write to what is read-only:
    so does a bus.

    Args:
        fixed: Values of read-only registers, by name.
        live: Functions that give the values of other read-only registers, by name, from this file.
        counters: The counters, by name; read, never written, here.
        command: Called with the value when job_command is written.
    """

    def __init__(
        self,
        fixed: dict[str, int],
        live: Mapping[str, Callable[["RegisterFile"], int]],
        counters: dict[str, int],
        command: Callable[[int], None],
    ) -> None:
        self._values = {register.name: 0 for register in registers.REGISTERS} | fixed
        self._live = live
        self._counters = counters
        self._command = command
        self._latched = 0

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def read(self, address: int) -> int:
        """The word at a byte address. Reading a counter's lower word latches its upper one."""
        if registers.COUNTER_BASE <= address < _COUNTERS_END:
            number, half = divmod(address - registers.COUNTER_BASE, 8)
            if half == 0:
                value = self._counters[registers.COUNTERS[number].name]
                self._latched = value >> 32 & 0xFFFF_FFFF
                return value & 0xFFFF_FFFF
            return self._latched if half == 4 else 0
        register = _BY_ADDRESS.get(address)
        if register is None:
            return 0
        live = self._live.get(register.name)
        return self._values[register.name] if live is None else live(self)

    def write(self, address: int, value: int) -> None:
        """Writes the word at a byte address."""
        register = _BY_ADDRESS.get(address)
        if register is None or register.access is not registers.Access.READ_WRITE:
            return
        value &= (1 << register.width) - 1
        if register.name == "job_command":
            self._command(value)
        else:
            self._values[register.name] = value
