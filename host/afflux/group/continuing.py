"""A group's part in going on without its aggregators: it lets the reducer go over when it is due.

Tested: `tests/host/test_fail_over.py`.
"""

from collections.abc import Callable

from afflux.group.call.errors import GroupFailed
from afflux.group.liveness.outside import Outside
from afflux.group.reducers.continued_reducer import ContinuedReducer
from afflux.group.reducers.reducer import Interruption
from afflux.group.shutdown import Shutdown
from afflux_drivers.errors import AffluxError, Interrupted

__all__ = ["Continuing"]


class Continuing:
    """Used by the thread whose turn it is.

    Args:
        reducer: The group's; None if it ends with its aggregators, or has none.
        outside: The group's.
        shutdown: The group's.
    """

    def __init__(
        self, reducer: ContinuedReducer | None, outside: Outside, shutdown: Shutdown
    ) -> None:
        self._reducer = reducer
        self._outside = outside
        self._shutdown = shutdown

    def begin(self, interrupted: Interruption, news: Callable[[], None]) -> None:
        """Let the reducer hear of other ranks; see `ContinuedReducer.attended`."""
        if self._reducer is not None:
            self._reducer.attended(interrupted, self._outside.gone, news)

    def attend(self) -> None:
        """Go over if another rank has declared it, while this one waits for something else."""
        if self._reducer is not None:
            self._reducer.attend()

    def hear(self) -> None:
        """Go over while the group is idle. An error fails the group."""
        if self._reducer is None or self._shutdown.failure is not None:
            return
        try:
            self._reducer.attend(look=True)
        except Interrupted as reason:
            self._shutdown.fail(self._outside.failure(reason))
        except AffluxError as error:
            self._shutdown.fail(error)
        except Exception as failure:
            self._shutdown.fail(GroupFailed(f"{self._shutdown.named()}: {failure}"))

    def bequeath(self) -> None:
        """Leave results to others, at the end of this rank's part in the group."""
        if self._reducer is not None:
            self._reducer.bequeath()
