import zlib

import numpy as np
import pytest

from afflux_drivers.collective import Description, Reduction
from afflux_drivers.worker.operation import Operation
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import wire
from tests.support.drivers.virtual_job import ticket_of


@pytest.mark.parametrize(
    ("description", "text"),
    [
        (Description(17, Reduction.SUM, wire.Dtype.FLOAT32, (3, 4)), "17:sum:float32:3x4"),
        (Description(0, Reduction.AVG, wire.Dtype.BFLOAT16, ()), "0:avg:bfloat16:"),
        (Description(65536, Reduction.MAX, wire.Dtype.INT32, (0,)), "65536:max:int32:0"),
        (Description(1, Reduction.MIN, wire.Dtype.FLOAT16, (1, 2, 3)), "1:min:float16:1x2x3"),
    ],
)
def test_text_and_checksum(description, text):
    assert description.text == text
    assert description.fingerprint == zlib.crc32(text.encode())


@pytest.mark.parametrize("reduction", Reduction)
def test_blocks_of_all_ranks_sum_to_all_fingerprints(reduction):
    ticket = ticket_of(workers=64, lanes=2, slots=1)
    blocks = np.empty((64, 64), np.int32)
    for rank, block in enumerate(blocks):
        session, elements = Session(ticket, rank), np.ones(5, np.float32)
        operation = Operation(session, elements, wire.Dtype.FLOAT32, reduction, (5,))
        (opening,) = operation.open(0.0)
        block[:] = np.frombuffer(opening, "<i4", 64, wire.datagram_bytes(0))
    merged = blocks.sum(axis=0, dtype=np.int32)
    assert set(merged.view(np.uint32).tolist()) == {operation.description.fingerprint}
