"""One worker of several aggregators that share the columns of a tensor: protocol, section 3."""

from collections.abc import Sequence

from afflux_sim.golden.encoding import Encoding
from afflux_sim.golden.reductions import Tensor
from afflux_sim.golden.worker import GoldenWorker

__all__ = ["SharedColumns", "sharing"]


def sharing(encoding: Encoding, lanes: int, aggregators: int) -> int:
    """Return how many of the aggregators, the first ones, carry out an operation."""
    if encoding.direct:
        return 1
    return max(1, min(aggregators, -(-encoding.block_count // lanes)))


class SharedColumns:
    """One worker's part in the jobs of K aggregators.

    Args:
        workers: The worker's number at each, in the order on which all workers have agreed.
    """

    def __init__(self, workers: Sequence[GoldenWorker]) -> None:
        self.workers = list(workers)

    def start(self, tensor: Tensor, dtype: str, reduction: str) -> None:
        """Begin the next operation with this worker's tensor."""
        first = self.workers[0]
        encoding = first.encode(tensor, dtype, reduction)
        used = sharing(encoding, first.lanes, len(self.workers))
        slots = min(len(worker.rounds) for worker in self.workers)
        for own, worker in enumerate(self.workers):
            if own < used:
                worker.start_share(tensor, dtype, reduction, encoding, (own, used), slots)
            else:
                worker.miss()

    def go_on(self) -> bool:
        """Begin to bring again the blocks that were not summed; the first aggregator alone does."""
        if not all(worker.done for worker in self.workers) or not self.workers[0].go_on():
            return False
        for worker in self.workers[1:]:
            worker.miss()
        return True

    def result(self) -> Tensor:
        """Return the tensor of the operation that is over.

        Raises:
            ValueError: If it has failed somewhere, or is not over.
        """
        results = [worker.result() for worker in self.workers if worker.operation]
        return results[0]
