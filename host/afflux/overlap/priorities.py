"""The communication hook that averages what the next forward pass needs first, first.

    state = afflux.hooks.Priorities(ddp, optimizer)
    ddp.register_comm_hook(state, afflux.hooks.priorities_hook)

The hook copies gradients and returns, so that the backward pass does not wait; a thread of its own
averages them. `optimizer.step()` leaves alone the parameters whose averages are still to come: the
step of each is done when the next forward pass, or anything else, first takes the parameter.
"""

import logging
import os
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.autograd.variable import Variable
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from afflux.observe.trace_file import path_for
from afflux.overlap.arrivals import Arrivals
from afflux.overlap.gradients import Gradients
from afflux.overlap.groups import before_end_of, check_group, group_like, timeout_of
from afflux.overlap.hook import WeakHook
from afflux.overlap.layers import LayerTimes
from afflux.overlap.messenger import MessagesFailed, Messenger
from afflux.overlap.order import agree_on, agreed_order, ranked
from afflux.overlap.plan import Message, Plan
from afflux.overlap.record import Record, layer_of, layers_table, messages_table
from afflux.overlap.steps import DeferredSteps, check_deferrable
from afflux.overlap.timeline import write_timeline
from afflux.overlap.use_tracker import UseTracker
from afflux.schemes.compressor import Compressor

__all__ = ["Priorities", "priorities_hook"]

_log = logging.getLogger("afflux")

MESSAGE_BYTES = 2 << 20
FUSE_BYTES = 256 << 10


