"""The calls of a group on tensors of a device: they pass through memory of the host.

A call is taken in the caller's thread, and carried out in the group's. Its Work has streams: a wait
for it lets the caller's current stream wait for the copies back, and no thread.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import torch

from afflux.group.call.collectives import Part
from afflux.group.call.description import Call, describe, tensors_in
from afflux.group.call.plain import Planned
from afflux.group.call.tensors import (
    check_writable,
    dtype_name,
    lies_plainly,
    other_device,
    plain,
)
from afflux.group.engine_calls import EngineCalls
from afflux.group.reducers.reducer import Interruption
from afflux.group.staged_blocks import StagedBlocks
from afflux.group.staging.copies import Copies, Patience, on_stream
from afflux.group.staging.pieces import pieces_count, pieces_of

__all__ = ["Staged", "StagedCalls", "device_of"]

_AHEAD_BYTES = 16 << 20
"""So much of a call comes down from the device before its turn on the network."""


def device_of(arguments: tuple[Any, ...]) -> torch.device | None:
    """Return the first device of a call's tensors that is not the CPU; None if there is none."""
    return next((each.device for each in tensors_in(arguments) if not each.is_cpu), None)


@dataclass(frozen=True)
class Staged:
    """A call that has been taken.

    Attributes:
        call: The call.
        method: Of the group, with its arguments.
        arguments: These.
        planned: Its collectives, with the reducer's plans; None if it is Gloo's.
        copies: Of the device.
        given: The event before which its tensors may not be read.
    """

    call: Call
    method: str
    arguments: tuple[Any, ...]
    planned: Planned | None
    copies: Copies
    given: torch.Event


