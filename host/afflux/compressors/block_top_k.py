"""The blocks with the largest norms."""

import torch

from afflux.schemes.compressor import Selector
from afflux.schemes.density import checked_density, share_of
from afflux_hdl.contract import wire

__all__ = ["BlockTopK"]


class BlockTopK(Selector):
    """Whole blocks of the wire, those in which most is: what the group does not send otherwise.

    J. Fei et al., "Efficient Sparse Collective Communication and Its Application to Accelerate
    Distributed Deep Learning" (OmniReduce), SIGCOMM 2021, section 4: block-based sparsification by
    top-k of the blocks' norms, with error feedback.

    * Bias: biased; with feedback nothing is lost.
    * Volume: the density's share of the tensor, as the group skips the other blocks. If the ranks'
      blocks are not the same, what comes back is their union.
    * Cost: one pass over the tensor, and a selection among its blocks, 1 for each 256 bytes.

    Args:
        density: Share of the blocks, above 0 and at most 1; at least one block.
        blocks: Of the wire (256 bytes each), for one block here. More cost less to choose, and
            one exponent in the look-ahead words is then spent on more elements.

    Raises:
        ValueError: A number is out of its range.
    """

    word = "blocktopk"

    def __init__(self, density: float = 0.01, blocks: int = 1) -> None:
        if blocks < 1:
            raise ValueError(f"blocks is {blocks}: it must be at least 1")
        self.density = checked_density(density)
        self._bytes = blocks * wire.BLOCK_BYTES

    def move(self, tensor: torch.Tensor, offer: torch.Tensor) -> torch.Tensor:
        """See `Selector`. Of norms that are equally large any may be among the chosen.

        A block whose norm is not finite is larger than all others, so that it comes to light.
        """
        if len(tensor) == 0:
            return torch.zeros(0, dtype=torch.int64)
        size = self._bytes // tensor.element_size()
        whole = len(tensor) // size
        norms = torch.empty(-(-len(tensor) // size))
        torch.linalg.vector_norm(tensor[: whole * size].view(whole, size), dim=1, out=norms[:whole])
        norms[whole:] = torch.linalg.vector_norm(tensor[whole * size :])
        # A norm that is not a number is the largest for topk.
        count = share_of(self.density, len(norms))
        chosen = torch.topk(norms, count, sorted=False).indices.sort().values
        places = (chosen.unsqueeze(1) * size + torch.arange(size)).view(-1)
        # The last block of the tensor may be shorter.
        places = places[: len(places) - max(0, (int(chosen[-1]) + 1) * size - len(tensor))]
        offer[places] = tensor[places]
        tensor[places] = 0.0
        return places
