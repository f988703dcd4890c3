"""Memory ports as signatures, and how two parts share one of them."""

from amaranth.hdl import Module, Mux, ShapeLike, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ReadPort", "WritePort", "connect_in_turn", "connect_writers"]


class ReadPort(wiring.Signature):
    """Port of a part that reads a memory.

    Args:
        address: Shape of an address.
        data: Shape of a word.

    Members:
        address: Address of the word.
        data: The word, one cycle later.
    """

    def __init__(self, address: ShapeLike, data: ShapeLike) -> None:
        super().__init__({"address": Out(address), "data": In(data)})


class WritePort(wiring.Signature):
    """Port of a part that writes a memory.

    Args:
        address: Shape of an address.
        data: Shape of a word.

    Members:
        enable: Write in this cycle.
        address: Address of the word.
        data: The word.
    """

    def __init__(self, address: ShapeLike, data: ShapeLike) -> None:
        super().__init__({"enable": Out(1), "address": Out(address), "data": Out(data)})


def connect_in_turn(
    m: Module,
    turn: Value,
    first: wiring.PureInterface,
    second: wiring.PureInterface,
    port: wiring.PureInterface,
) -> None:
    """Let two readers have a memory's read port: `first` while `turn` is 0, `second` while it is 1.

    Each finds its data one cycle after its turn.
    """
    addresses = Value.cast(second.address), Value.cast(first.address)
    m.d.comb += [
        Value.cast(port.address).eq(Mux(turn, *addresses)),
        Value.cast(first.data).eq(Value.cast(port.data)),
        Value.cast(second.data).eq(Value.cast(port.data)),
    ]


def connect_writers(
    m: Module,
    first: wiring.PureInterface,
    second: wiring.PureInterface,
    port: wiring.PureInterface,
) -> None:
    """Let two writers have a memory's write port. They never write at once; `first` would win."""
    m.d.comb += [
        port.enable.eq(first.enable | second.enable),
        *(
            Value.cast(getattr(port, name)).eq(
                Mux(
                    first.enable,
                    Value.cast(getattr(first, name)),
                    Value.cast(getattr(second, name)),
                )
            )
            for name in ("address", "data")
        ),
    ]
