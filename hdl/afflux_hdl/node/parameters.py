"""Build-time parameters of a node."""

from dataclasses import dataclass, field

from afflux_hdl.engine.parameters import Parameters

__all__ = ["NodeParameters"]


@dataclass(frozen=True, kw_only=True)
class NodeParameters:
    """Sizes of a node. Those that memories are addressed by are powers of two.

    Attributes:
        engine: Parameters of the engine; the bus has the same width everywhere.
        host_buffer_bytes: Size of the buffer of frames in each direction of the host path, a power
            of two. A larger frame never passes.
        echo_buffer_bytes: Size of the buffer of echo requests, a power of two.

    Raises:
        ValueError: If a size is not a power of two, or too small.
    """

    engine: Parameters = field(default_factory=Parameters)
    host_buffer_bytes: int = 16384
    echo_buffer_bytes: int = 4096

    def __post_init__(self) -> None:
        for name in ("host_buffer_bytes", "echo_buffer_bytes"):
            value = getattr(self, name)
            if value < 2048 or value & (value - 1):
                raise ValueError(f"{name} must be a power of two of at least 2048, not {value}")