class Priorities:
    """The state of `priorities_hook`: a model's gradients, their order, and their carrier.

    Collective: all ranks make one, of the same model, with the same arguments.

    Args:
        ddp: The model. Its communication hook is to be this one's.
        optimizer: Changes its parameters, one or several; their steps are deferred. None: no step
            is, and the backward pass ends when everything is averaged.
        message_bytes: Most bytes of a message. A message that is being sent cannot be overtaken.
        fuse_bytes: Most bytes of a message with several parameters: it waits for the last of them.
        order: All parameters, the one that is needed first at the front. None: as the first forward
            pass takes them.
        in_order: Whether what is needed first overtakes. Otherwise messages are sent in the order
            of the backward pass.
        group: Over the same ranks as the model's, for this alone. None: one is made, of the same
            backend, with the environment's settings.
        compressor: Averages a part of each message; the remainder of a biased one is added to the
            next gradient of the same parameters. Used for this alone. None: all of it is averaged.
        any_optimizer: Whether to take optimisers of kinds that are not known: each must treat each
            parameter by itself, and keep no reference to its gradient.
        observe: Whether to record spans for `write_timeline`, and how long layers compute.

    Raises:
        ValueError: The model or an optimiser cannot be treated so.
    """

    def __init__(
        self,
        ddp: DistributedDataParallel,
        optimizer: Optimizer | Sequence[Optimizer] | None = None,
        *,
        message_bytes: int = MESSAGE_BYTES,
        fuse_bytes: int = FUSE_BYTES,
        order: Iterable[torch.Tensor] | None = None,
        in_order: bool = True,
        group: dist.ProcessGroup | None = None,
        compressor: Compressor | None = None,
        any_optimizer: bool = False,
        observe: bool = False,
    ) -> None:
        if not isinstance(ddp, DistributedDataParallel):
            raise ValueError(f"a DistributedDataParallel is needed, not {type(ddp).__name__}")
        if message_bytes < 1:
            raise ValueError(f"message_bytes is {message_bytes}: it must be 1 at least")
        ignored = set(ddp.parameters_to_ignore)
        self._parameters: dict[str, torch.Tensor] = {
            name: each
            for name, each in ddp.module.named_parameters()
            if each.requires_grad and name not in ignored
        }
        self._names = {id(each): name for name, each in self._parameters.items()}
        optimizers = _listed(optimizer)
        if optimizers:
            check_deferrable(ddp)
        self.record = Record(observe)
        self._layers = LayerTimes(ddp.module, self.record) if observe else None
        self._rank = dist.get_rank()
        self._message_bytes = message_bytes
        self._fuse_bytes = fuse_bytes
        self._compressor = compressor
        self._in_order = in_order
        self._order = None if order is None else ranked(order, self._names)
        self._seen: list[torch.Tensor] = []
        self._plan: Plan | None = None
        self._numbers: dict[int, int] = {}
        self._gradients: Gradients | None = None
        self._messenger: Messenger | None = None
        self._arrivals: Arrivals | None = None
        self._backward_ended_s = 0.0
        self._use_tracker = UseTracker(self._touched)
        self._use_tracker.wanted = self._names
        self._steps = (
            DeferredSteps(
                optimizers, self._names, self._averages, self._watch, self._applied, any_optimizer
            )
            if optimizers
            else None
        )
        if group is not None:
            check_group(group, ddp.process_group)
        self._group = group if group is not None else group_like(ddp.process_group)
        ddp.register_forward_pre_hook(WeakHook(self, "_before_forward"))
        ddp.register_forward_hook(WeakHook(self, "_after_forward"), always_call=True)
        ddp.module.register_forward_pre_hook(WeakHook(self, "_before_module"))
        ddp.module.register_state_dict_pre_hook(WeakHook(self, "_before_state"))

    @property
    def messages(self) -> Sequence[Message]:
        """The messages by priority; none before the first backward pass."""
        return self._plan.messages if self._plan is not None else ()

    def flush(self) -> None:
        """Wait for all averages: afterwards all is as with DDP alone.

        Between `backward()` and `step()`, gradients become the averages, and the step is not
        deferred. After `step()`, all steps that it has left are done, and the gradients that are
        still there become the averages.

        Raises:
            MessagesFailed: Something could not be averaged.
            GradientsChanged: Gradients have been changed out of sight since the backward pass.
        """
        if self._steps is not None and self._steps.waiting:
            self._wait(range(len(self.messages)), "flush")
            self._steps.write_averages()
            self._steps.apply_all()
        self._use_tracker.turn_off()

    def statistics(self) -> dict[str, Any]:
        """Return what has been sent and waited for since the start, or since `record.reset()`.

        Keys:
            rounds: Backward passes.
            messages: How many there are in each.
            bytes: In each.
            communication_s: Time in which messages were under way.
            exposed_s: Time in which the training thread waited for them.
            step_s: Time that deferred steps took.
            agreements: How often the ranks have agreed on what is next, since the start.
            agreeing_s: How long that took.
            layers: A table of the layers, with the mean times of a step.
            table: One of the messages.
        """
        messages, plan, record = self.messages, self._plan, self.record
        return {
            "rounds": record.rounds,
            "messages": len(messages),
            "bytes": sum(each.bytes for each in messages),
            "communication_s": record.seconds("message"),
            "exposed_s": record.seconds("wait"),
            "step_s": record.seconds("step"),
            "agreements": self._messenger.agreements if self._messenger else 0,
            "agreeing_s": self._messenger.agreeing_s if self._messenger else 0.0,
            "layers": layers_table(plan, record) if plan is not None else "",
            "table": messages_table(plan, record) if plan is not None else "",
        }

    def write_timeline(self, path: str | os.PathLike[str]) -> None:
        """Write what was observed so far, for Chrome's or Perfetto's viewer.

        Args:
            path: A file, in whose name %r is the global rank and %p the process, or a folder.

        Raises:
            ValueError: There is nothing, without `observe=True`.
            OSError: The file cannot be written.
        """
        if self._layers is None:
            raise ValueError("there is no timeline without observe=True")
        texts = {str(each.number): each.text for each in self.messages}
        file = path_for(os.fspath(path), self._rank, "json")
        write_timeline(file, self.record, self._rank, texts)

    def close(self) -> None:
        """Do what is left, and end the thread. The model cannot be trained by this hook again."""
        try:
            self.flush()
        finally:
            if self._messenger is not None:
                self._messenger.close()
            if self._plan is not None:
                _log.info("what was averaged by priority:\n%s", self.statistics()["layers"])

    def sum(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Take a bucket's gradients over; see `priorities_hook`."""
        buffer = bucket.buffer()
        if buffer.is_sparse:
            raise ValueError("sparse gradients have no priorities: use afflux.ddp_hook")
        if bucket.index() == 0:
            self._begin()
        messenger, gradients, arrivals = self._messenger, self._gradients, self._arrivals
        assert messenger is not None and gradients is not None and arrivals is not None
        numbers = [self._numbers[id(each)] for each in bucket.parameters()]
        started_s = time.monotonic()
        gradients.put(numbers, bucket.gradients())
        messenger.ready(arrivals.add(numbers))
        self.record.add("copy", f"bucket {bucket.index()}", started_s, time.monotonic())
        if self._layers is not None:
            self._layers.resume()
        if bucket.is_last():
            self._end_backward()
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        if self._steps is not None:
            future.set_result(buffer)
            return future
        views = bucket.gradients()
        needed = arrivals.plan.messages_of(numbers)

        def over(error: BaseException | None) -> None:
            try:
                if error is not None:
                    raise error
                with torch.no_grad():
                    torch._foreach_copy_(views, [gradients.of(number) for number in numbers])
            except BaseException as found:
                future.set_exception(found)  # type: ignore[arg-type]
            else:
                future.set_result(buffer)

        averaged = future.then(lambda each: each.value())
        messenger.when_done(needed, over)
        return averaged

    def _begin(self) -> None:
        """Begin a round, with the first bucket of a backward pass."""
        if self._messenger is None:
            self._make_plan()
        assert self._messenger is not None and self._arrivals is not None
        self._use_tracker.turn_off()
        if self._steps is not None and self._steps.pending:
            names = [self._names[number] for number in self._steps.pending]
            raise RuntimeError(
                f"step() was called, but the forward pass has not used {', '.join(names[:4])}: "
                "a compiled or scripted part may have used an old value; call flush() after step()"
            )
        if self._messenger.busy and self._arrivals.missing:
            raise RuntimeError("the backward pass before this one was not completed")
        self._wait(range(len(self.messages)), "the backward pass before")
        self._arrivals.begin()
        self._messenger.begin()

    def _end_backward(self) -> None:
        if self._arrivals is not None and self._arrivals.missing:
            raise RuntimeError(f"DDP has no gradients of {', '.join(self._arrivals.missing[:4])}")
        self.record.rounds += 1
        queue: Callable[[Callable[[], None]], None] = Variable._execution_engine.queue_callback

        # DDP queues its own next: the end of the backward pass, in which it waits for futures.
        def before_ddp() -> None:
            self._backward_ended_s = time.monotonic()
            queue(self._after_ddp)

        queue(before_ddp)

    def _after_ddp(self) -> None:
        """Go on where DDP has ended the backward pass."""
        if self._steps is None:
            self.record.add(
                "wait", "end of the backward pass", self._backward_ended_s, time.monotonic()
            )
            return
        owned = self._steps.owned
        mine = [each for each in self._parameters.values() if id(each) in owned]
        others = [each for each in self._parameters.values() if id(each) not in owned]
        given = [each.grad for each in others if each.grad is not None]
        if given:
            averages = self._averages([each for each in others if each.grad is not None])
            with torch.no_grad():
                torch._foreach_copy_(given, averages)
        self._steps.gathered(mine)
        if not self._use_tracker.goes_on:
            # The forward pass was in another thread: nobody would see gradients being used.
            self._steps.write_averages()

    def _averages(self, parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Wait until parameters' gradients are averaged; return the averages."""
        assert self._plan is not None and self._gradients is not None
        numbers = [self._numbers[id(each)] for each in parameters]
        self._wait(self._plan.messages_of(numbers), self._plan.names[numbers[0]])
        return [self._gradients.of(number) for number in numbers]

    def _wait(self, messages: Iterable[int], what: str) -> None:
        assert self._messenger is not None
        started = time.monotonic()
        try:
            self._messenger.wait(messages)
        except MessagesFailed as error:
            raise MessagesFailed(f"{what} waited for averages; {error}") from error.__cause__
        self.record.add("wait", layer_of(what), started, time.monotonic())

    def _watch(self) -> None:
        """Look for what the steps say; in the thread that asks for steps, and for averages."""
        assert self._steps is not None
        self._use_tracker.wanted = self._steps.wanted
        self._use_tracker.replaceable = self._steps.replaceable
        if self._steps.pending:
            self._use_tracker.turn_on()

    def _applied(self, parameters: Sequence[torch.Tensor], started_s: float) -> None:
        name = layer_of(self._names[id(parameters[0])])
        self.record.add("step", name, started_s, time.monotonic())

    def _touched(self, parameters: list[torch.Tensor]) -> None:
        """Do what must be done before an operation takes parameters or gradients."""
        if self._plan is None:
            if not torch.is_grad_enabled():
                return
            for each in parameters:
                if not any(each is known for known in self._seen):
                    self._seen.append(each)
        elif self._steps is not None:
            self._steps.touch(parameters)

    def _before_forward(self, *_: Any) -> None:
        if self._plan is None:
            if self._order is None:
                self._use_tracker.turn_on()
        elif self._steps is not None and self._steps.pending and not self._use_tracker.on:
            # In another thread than the one that has called step().
            self.flush()

    def _before_module(self, *_: Any) -> None:
        """Have the steps done if what the module uses now cannot be seen."""
        if self._steps is None or not self._steps.pending:
            return
        if not self._use_tracker.on or torch._C._functorch.peek_interpreter_stack() is not None:
            self._steps.apply_all()

    def _before_state(self, *_: Any) -> None:
        self.flush()

    def _after_forward(self, _: Any, __: Any, output: Any) -> None:
        if self._plan is None:
            self._use_tracker.turn_off()
        if self._steps is not None and torch.is_grad_enabled():
            # From the backward pass to the step, gradients are not yet the averages.
            self._use_tracker.turn_on()
        if self._layers is not None:
            self._layers.watch_output(output)

    def _make_plan(self) -> None:
        """Agree on the order, and start the thread. Collective."""
        names = self._order
        if names is None:
            names = agreed_order(self._parameters, self._seen, self._group)
        ordered = {name: self._parameters[name] for name in names}
        plan = Plan(ordered, self._message_bytes, self._fuse_bytes)
        agree_on(plan, self._in_order, self._group)
        self._plan, self._arrivals = plan, Arrivals(plan)
        self._numbers = {id(each): number for number, each in enumerate(ordered.values())}
        self._gradients = Gradients(
            plan, [each.shape for each in ordered.values()], self._group, self._compressor
        )
        record = self.record

        def finished(message: Message, started_s: float, ended_s: float) -> None:
            record.add(
                "message", str(message.number), started_s, ended_s,
                priority=message.number, bytes=message.bytes,
            )  # fmt: skip

        self._messenger = Messenger(
            plan.messages,
            self._gradients.average,
            self._group,
            plan.fingerprint,
            in_order=self._in_order,
            finished=finished,
            timeout_s=(timeout_of(self._group) or dist.default_pg_timeout).total_seconds(),
        )
        before_end_of(self._group, self._messenger.finish)
        weakref.finalize(self, self._messenger.close)
        self._seen = []


def priorities_hook(state: Priorities, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average one bucket, by priority, as a communication hook.

        state = afflux.hooks.Priorities(ddp, optimizer)
        ddp.register_comm_hook(state, afflux.hooks.priorities_hook)

    Args:
        state: Used for this model alone.
        bucket: Flat gradients. (DDP calls by this name.)
    """
    return state.sum(bucket)


def _listed(optimizer: Optimizer | Sequence[Optimizer] | None) -> list[Optimizer]:
    if optimizer is None:
        return []
    return [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer)
