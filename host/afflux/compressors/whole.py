"""Everything, in float32: what the others are compared with."""

import torch
import torch.distributed as dist

from afflux.schemes.compressor import Compressor, check_flat

__all__ = ["Whole"]


class Whole(Compressor):
    """All elements as float32: not biased, and four bytes for each that is not in a zero block."""

    word = "float32"
    on_devices = True
    biased = False

    def take(
        self, tensor: torch.Tensor, average: torch.Tensor, group: dist.ProcessGroup | None
    ) -> None:
        """See `Compressor`. The cost is one copy beside the sum."""
        check_flat(tensor, average)
        average.copy_(tensor)
        dist.all_reduce(average, dist.ReduceOp.AVG, group)
        tensor.zero_()

    def volume(self, elements: int, ranks: int) -> float:
        """See `Compressor`."""
        return 4.0 * elements
