"""Ranks on several engines that are the workers of another, in the virtual network."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from afflux_drivers.aggregator.engine import Engine, SoftEngine
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.frames import destination_of, mac_of
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import registers, wire
from tests.support.drivers.virtual_job import (
    FIRST_ROUND,
    Parent,
    VirtualNetwork,
    configure,
    create_job,
    ticket_of,
    write_registers,
)

_ROOT_KEY = 0xFEDC_BA98_7654_3210


def _address(number: int) -> int:
    return int.from_bytes(bytes((10, 0, 0, number)), "big")


def _host(number: int) -> str:
    return f"10.0.0.{number}"


class VirtualTree(VirtualNetwork):
    """A root and its leaves, from a common start through any number of operations.

    Args:
        members: Ranks of each leaf, in the order of its workers; together they are 0 to N-1.
        lanes: F.
        slots: Slots of the jobs.
        group: Whether the leaves' results go to multicast groups.
        make_engine: Makes the aggregators.

    Attributes:
        root: The engine at the top.
        leaves: Those below.
        ticket: That of the first leaf.
    """

    def __init__(
        self,
        members: Sequence[Sequence[int]],
        lanes: int,
        slots: int,
        group: bool = False,
        make_engine: Callable[[], Engine] = SoftEngine,
    ) -> None:
        ranks = sum(map(len, members))
        self.root = make_engine()
        configure(self.root, address=_address(250))
        above = ticket_of(len(members), lanes, slots, job=3, key=_ROOT_KEY)
        create_job(self.root, above)
        engines: dict[str, Engine] = {_host(250): self.root}
        self.leaves: list[Engine] = []
        tickets: dict[int, tuple[JobTicket, str]] = {}
        for number, ranks_here in enumerate(members):
            leaf = make_engine()
            ticket = replace(
                ticket_of(len(ranks_here), lanes, slots, job=number % 2, key=1000 + number),
                members=tuple(ranks_here),
                ranks=ranks,
                group=f"239.1.2.{number}" if group else "",
                group_port=4701 if group else 0,
            )
            configure(leaf, address=_address(2 + number))
            endpoint = mac_of(_address(250)), _address(250), wire.PORT
            create_job(leaf, ticket, parent=Parent(endpoint, above.job, number, above.key))
            write_registers(
                leaf,
                {"job_index": ticket.job, "job_command": registers.Command.JOIN_PARENT},
            )
            (join,) = leaf.play([])
            assert destination_of(join) == (_host(250), wire.PORT)
            (joined,) = self.root.play([join])
            assert destination_of(joined) == (_host(2 + number), wire.PORT + 1 + ticket.job)
            assert leaf.play([joined]) == []
            assert leaf.read(registers.address_of("job_parent_joined")) == 1
            engines[_host(2 + number)] = leaf
            self.leaves.append(leaf)
            tickets |= {rank: (ticket, _host(2 + number)) for rank in ranks_here}
        assert sorted(tickets) == list(range(ranks))
        assert all(ticket.round == FIRST_ROUND for ticket, _ in tickets.values())
        self.ticket = tickets[members[0][0]][0]
        sessions = [Session(tickets[rank][0], rank) for rank in range(ranks)]
        super().__init__(sessions, engines, [tickets[rank][1] for rank in range(ranks)], 1e-4)
