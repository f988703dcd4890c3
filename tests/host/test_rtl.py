"""The whole way through the simulated engine: the same bits as by any other way."""

import pytest
import torch
import torch.distributed as dist

import afflux
from tests.support.host.aggregators import aggregator
from tests.support.host.ranks import run_ranks, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def reduce_many(rank, size):
    generator = torch.Generator().manual_seed(rank)
    results = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32):
        for shape in ((), (0,), (5,), (20,), (73,), (74,), (64 * 16 + 1,), (50, 333)):
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
                tensor = (100 * torch.randn(shape, generator=generator)).to(dtype)
                if dtype != torch.int32 and tensor.numel() > 100:
                    tensor.view(-1)[7] = float("nan") if rank == 0 else 1.0
                    tensor.view(-1)[70 + rank] = float("inf")
                    tensor.view(-1)[640:6400] = 0
                dist.all_reduce(tensor, op=op)
                # NaNs compare equal by their bits, and there is but one.
                results.append(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    dist.barrier()
    numbers = afflux.statistics()
    asked = rank == 0 and numbers["engine"] != "shm"
    counters = afflux.engine_counters() if asked else {}
    cycles = afflux.engine_description().get("cycles") if asked else None
    return results, numbers.get("blocks_sent"), counters, cycles, numbers["engine"]


@pytest.fixture(scope="module")
def of_software():
    """Return what the ranks report of software and of shared memory, whatever the engine's bus."""
    environments = [
        {"AFFLUX_AGGREGATOR": "soft://"},
        # Tensors that fit the packets of a common MTU, and the smallest.
        {"AFFLUX_AGGREGATOR": "soft://", "AFFLUX_LANES": "5"},
        {"AFFLUX_AGGREGATOR": "soft://", "AFFLUX_LANES": "1"},
        {"AFFLUX_AGGREGATOR": "shm://"},
    ]
    # Aggregators that run already; one of them has few lanes for any job.
    with aggregator() as wide, aggregator(lanes=7) as narrow:
        environments += [{"AFFLUX_AGGREGATOR": url} for url in (wide, narrow)]
        return [
            said
            for environment in environments
            for said in values(run_ranks(reduce_many, 3, environment=environment))
        ]


@pytest.mark.parametrize(
    ("lanes", "loss", "url"),
    [
        ("16", "0.02", "rtl://?bus_bits=32"),
        # The wide engine has the same from ranks to bits in test_board_network.py, in a node.
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in (
                ("5", "0", "rtl://?bus_bits=32"),
                ("16", "0", "rtl://"),
                ("16", "0", "rtl://?bus_bits=32"),
                ("16", "0.02", "rtl://"),
                ("5", "0", "rtl://"),
            )
        ),
    ],
)
def test_equal_bits(url, lanes, loss, of_software):
    environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_LANES": lanes, "AFFLUX_TEST_LOSS": loss}
    rtl = values(run_ranks(reduce_many, 3, environment=environment, limit_s=800, timeout_s=60))
    for each in [*of_software, *rtl]:
        assert each[0] == of_software[0][0]
    assert rtl[0][4] == "rtl"
    assert rtl[0][3] > 0
    assert rtl[0][2]["blocks_accepted"] == sum(each[1] for each in rtl)
