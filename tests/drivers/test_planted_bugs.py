"""Planted bugs: each must be caught by a check that passes without it."""

import pytest

from afflux_drivers.worker.operation import Operation
from tests.checks.accept_rule import check_accepts_only_its_own_round
from tests.checks.native_checks import (
    check_engine,
    check_operations_in_order,
    check_places,
    check_schedules,
)
from tests.mutation.native_bugs import caught
from tests.support.drivers.built_engine import BuiltEngine, build
from tests.support.drivers.built_worker import CAUGHT, catches
from tests.support.drivers.packet_header import HEADER
from tests.support.planting import Bug

CHECKS = "tests.checks.native_checks"


@pytest.mark.parametrize(
    "check", [check_operations_in_order, check_places, check_schedules, check_engine]
)
def test_without_a_bug_the_checks_pass(check):
    check()


def test_worker_that_accepts_any_round():
    def receive(self: Operation, datagram: bytes, now: float) -> bytes | None:
        """As the real one, but told that whatever comes is of the round it waits for."""
        header = list(HEADER.unpack_from(datagram))
        if header[4] < len(self._session.slots):
            header[6] = self._session.slots[header[4]].round
        return Operation.receive(self, HEADER.pack(*header) + datagram[HEADER.size :], now)

    with pytest.raises(CAUGHT):
        check_schedules(receive)


def test_worker_that_ignores_the_operation_number(monkeypatch):
    """Rounds never restart, so this one is caught by the accept rule's own test only."""

    def receive(self: Operation, datagram: bytes, now: float) -> bytes | None:
        header = list(HEADER.unpack_from(datagram))
        header[8] = self.description.number & 0xFFFF
        return original(self, HEADER.pack(*header) + datagram[HEADER.size :], now)

    original = Operation.receive
    monkeypatch.setattr(Operation, "receive", receive)
    with pytest.raises(CAUGHT):
        check_accepts_only_its_own_round({"operation": 1})


# Bugs of the worker, with the checks that must see each.
WORKER_BUGS = {
    "does not scale an average": (
        Bug(
            "worker/blocks.cpp",
            "tensor.op == arithmetic::Op::Avg ? sums::average_scale(tensor.ranks) : 0;",
            "0 * tensor.ranks;",
        ),
        ["check_operations_in_order"],
    ),
    "does not divide an average": (
        Bug(
            "worker/blocks.cpp",
            "sums::divide(tensor_.dtype, tensor_.ranks, length(block), target(block));",
            "",
        ),
        ["check_operations_in_order"],
    ),
    "takes what is not summed for numbers": (
        Bug(
            "worker/blocks.cpp",
            "sums && static_cast<std::uint32_t>(*result) == kNotSummed",
            "sums && false && *result != 0",
        ),
        ["check_operations_in_order"],
    ),
    "loses the last block's tail": (
        Bug(
            "worker/blocks.cpp",
            "wire::kBlockElements, padded_.data(), wire::kBlockBytes);",
            "wire::kBlockElements, padded_.data(), wire::kBlockBytes / 4);",
        ),
        ["check_operations_in_order"],
    ),
    "puts the words of ranks in one another's places": (
        Bug(
            "worker/side_by_side.cpp",
            "std::memcpy(blocks + each.rank * words_, each.elements,",
            "std::memcpy(blocks + (each.rank ^ 1) * words_, each.elements,",
        ),
        ["check_places"],
    ),
    "takes blocks of the wrong row": (
        Bug(
            "worker/columns.cpp",
            "columns.agreed[columns.agreements++] = {block, low};",
            "columns.agreed[columns.agreements++] ="
            " {row > 0 ? block - grid_.row_blocks() : block, low};",
        ),
        ["check_schedules"],
    ),
    "never repeats": (
        Bug(
            "worker/operation.cpp",
            "out.send(session_.probe(slot, opcode_dtype(slot)));",
            "",
        ),
        ["check_schedules"],
    ),
    # The next round's data in place of the outstanding one's, say.
    "repeats something else": (
        Bug(
            "worker/operation.cpp",
            "++session_.counts.retransmissions;",
            "++session_.counts.retransmissions; slot.packet.blocks()[0] ^= 1;",
        ),
        ["check_schedules"],
    ),
}


SAMPLE = {
    "takes blocks of the wrong row",
    "counts a contribution twice",
    "does not look at UDP's checksum",
}
"""A bug of each kind; the others are for the long tests, as each is a library to compile."""


def marked(name: str) -> tuple[pytest.MarkDecorator, ...]:
    return () if name in SAMPLE else (pytest.mark.long,)


@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(name, check, marks=marked(name))
        for name in WORKER_BUGS
        for check in WORKER_BUGS[name][1]
    ],
)
def test_worker_that(name, check):
    assert catches(name, WORKER_BUGS[name][0], f"{CHECKS}:{check}")


def test_worker_built_without_a_bug():
    for check in ("check_operations_in_order", "check_schedules"):
        assert not catches("none", None, f"{CHECKS}:{check}")


# Bugs of the engine: a text of its sources, and what stands in its place.
ENGINE_BUGS = {
    "counts a contribution twice": Bug(
        "engine/slots.cpp",
        "overflows += merge(opcode, block(own, lane), arriving);",
        "overflows += merge(opcode, block(own, lane), arriving);"
        "if (states_[slot].round % 8 == 3) merge(opcode, block(own, lane), arriving);",
    ),
    "forgets who was seen": Bug(
        "engine/rounds.cpp",
        "slots_.merge_words(in_pool, packet);",
        "slots_.merge_words(in_pool, packet); slot.seen &= ~std::uint64_t{1};",
    ),
    "completes a round too soon": Bug(
        "engine/slots.hpp",
        "return seen == everyone;",
        "return ((everyone & ~seen) & ((everyone & ~seen) - 1)) == 0;",
    ),
    "keeps one version only": Bug(
        "engine/slots.cpp",
        "std::int32_t* own = body(slot, version);",
        "std::int32_t* own = body(slot, states_[slot].round & 1);",
    ),
    "does not replay the round before": Bug(
        "engine/rounds.cpp",
        "++counters_[Counter::Replays]; sender_.replay(",
        "++counters_[Counter::Replays];"
        "if (header.round == slots_[job.slot_base + header.slot].round) sender_.replay(",
    ),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=marked(name)) for name in ENGINE_BUGS])
def test_engine_with_a_bug(name):
    library = build(ENGINE_BUGS[name])
    with pytest.raises(CAUGHT):
        check_engine(BuiltEngine(library, slots=64))
    with pytest.raises(CAUGHT):
        check_schedules(make_engine=lambda: BuiltEngine(library))


def test_engine_built_without_a_bug():
    library = build()
    check_engine(BuiltEngine(library, slots=64))
    check_schedules(make_engine=lambda: BuiltEngine(library))


# A sample of `make mutation-native`: what ended too early, what has no bound, what is not compared.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=marked(name))
        for name in (
            "sends again what is made anew by then",
            "has no bound for reading a socket out",
            "does not look at UDP's checksum",
        )
    ],
)
def test_bug_between_sockets(name):
    assert caught(name)
