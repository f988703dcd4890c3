"""The stream rule of Amaranth (RFC 61) and AXI: what is valid stays as it is until it is taken."""

from collections.abc import Callable

from amaranth.hdl import Const, Module, Signal, Value

__all__ = ["holds"]


def holds(
    m: Module,
    stream: object,
    kind: Callable[..., object],
    *,
    payload_if: Value | None = None,
) -> None:
    """Assert or assume the rule of a stream.

    Args:
        m: Where.
        stream: An interface with `valid`, `ready` and `payload`.
        kind: `Assert` or `Assume`.
        payload_if: Where the payload is looked at, if not everywhere.
    """
    payload = Value.cast(stream.payload)  # type: ignore[attr-defined]
    waited = Signal()
    before = Signal(len(payload))
    m.d.sync += [
        waited.eq(stream.valid & ~stream.ready),  # type: ignore[attr-defined]
        before.eq(payload),
    ]
    with m.If(waited):
        m.d.comb += kind(stream.valid, "valid stays until ready")  # type: ignore[attr-defined]
        with m.If(Const(1) if payload_if is None else payload_if):
            m.d.comb += kind(payload == before, "payload stays until ready")