class StagedCalls:
    """The calls of one group on tensors of devices.

    Args:
        calls: Carries them out in memory of the host.
        blocks: Finds the blocks that need not come there.
        interrupted: See `Reducer.run`.
        size: Ranks of the group.
    """

    def __init__(
        self, calls: EngineCalls, blocks: StagedBlocks, interrupted: Interruption, size: int
    ) -> None:
        self._calls = calls
        self._blocks = blocks
        self._interrupted = interrupted
        self._size = size
        self._copies: dict[torch.device, Copies] = {}

    def take(self, method: str, arguments: tuple[Any, ...], native: bool) -> Staged:
        """Take a call, in the caller's thread.

        Args:
            method: Of the group.
            arguments: Its arguments.
            native: Whether the reducer may carry it out; if not, Gloo does.

        Raises:
            ValueError: Afflux does not take such tensors, or they do not fit one another.
        """
        call = describe(method, arguments)
        tensors = tensors_in(arguments)
        device = self._device(call, tensors)
        planned = self._calls.plan_on(device.type, method, arguments) if native else None
        written = [each for part, _ in planned or () for each in part.outputs]
        check_writable(call.text, written or tensors_in(arguments[0]))
        copies = self._copies.get(device)
        if copies is None:
            copies = self._copies[device] = Copies(device)
        return Staged(call, method, arguments, planned, copies, copies.take(tensors))

    def _device(self, call: Call, tensors: list[torch.Tensor]) -> torch.device:
        """Return the device of a call's tensors.

        Raises:
            ValueError: Afflux does not serve it, or not as the call is made.
        """
        devices = {each.device for each in tensors}
        device = next(each for each in devices if each.type != "cpu")
        if len(devices) > 1:
            names = ", ".join(sorted(map(str, devices)))
            raise ValueError(f"{call.text}: its tensors are on several devices: {names}")
        known = torch.accelerator.current_accelerator()
        if known is None or device.type != known.type or device.type == "mps":
            raise ValueError(other_device(call.text, device))
        for tensor in tensors:
            if tensor.layout is not torch.strided:
                raise ValueError(
                    f"{call.text}: the tensor {dtype_name(tensor.dtype)} on {device} is of layout "
                    f"{tensor.layout}; on a device the backend afflux takes dense ones: pass a "
                    "copy, as tensor.cpu() makes it"
                )
        if _captures(device):
            raise ValueError(
                f"{call.text}: the current stream of {device} captures a graph, in which nothing "
                "waits for a network; call it outside"
            )
        return device

    def carry_out(self, staged: Staged, limit_s: float) -> list[torch.Tensor]:
        """Carry a call out, in the group's thread; the results are on their way back then.

        Raises:
            DeadlineExceeded: The device was not done in time with what the call had to wait for.
            AffluxError: As for a call on tensors of the CPU.
        """
        patience = Patience(limit_s, self._interrupted)
        copies = staged.copies
        copies.be_current()
        copies.down.wait_event(staged.given)
        if staged.planned is None:
            copies.see_results()
            self._through_gloo(staged, patience)
        else:
            for part, _ in staged.planned:
                copies.see_results()
                self._in_pieces(staged, part, patience)
        return tensors_in(staged.arguments[0])

    def _in_pieces(self, staged: Staged, part: Part, patience: Patience) -> None:
        copies = staged.copies
        whole, outputs = _plain(copies, part)
        count = pieces_count(whole)
        union = None
        if count > 1:
            looks = self._blocks.due(whole)
            # Else a piece would pass for another rank's whole call of as many elements.
            said = f"{staged.call.agreed} of {whole.small.numel()} in {count} pieces"
            said += ", by its blocks" if looks else ""
            self._calls.compare(replace(staged.call, agreed=said), patience.left_s)
            if looks:
                union = self._blocks.union(whole, copies, patience)
        if union is None:
            self._one_after_the_other(copies, whole, patience)
        elif union.part is not None:
            self._one_after_the_other(copies, union.part, patience)
            with on_stream(copies.up):
                union.put()
        copies.back(*outputs)

    def _one_after_the_other(self, copies: Copies, whole: Part, patience: Patience) -> None:
        """Carry out the pieces of a collective of contiguous tensors."""
        ahead: deque[tuple[Part, list[torch.Tensor], torch.Event]] = deque()
        waiting_bytes = 0
        for piece in pieces_of(whole, self._size):
            ahead.append((piece, *copies.begin(piece.inputs or piece.outputs)))
            waiting_bytes += sum(each.nbytes for each in ahead[-1][1])
            while waiting_bytes > _AHEAD_BYTES and len(ahead) > 1:
                waiting_bytes -= sum(each.nbytes for each in ahead[0][1])
                self._carry_out_piece(copies, *ahead.popleft(), patience)
        while ahead:
            self._carry_out_piece(copies, *ahead.popleft(), patience)

    def _carry_out_piece(
        self,
        copies: Copies,
        piece: Part,
        hosts: list[torch.Tensor],
        arrived: torch.Event,
        patience: Patience,
    ) -> None:
        outputs = [copies.like(each) for each in piece.outputs] if piece.inputs else hosts
        inputs = hosts if piece.inputs else []
        patience.wait(arrived)
        self._calls.reduce_piece(Part(piece.asked, inputs, outputs), patience.left_s)
        copies.back(outputs, piece.outputs)

    def _through_gloo(self, staged: Staged, patience: Patience) -> None:
        """Let Gloo have copies of all tensors, and copy back what it may have written."""
        tensors = tensors_in(staged.arguments)
        hosts, arrived = staged.copies.begin(tensors)
        patience.wait(arrived)
        left = iter(hosts)
        arguments = tuple(_replaced(each, left) for each in staged.arguments)
        self._calls.run_gloo(staged.method, arguments, staged.call, patience.left_s)
        staged.copies.back(tensors_in(arguments[0]), tensors_in(staged.arguments[0]))


def _captures(device: torch.device) -> bool:
    """Return whether the current stream of a device captures a graph."""
    asked = getattr(torch.get_device_module(device), "is_current_stream_capturing", None)
    return asked is not None and asked()


def _replaced(argument: Any, hosts: Any) -> Any:
    """Return an argument with the next tensors in the place of its own."""
    if isinstance(argument, torch.Tensor):
        return next(hosts)
    if isinstance(argument, list | tuple):
        return [_replaced(each, hosts) for each in argument]
    return argument


def _plain(
    copies: Copies, part: Part
) -> tuple[Part, tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """Return a collective of contiguous tensors, and which of them are copied to which others."""
    if all(map(lies_plainly, (*part.inputs, *part.outputs))):
        return part, ([], [])
    results: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    with on_stream(copies.down), torch.no_grad():
        inputs, flat = ([plain(each) for each in side] for side in (part.inputs, part.outputs))
    for made, tensor in zip(flat, part.outputs, strict=True):
        made.record_stream(copies.up)
        if made.data_ptr() != tensor.data_ptr():
            results[0].append(made)
            results[1].append(tensor)
    return replace(part, inputs=inputs, outputs=flat), results
