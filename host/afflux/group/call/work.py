"""The handle of one collective: `async_op=True` returns it, and DDP waits for it."""

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from afflux.group.call.errors import OperationTimeout, another
from afflux.observe.observation import Observation
from afflux.observe.observers import Observers

__all__ = ["NO_TIMEOUT", "AffluxWork", "FinishedWork", "LateWork", "ObservedTransfer", "limit_of"]

NO_TIMEOUT = timedelta(0)
"""The value that torch passes for "wait for ever"."""


def limit_of(options: Any, otherwise_s: float) -> float:
    """Return the seconds for a call with these options of c10d's, which may name none."""
    wish = getattr(options, "timeout", None)
    # torch's mark for "the group's" is negative.
    return otherwise_s if wish is None or wish <= NO_TIMEOUT else float(wish.total_seconds())


class _Failure:
    """An error on its way through a future as a value."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _unwrap(future: torch.futures.Future) -> list[torch.Tensor]:
    outcome = future.value()
    if isinstance(outcome, _Failure):
        raise outcome.error
    return outcome


class AffluxWork(dist.Work):
    """One collective that a progress thread carries out.

    The future is a `then` of an inner one, and fails by raising inside it:
    `Future.set_exception` stores the exception as an ordinary value, and C++ callers such as DDP
    would take that for tensors.

    Args:
        call: Its name, for messages.
        may_block: Returns False if the calling thread is the one that would have to do the work.
        give_up: Called with the name of an exception that a signal handler raises in a wait, as
            Ctrl-C does. None if a wait that ends early leaves the operation as it is.
        devices: Of its tensors, but for the CPU: their current streams at the end are what the
            current streams of a waiter wait for.
    """

    def __init__(
        self,
        call: str,
        may_block: Callable[[], bool],
        give_up: Callable[[str], None] | None = None,
        devices: Sequence[torch.device] = (),
    ) -> None:
        super().__init__()
        self.call = call
        self._may_block = may_block
        self._give_up = give_up
        self._claiming = threading.Lock()
        # The thread that ends it; the future's callbacks run there, before waits elsewhere end.
        self._ender = 0
        # Held until the end. A signal handler that runs in a wait would find an Event's lock held.
        self._gate = threading.Lock()
        self._gate.acquire()
        self._over = False
        self._error: BaseException | None = None
        self._tensors: list[torch.Tensor] = []
        self._devices = tuple(devices)
        # The ends of the copies to these.
        self._landed: list[torch.Event] = []
        self._raw: torch.futures.Future = torch.futures.Future(devices=list(devices))
        self._future = self._raw.then(_unwrap)

    def succeed(self, tensors: list[torch.Tensor]) -> None:
        """End with a result, if it has not ended. Callbacks of the future run in this thread."""
        self._end(tensors, None)

    def fail(self, error: BaseException) -> None:
        """End with an error, if it has not ended. Every `wait`, now and later, raises it."""
        self._end([], error)

    def _end(self, tensors: list[torch.Tensor], error: BaseException | None) -> None:
        with self._claiming:
            if self._ender:
                return
            self._ender = threading.get_ident()
            self._tensors = tensors
            self._error = error
        try:
            if error is None:
                streams = map(torch.accelerator.current_stream, self._devices)
                self._landed = [stream.record_event() for stream in streams]
            # First, as a thread that has waited may ask the future at once.
            self._raw.set_result(tensors if error is None else _Failure(error))
        finally:
            self._over = True
            self._gate.release()

    def _is_over(self) -> bool:
        return self._over or self._ender == threading.get_ident()

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Block until the end.

        Raises:
            OperationTimeout: `timeout` ran out. That is the caller's own: the collective goes on,
                and still writes its tensors.
            AffluxError: The collective failed, here or at another rank, and the group with it.
            RuntimeError: Called from a future's callback for a collective that is queued behind it.
        """
        seconds = timeout.total_seconds()
        if not self._is_over():
            if not self._may_block():
                raise RuntimeError(
                    f"{self.call}: a callback of a future waits for an operation that was queued "
                    "behind its own; start it inside the callback, or wait outside"
                )
            if not self._wait(seconds if seconds > 0 else -1.0):
                raise OperationTimeout.of_wait(self.call, seconds)
        if self._error is not None:
            raise another(self._error)
        if self._devices and self._future.done():
            self._future.wait()
        return True

    def _wait(self, seconds: float) -> bool:
        try:
            ended = self._gate.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))
            if ended:
                self._gate.release()
            return ended
        except BaseException as stop:
            if self._give_up is not None and not self._is_over():
                self._give_up(type(stop).__name__)
            raise

    def get_future(self) -> torch.futures.Future:
        """Return a future of the list of tensors; a failed collective raises in it."""
        return self._future

    def is_completed(self) -> bool:
        """Return whether it has ended, in success or failure, on a device too."""
        return self._is_over() and all(event.query() for event in self._landed)

    def is_success(self) -> bool:
        """Return whether it has ended in success."""
        return self._is_over() and self._error is None

    def exception(self) -> BaseException | None:
        """Return the error that it ended with."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that it wrote; none before the end."""
        return self._tensors

    def synchronize(self) -> None:
        """Wait, as there is no stream to join on a CPU."""
        self.wait()

    def block_current_stream(self) -> None:
        """Wait."""
        self.wait()

    def source_rank(self) -> int:
        """Raise an error: only a receive has a source."""
        raise RuntimeError(f"{self.call} has no source rank")

    def _source_rank(self) -> int:
        return self.source_rank()

    def __repr__(self) -> str:
        state: Any = "in flight"
        if self._is_over():
            state = "done" if self._error is None else f"failed: {self._error}"
        return f"<AffluxWork {self.call}: {state}>"


