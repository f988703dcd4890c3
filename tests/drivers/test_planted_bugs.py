"""Planted bugs: each must be caught by a check that passes without it."""

import pytest

from afflux_drivers.worker.operation import Operation
from tests.checks.accept_rule import check_accepts_only_its_own_round
from tests.checks.native_checks import (
    check_codec,
    check_engine,
    check_numbers_do_not_overflow,
    check_schedules,
)
from tests.mutation.native_bugs import caught
from tests.support.drivers.built_engine import BuiltEngine, build
from tests.support.drivers.built_worker import CAUGHT, catches
from tests.support.drivers.packet_header import HEADER
from tests.support.planting import Bug

CHECKS = "tests.checks.native_checks"


@pytest.mark.parametrize(
    "check", [check_codec, check_numbers_do_not_overflow, check_schedules, check_engine]
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


GUARD_BITS = "std::bit_width(static_cast<unsigned>(ranks - 1))"

# Bugs of the worker, with the checks that must see each.
WORKER_BUGS = {
    "one guard bit less": (
        Bug("codec/numbers.cpp", GUARD_BITS, f"({GUARD_BITS} - 1)"),
        ["check_codec", "check_numbers_do_not_overflow"],
    ),
    # It overflows nothing; only the bits of the result show it.
    "one guard bit more": (
        Bug("codec/numbers.cpp", GUARD_BITS, f"({GUARD_BITS} + 1)"),
        ["check_codec"],
    ),
    "rounds up": (
        Bug(
            "worker/blocks.cpp",
            "codec::quantise(numbers_, blocks, elements, exponents, out);",
            "codec::quantise(numbers_, blocks, elements, exponents, out);"
            "for (std::size_t i = 0; i < blocks * kBlock; ++i) out[i] |= 1;",
        ),
        ["check_codec"],
    ),
    "loses the greatest limb": (
        Bug(
            "worker/exact_tensor.cpp",
            "codec::exact_encode(tensor.dtype, tensor.elements, tensor.count, words_.data());",
            "codec::exact_encode(tensor.dtype, tensor.elements, tensor.count, words_.data());"
            "for (std::size_t i = 11; i < words_.size(); i += 13) words_[i] = 0;",
        ),
        ["check_codec"],
    ),
    # As the protocol once had it: the bits of a small sum depended on the path's MTU.
    "is exact where one packet is enough": (
        Bug(
            "worker/operation.cpp",
            "if (!tensor.numbers && is_exact(tensor)) exact_.emplace(tensor);",
            "if (is_exact(tensor) && 13 * tensor.count <= 64 * (session.job.lanes - 1))"
            " exact_.emplace(tensor);",
        ),
        ["check_codec"],
    ),
    "forgets classes": (
        Bug(
            "worker/blocks.cpp",
            "codec::class_counts(tensor_.dtype, source(block), length(block), out);",
            "",
        ),
        ["check_codec"],
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
    *("one guard bit less", "forgets classes", "takes blocks of the wrong row"),
    *("counts a contribution twice", "does not look at UDP's checksum"),
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
    for check in ("check_codec", "check_schedules"):
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
