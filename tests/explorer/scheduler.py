"""One thread for all ranks, in virtual time: the same seed plays the same schedule.

A task runs until it waits; then comes the event that is due first, and of those that are due at
once any. Each event is a step. Delays are drawn by whoever causes them.
"""

import heapq
import random
from collections.abc import Callable
from types import SimpleNamespace

import greenlet

__all__ = ["Bell", "Endless", "Scheduler", "Task"]


class Endless(Exception):
    """The tasks have not ended within their time, or within their steps."""


class Task:
    """A line of control.

    Attributes:
        over: Whether it has come to its end.
        killed: Whether it stands still for ever.
    """

    def __init__(self, body: Callable[[], None]) -> None:
        self.over = False
        self.killed = False

        def run() -> None:
            body()
            self.over = True

        self.greenlet = greenlet.greenlet(run)


class Bell:
    """Wakes one task before its time."""

    def __init__(self) -> None:
        self.ring: Callable[[], None] = lambda: None


class Scheduler:
    """The tasks, and what else happens at its time.

    Args:
        choose: Decides what comes first of several.

    Attributes:
        now: Virtual seconds.
        steps: Events so far.
        clock: What tasks see in place of the module `time`.
        choose: As given.
    """

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.now = 0.0
        self.steps = 0
        self.clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        self._main = greenlet.getcurrent()
        self._current: Task | None = None
        self._tasks: list[Task] = []
        self._events: list[tuple[float, float, int, Callable[[], None]]] = []
        self._number = 0
        self._over = False

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Let something happen at a time; it must not wait."""
        self._number += 1
        heapq.heappush(self._events, (when, self.choose.random(), self._number, action))

    def begin(self, body: Callable[[], None]) -> Task:
        """Begin a task."""
        task = Task(body)
        self._tasks.append(task)
        self.at(self.now, lambda: self._resume(task))
        return task

    def sleep(self, seconds: float) -> None:
        """Let the task that runs wait."""
        self.wait(Bell(), self.now + seconds)

    def wait(self, bell: Bell, until: float) -> None:
        """Let the task that runs wait until then, or until the bell rings."""
        task = self._current
        if self._over or task is None:
            # A handler of a task that stands still for ever, or what is no task.
            raise RuntimeError("the store does not answer any more")
        woken = False

        def wake() -> None:
            nonlocal woken
            if not woken:
                woken = True
                self._resume(task)

        bell.ring = lambda: self.at(self.now, wake)
        if until < float("inf"):
            self.at(until, wake)
        self._current = None
        self._main.switch()
        bell.ring = lambda: None

    def _resume(self, task: Task) -> None:
        if not (task.killed or task.over):
            self._current = task
            task.greenlet.switch()
            self._current = None

    def run(self, tasks: list[Task], until: float, most: int) -> None:
        """Play until these tasks are over.

        Args:
            tasks: Those that are waited for, unless they are killed.
            until: When they must be.
            most: Steps that they may take.

        Raises:
            Endless: They are not.
        """
        while not all(task.over or task.killed for task in tasks):
            if not self._events:
                raise Endless(f"nothing happens any more after {self.now:.3f} s")
            when, _, _, action = heapq.heappop(self._events)
            self.now = max(self.now, when)
            self.steps += 1
            if self.now > until or self.steps > most:
                raise Endless(f"not over after {self.now:.3f} s and {self.steps} steps")
            action()

    def close(self) -> None:
        """End what has not come to its end: a task that stands still is never freed."""
        self._over = True
        self._events.clear()
        for task in self._tasks:
            if not task.over:
                task.greenlet.throw()
        self._tasks.clear()