class LateWork:
    """The Work of a call that is likely to need none: made when the first thread asks for it.

    Args:
        make: Makes it.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._works: list[Any] = []

    def get(self) -> Any:
        """Return the Work, the same to all."""
        # Without a lock: a signal handler may run here and wait for another thread that comes here.
        if not self._works:
            self._works.append(self._make())
        return self._works[0]


class FinishedWork(dist.Work):
    """One collective that was over before its call returned. Cheap, as small ones are frequent.

    Args:
        tensors: The tensors that it wrote.
    """

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._tensors = tensors

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Return at once."""
        return True

    def get_future(self) -> torch.futures.Future:
        """Return a future that has the list of tensors."""
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(self._tensors)
        return future

    def is_completed(self) -> bool:
        """Return True: it has ended."""
        return True

    def is_success(self) -> bool:
        """Return True: the call would have raised an error."""
        return True

    def exception(self) -> None:
        """Return None: there was no error."""

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that it wrote."""
        return self._tensors

    def synchronize(self) -> None:
        """Return at once."""

    def block_current_stream(self) -> None:
        """Return at once."""

    def source_rank(self) -> int:
        """Raise an error: only a receive has a source."""
        raise RuntimeError("the collective has no source rank")

    def _source_rank(self) -> int:
        return self.source_rank()


class ObservedTransfer(dist.Work):
    """Gloo's Work of a send or a receive, whose end is reported when somebody waits for it.

    Args:
        work: Gloo's.
        tensors: The tensors to send or receive.
        seen: The observation of the call.
        observers: The group's.
    """

    def __init__(
        self,
        work: dist.Work,
        tensors: list[torch.Tensor],
        seen: Observation,
        observers: Observers,
    ) -> None:
        super().__init__()
        self._work = work
        self._tensors = tensors
        self._seen = seen
        self._observers = observers

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Wait as Gloo does."""
        try:
            over: bool = self._work.wait(timeout)
        except RuntimeError as error:
            if not self._seen.ended_ns:
                self._observers.end(self._seen, error)
            raise
        if not self._seen.ended_ns:
            self._observers.end(self._seen)
        return over

    def is_completed(self) -> bool:
        """Return whether Gloo's is over."""
        return self._work.is_completed()

    def is_success(self) -> bool:
        """Return whether Gloo's is over in success."""
        return self._work.is_success()

    def exception(self) -> Any:
        """Return the error of Gloo's."""
        return self._work.exception()

    def result(self) -> list[torch.Tensor]:
        """Return the tensors."""
        return self._tensors

    def synchronize(self) -> None:
        """Wait."""
        self.wait()

    def block_current_stream(self) -> None:
        """Wait."""
        self.wait()

    def source_rank(self) -> int:
        """Return the sender's rank."""
        return self._source_rank()

    def _source_rank(self) -> int:
        return self._work._source_rank()
