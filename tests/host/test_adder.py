"""The sums are the engine's own: one adder bit flipped in the RTL, and other weights come out."""

import threading

import numpy as np
import pytest
import torch

from afflux.demo.digits import build_network, training
from afflux_drivers.aggregator.engine import Engine, SoftEngine
from afflux_drivers.aggregator.server import AggregatorServer
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job
from afflux_hdl.contract import wire
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.scenarios.director import Build
from tests.support.drivers.ranks import Ranks
from tests.support.planted_engine import planted_engine
from tests.support.planting import Bug

pytestmark = [pytest.mark.slow, pytest.mark.long]

RANKS = 2
STEPS = 3
BUILT: Build = {"workers": RANKS, "lanes": 16, "jobs": 1, "slots": 4}


FLIP = Bug("numbers/accumulate.py", "total.eq(left + right)", "total.eq(left + right + (3 << 40))")
"""Two bits of every sum, together a multiple of 3, so that the engine's own residue fits the sum.

Only of sums of numbers: ranks' fingerprints are integers, and the ranks would notice.
"""


def train(engine: Engine) -> bytes:
    """Return the weights after a few steps of two ranks whose gradients this engine averages."""
    images, labels = training()
    model = build_network(seed=1)
    server = AggregatorServer(engine)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        lease = create_job(server.address, RANKS, 16, 4, 10.0)
        with Ranks(lease.ticket) as ranks:
            for step in range(STEPS):
                gradients = []
                for rank in range(RANKS):
                    chosen = slice(64 * (RANKS * step + rank), 64 * (RANKS * step + rank + 1))
                    model.zero_grad()
                    outputs = model(images[chosen])
                    torch.nn.functional.cross_entropy(outputs, labels[chosen]).backward()
                    gradient_of = [weight.grad for weight in model.parameters()]
                    flat = [each.reshape(-1) for each in gradient_of if each is not None]
                    gradients.append(torch.cat(flat).numpy())
                averages = ranks.all_reduce(gradients, wire.Dtype.FLOAT32, Reduction.AVG)
                for average in averages:
                    assert not isinstance(average, BaseException), average
                    assert np.array_equal(average, averages[0])
                with torch.no_grad():
                    at = 0
                    for weight in model.parameters():
                        part = torch.from_numpy(averages[0][at : at + weight.numel()])
                        weight.sub_(0.1 * part.reshape(weight.shape))
                        at += weight.numel()
        lease.close()
    finally:
        server.stop()
        thread.join()
    return b"".join(weight.detach().numpy().tobytes() for weight in model.parameters())


def test_a_flipped_adder_bit_changes_the_weights() -> None:
    torch.set_num_threads(1)
    by_software = train(SoftEngine())
    with VerilatedEngine(bus_bits=32, **BUILT) as engine:
        assert train(engine) == by_software
    with planted_engine("adder", FLIP, 32, BUILT) as engine:
        assert train(engine) != by_software
