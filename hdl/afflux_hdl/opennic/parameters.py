"""Build-time parameters of a box."""

from dataclasses import dataclass, field

from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.opennic.streams import BUS_BITS

__all__ = ["BoxParameters"]


@dataclass(frozen=True, kw_only=True)
class BoxParameters:
    """The sizes of a box.

    Attributes:
        node: Parameters of each node.
        ports: Network ports, 1 or 2: the shell's `-num_cmac_port`.
        nodes: 1, or one for each port. One node at two ports is built for as many, two nodes for
            one each.
        port_buffer_bytes: Size of the buffer behind each port, a power of two, where two share a
            node.
        functions: Streams to and from the host, at least one for each port and at most 8: the
            shell's `-num_phys_func` times its `-num_qdma`. Stream f belongs to port f mod `ports`.

    Raises:
        ValueError: If one of these does not fit.
    """

    node: NodeParameters = field(default_factory=NodeParameters)
    ports: int = 1
    nodes: int = 1
    functions: int = 1
    port_buffer_bytes: int = 32768

    def __post_init__(self) -> None:
        if self.ports not in (1, 2):
            raise ValueError(f"ports must be 1 or 2, as the shell has it, not {self.ports}")
        if self.nodes not in (1, self.ports):
            raise ValueError(
                f"nodes must be 1, or one for each port ({self.ports}), not {self.nodes}"
            )
        if not self.ports <= self.functions <= 8:
            raise ValueError(
                f"functions must be one for each port ({self.ports}) or more, at most 8, "
                f"not {self.functions}"
            )
        each = self.ports // self.nodes
        if self.node.engine.ports != each:
            raise ValueError(
                f"a node of this box has {each} network ports, not {self.node.engine.ports}"
            )
        if self.node.engine.bus_bits != BUS_BITS:
            raise ValueError(
                f"the shell's streams have {BUS_BITS} bits, the node's {self.node.engine.bus_bits}"
            )
