"""The test vectors in docs/vectors are the golden model's, and other implementations agree."""

import dataclasses
import json
import random

import numpy as np
import pytest

from afflux_drivers.errors import AffluxError
from afflux_sim.golden.frames import SEAL_BYTES, WORDS_AT, udp_sum
from afflux_sim.golden.reductions import all_reduce
from docs.generate.vectors import INDEX, write
from tests.checks.vector_reader import Vector, check_capture, read_vectors
from tests.checks.vector_replay import replay_to_engine, replay_to_workers
from tests.scenarios.afflux_layer import TYPES
from tests.support.checkout import ROOT

FOLDER = ROOT / "docs" / "vectors"
VECTORS = {vector.about["name"]: vector for vector in read_vectors(FOLDER)}
MOST_BYTES = 240_000
STORAGE = {"int32": "<i4", "float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}

# Every check that a vector has to pass.
CHECKS = (check_capture, replay_to_engine, replay_to_workers)

every_vector = pytest.mark.parametrize("name", VECTORS)


def test_vectors_are_those_of_the_golden_model(tmp_path):
    write(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    there = {path.name: path.read_bytes() for path in FOLDER.iterdir()}
    assert sorted(made) == sorted(there)
    for name, data in made.items():
        assert there[name] == data, f"docs/vectors/{name} is not what docs.generate.vectors writes"


def test_vectors_are_small_and_show_every_packet():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES
    shown = {vector_type(frame) for vector in VECTORS.values() for frame in vector.frames}
    assert shown == set(TYPES)
    calls = {
        (call["reduction"], call["dtype"])
        for vector in VECTORS.values()
        for call in vector.about["operations"]
        if "inputs" in call
    }
    assert {reduction for reduction, _ in calls} == {"sum", "avg", "max", "min"}
    assert {dtype for _, dtype in calls} == set(STORAGE)


def test_the_page_lists_every_vector():
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    for vector in VECTORS.values():
        assert f"| `{vector.about['file']}` | {vector.about['shows']} |" in page


@every_vector
def test_a_stranger_reads_the_capture(name):
    check_capture(VECTORS[name])


@every_vector
def test_the_software_engine_answers_as_in_the_capture(name):
    replay_to_engine(VECTORS[name])


@every_vector
def test_the_workers_send_and_return_what_the_vector_states(name):
    replay_to_workers(VECTORS[name])


@every_vector
def test_the_results_are_those_of_the_numeric_model(name):
    about = VECTORS[name].about
    for call in about["operations"]:
        if "inputs" not in call:
            continue
        tensors = [
            np.frombuffer(bytes.fromhex(bits), STORAGE[call["dtype"]]).reshape(call["shape"])
            for bits in call["inputs"]
        ]
        result = all_reduce(tensors, call["dtype"], call["reduction"])
        assert result.tobytes().hex() == call["result"], (name, call["number"])


def vector_type(frame: bytes) -> int:
    """Return the type of a frame's packet."""
    return frame[42] & 15


def fails(vector: Vector) -> bool:
    """Return whether one of the checks finds the vector wrong."""
    for check in CHECKS:
        try:
            check(vector)
        except (AssertionError, AffluxError, IndexError, KeyError, ValueError, RuntimeError):
            return True
    return False


@every_vector
def test_a_changed_byte_is_found(name):
    """In a frame of a worker or of the aggregator, wherever it is looked at."""
    vector = VECTORS[name]
    choose = random.Random(name)
    numbers = [n for n in range(1, len(vector.frames) + 1) if not vector.is_foreign(n)]
    for number in choose.sample(numbers, min(12, len(numbers))):
        frame = vector.frames[number - 1]
        # Nobody looks at the words of a JOIN or a PROBE.
        end = WORDS_AT if TYPES[vector_type(frame)] in ("JOIN", "PROBE") else len(frame)
        at = choose.randrange(end)
        bit = 1 << choose.randrange(8)
        changed = frame[:at] + bytes([frame[at] ^ bit]) + frame[at + 1 :]
        frames = [*vector.frames]
        frames[number - 1] = changed
        assert fails(dataclasses.replace(vector, frames=frames)), (number, at, bit)


@every_vector
def test_a_changed_result_is_found(name):
    vector = VECTORS[name]
    index = json.dumps(vector.about)
    for number, call in enumerate(vector.about["operations"]):
        if not call["result"]:
            continue
        about = json.loads(index)
        digits = about["operations"][number]["result"]
        about["operations"][number]["result"] = f"{int(digits[0], 16) ^ 1:x}{digits[1:]}"
        assert fails(dataclasses.replace(vector, about=about))


@pytest.mark.parametrize("name", ["sums", "narrow_types", "maximum_and_minimum", "leaf"])
def test_a_reader_of_the_page_alone_finds_a_changed_number(name):
    """In the last one of every result, and of every partial sum that goes up."""
    vector = VECTORS[name]
    found = 0
    for number, frame in enumerate(vector.frames, 1):
        up = vector.goes_up(frame)
        kind = "DATA" if vector.goes_to_parent(frame) else "RESULT"
        if frame[43] < 0x40 or up or TYPES[vector_type(frame)] != kind or len(frame) < 388:
            continue
        at = len(frame) - SEAL_BYTES - 2
        frames = [*vector.frames]
        frames[number - 1] = resealed(frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :])
        with pytest.raises(AssertionError, match=r"sum|rounded|extreme"):
            check_capture(dataclasses.replace(vector, frames=frames))
        found += 1
    assert found


def resealed(frame: bytes) -> bytes:
    """Return a frame whose seal fits what is before it."""
    blank = frame[:-2] + bytes(2)
    return blank[:-2] + (udp_sum(blank) ^ 0xFFFF).to_bytes(2, "big")


def test_an_index_of_another_format_is_refused(tmp_path):
    (tmp_path / INDEX).write_text(json.dumps({"format": 2, "vectors": []}))
    with pytest.raises(AssertionError):
        read_vectors(tmp_path)
