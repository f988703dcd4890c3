"""RGMII at the pins of an ECP5: two bits of each pin in a clock, through its DDR registers.

The primitives are those of Lattice's ECP5: `IDDRX1F`, `ODDRX1F`, `DELAYG` (technical notes
FPGA-TN-02032 and -02035). `sim/afflux_sim/rtl/ecp5_cells.v` has models of them.

Tested: `tests/hdl/test_boards_top.py`.
"""

from amaranth.hdl import ClockSignal, Instance, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["TAP_PS", "RgmiiEcp5"]

TAP_PS = 25
"""The approximate delay that each step of a delay line adds."""

TAPS_MAX = 127


class RgmiiEcp5(wiring.Component):
    """Turns the pins of RGMII into GMII bytes, and back.

    A byte's low half is on the pins at the clock's rising edge, its high half at the falling one;
    RX_CTL is RX_DV at the rising edge, and at the falling edge RX_DV exclusive-or RX_ER; the same
    for TX_CTL. The edges of the clocks belong into the middle of the halves, 2 ns behind their
    beginning: most PHYs delay their own RXC and what they get as TXC, as strapped on the board;
    where they do not, it is done here.

    Latency: 2 cycles in, 2 cycles out, the pins' registers included. Throughput: every cycle.

    Args:
        rx, tx: Clock domains: `rx` is clocked by the pin RXC, `tx` by 125 MHz.
        rx_delay_ps: By how much data and control are delayed on their way in.
        tx_clock_delay_ps: By how much TXC is delayed on its way out.

    Raises:
        ValueError: If a delay is more than the part has.

    Members:
        pin_*: The pins, except RXC.
        rx_data, rx_valid, rx_error: As of GMII: RXD, RX_DV, RX_ER.
        tx_data, tx_enable, tx_error: As of GMII: TXD, TX_EN, TX_ER.
    """

    def __init__(
        self, *, rx: str = "rx", tx: str = "tx", rx_delay_ps: int = 0, tx_clock_delay_ps: int = 0
    ) -> None:
        self._rx, self._tx = rx, tx
        self._rx_taps, self._tx_taps = _taps(rx_delay_ps), _taps(tx_clock_delay_ps)
        super().__init__(
            {
                "pin_rx_ctl": In(1),
                "pin_rx_data": In(4),
                "pin_tx_clk": Out(1),
                "pin_tx_ctl": Out(1),
                "pin_tx_data": Out(4),
                "rx_data": Out(8),
                "rx_valid": Out(1),
                "rx_error": Out(1),
                "tx_data": In(8),
                "tx_enable": In(1),
                "tx_error": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        first_ctl, second_ctl = Signal(), Signal()
        data = Signal(8)
        self._input(m, "ctl", self.pin_rx_ctl, first_ctl, second_ctl)
        for n in range(4):
            self._input(m, f"data{n}", self.pin_rx_data[n], data[n], data[n + 4])
        # The outputs of the pins' registers go into registers before anything else.
        m.d[self._rx] += [
            self.rx_data.eq(data),
            self.rx_valid.eq(first_ctl),
            self.rx_error.eq(first_ctl ^ second_ctl),
        ]
        first, second, control = Signal(4), Signal(4), Signal(2)
        m.d[self._tx] += [
            first.eq(self.tx_data[:4]),
            second.eq(self.tx_data[4:]),
            control.eq(self.tx_enable.replicate(2) ^ (self.tx_error << 1)),
        ]
        # The clock rises with its data, or `tx_clock_delay_ps` later.
        self._output(m, "clk", 1, 0, self.pin_tx_clk, self._tx_taps)
        self._output(m, "ctl", control[0], control[1], self.pin_tx_ctl, 0)
        for n in range(4):
            self._output(m, f"data{n}", first[n], second[n], self.pin_tx_data[n], 0)
        return m

    def _input(self, m: Module, name: str, pin: Value, first: Value, second: Value) -> None:
        delayed = Signal(name=f"rx_{name}_delayed")
        _delay(m, f"rx_{name}_delay", pin, delayed, self._rx_taps)
        m.submodules[f"rx_{name}"] = Instance(
            "IDDRX1F",
            i_D=delayed,
            i_SCLK=ClockSignal(self._rx),
            i_RST=0,
            o_Q0=first,
            o_Q1=second,
        )

    def _output(
        self, m: Module, name: str, first: Value | int, second: Value | int, pin: Value, taps: int
    ) -> None:
        prompt = Signal(name=f"tx_{name}_prompt")
        m.submodules[f"tx_{name}"] = Instance(
            "ODDRX1F",
            i_D0=first,
            i_D1=second,
            i_SCLK=ClockSignal(self._tx),
            i_RST=0,
            o_Q=prompt,
        )
        _delay(m, f"tx_{name}_delay", prompt, pin, taps)


def _taps(delay_ps: int) -> int:
    taps = round(delay_ps / TAP_PS)
    if not 0 <= taps <= TAPS_MAX:
        raise ValueError(f"a delay must be 0 to {TAPS_MAX * TAP_PS} ps, not {delay_ps}")
    return taps


def _delay(m: Module, name: str, before: Value, after: Value, taps: int) -> None:
    # Without a delay there still is a delay line, so that all pins of a direction are alike.
    m.submodules[name] = Instance(
        "DELAYG",
        p_DEL_MODE="USER_DEFINED",
        p_DEL_VALUE=taps,
        i_A=before,
        o_Z=after,
    )
