"""A box behind the interface of a simulated node, for checks of a node beside its golden twin."""

from collections.abc import Sequence

from afflux_sim.rtl.verilated_node import NodePace
from tests.support.box.simulated_box import SimulatedBox

__all__ = ["BoxAsNode"]


class BoxAsNode:
    """Port, node and stream of one number, between their adapters."""

    def __init__(self, box: SimulatedBox, number: int = 0) -> None:
        self._box = box
        self._number = number

    def pace(self, pace: NodePace) -> None:
        box, number = self._box, self._number
        box.seed(pace.seed)
        box.pace(box.rx(number), gaps=pace.network_gaps)
        box.pace(box.h2c(number), gaps=pace.host_gaps)
        box.take(box.tx(number), pace.network_ready)
        box.take(box.c2h(number), pace.host_ready)

    def play(
        self,
        from_network: Sequence[bytes],
        from_host: Sequence[bytes],
        *,
        network_errors: Sequence[bool] | None = None,
        host_errors: Sequence[bool] | None = None,
    ) -> tuple[list[bytes], list[bytes]]:
        """Play both, as `VerilatedNode.play` does; there are no marks in a shell."""
        assert not any(network_errors or ()) and not any(host_errors or ())
        box, number = self._box, self._number
        box.from_network(from_network, number)
        box.from_host(from_host, number)
        box.settle()
        assert not box.stalls(box.rx(number)), "a frame from the network had to wait"
        return (
            [each.frame for each in box.to_network(number)],
            [each.frame for each in box.to_host(number)],
        )

    def read(self, address: int) -> int:
        return self._box.read(address, self._number)

    def write(self, address: int, value: int) -> None:
        self._box.write(address, value, self._number)

    def reset(self) -> None:
        self._box.reset()
