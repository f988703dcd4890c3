"""Bugs that are planted into NCCL's plugin are seen: each check can fail."""

from collections.abc import Callable

import pytest

from tests.nccl import planted_checks
from tests.support.drivers.nccl_plugin import plugin_with
from tests.support.planting import Bug, first_now

pytestmark = [pytest.mark.timeout(600)]

BUGS: dict[str, tuple[Bug, Callable[[str], None]]] = {
    "stale bytes stay": (
        Bug(
            "nccl/comm.cpp",
            "if (request.clear) std::memset(request.send, 0, request.bytes);",
            "",
        ),
        planted_checks.padding,
    ),
    "a request is over when it begins": (
        Bug(
            "nccl/comm.cpp",
            "kept_[job].keep(over_of_[job] + 1, request.reduction); start(job);",
            "kept_[job].keep(over_of_[job] + 1, request.reduction); start(job);"
            " request.state.store(Request::State::Done);",
        ),
        planted_checks.sums,
    ),
    "nodes take different jobs": (
        Bug(
            "nccl/comm.cpp",
            "const std::size_t job = begun_ % running_.size(); if (!next_is_free()) return;",
            "const std::size_t job ="
            " (begun_ + static_cast<std::size_t>(formed_.rank)) % running_.size();"
            " if (running_[job] != nullptr) return;",
        ),
        planted_checks.rings,
    ),
    "types are confused": (
        Bug(
            "nccl/collnet.cpp",
            "case abi::Bfloat16: return arithmetic::Dtype::Bfloat16;",
            "case abi::Bfloat16: return arithmetic::Dtype::Float16;",
        ),
        planted_checks.sums,
    ),
    "memory is not let go": (
        Bug("nccl/comm.cpp", "std::any_of(running_.begin(), running_.end(), lies_there)", "false"),
        planted_checks.deregistering,
    ),
    "a failure is told to nobody": (
        Bug("nccl/comm.cpp", "if (&each != told_by && !each.closed) tell(", "if (false) tell("),
        planted_checks.failing,
    ),
    "a dead node is not noticed": (
        Bug("nccl/comm.cpp", "if (now < next_heed_) return;", "return;"),
        planted_checks.dying,
    ),
    "the parts of a message are mixed up": (
        Bug("nccl/byte_streams.cpp", "request.data + first, bytes}", "request.data, bytes}"),
        planted_checks.transfers,
    ),
    "the table has any number of nodes": (
        Bug("nccl/size_table.cpp", "neighbours(numbers, nodes)", "numbers"),
        planted_checks.choosing,
    ),
    "nodes do not compare their sizes": (
        Bug("nccl/forming.cpp", 'said.text("sizes") != sizes_', "false"),
        planted_checks.comparing,
    ),
    "nobody contributes again to what others lack": (
        Bug("nccl/comm.cpp", "again_[job] = over_of_[job] != made.over[job];", ""),
        planted_checks.changing,
    ),
    "what was contributed is not put back": (
        Bug(
            "nccl/comm.cpp",
            "kept_[job].restore(over_of_[job] + 1, running->reduction.elements);",
            "running->clear = false;",
        ),
        planted_checks.changing,
    ),
    "nobody looks whether the aggregator's host is there": (
        Bug("nccl/streams_worker.cpp", "if (!over) look_for_aggregator();", ""),
        planted_checks.vanishing,
    ),
    "a job outlives its communicator": (
        Bug(
            "nccl/comm.cpp",
            "for (const auto& each : formed_.leases) { try {"
            " each->close(failed_ ? kCloseAnswerOfFailed : kCloseAnswer);",
            "for (auto& each : formed_.leases) { try { each.release();",
        ),
        planted_checks.releasing,
    ),
}


@pytest.mark.parametrize("name", first_now(BUGS))
def test_a_planted_bug_is_seen(name):
    bug, check = BUGS[name]
    with pytest.raises(AssertionError):
        check(str(plugin_with(name, bug)))


def test_without_a_bug_all_checks_pass():
    for check in dict.fromkeys(check for _, check in BUGS.values()):
        check("")
