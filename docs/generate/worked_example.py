"""The worked examples in `docs/protocol.md` section 12, as packets of the golden model.

`python -m docs.generate.worked_example docs/protocol.md` writes them between the markers there;
a test compares the two.
"""

import sys
from pathlib import Path

import numpy as np

from afflux_sim.golden.frames import ABSENT, Packet, parse_packet, split_look_ahead
from afflux_sim.golden.network import deliver
from docs.generate.example_job import FIRST_ROUND, JOB, KEY, LANES, SLOTS, WORKERS, new_job
from docs.generate.packet_text import show, wrapped
from docs.generate.worked_operations import maximum, not_summed, side_by_side

__all__ = ["BEGIN", "END", "example", "insert"]

BEGIN, END = "<!-- example -->\n", "<!-- end -->\n"

COUNT = 300

# Numbers that decimals show badly.
_TEXTS = {1.25 * 2.0**-24: "1.25·2^−24", 1.5 + 2.0**-23: "1.5 + 2^−23"}


def tensors() -> list[np.ndarray]:
    """Return 300 elements for each worker: five blocks, of which number 2 is zero at both."""
    blocks = [
        [(1.0, 1.5), (0.5, -0.5), (0.0, 0.0), (0.0, 0.0), (3.0, 3.0)],
        [(2.0, 1.25 * 2.0**-24), (0.0, 0.0), (0.0, 0.0), (-0.25, 1.0), (-1.0, -3.0)],
    ]
    return [
        np.concatenate([np.tile(np.array(pair, dtype=np.float32), 32) for pair in worker])[:COUNT]
        for worker in blocks
    ]


def agreed(packet: Packet) -> str:
    """Return what the words of a result agree on, lane by lane."""
    parts = []
    for lane in range(LANES):
        word = packet.words[lane]
        if word == ABSENT:
            parts.append(f"lane {lane}: nothing more")
        else:
            row, exponent = split_look_ahead(word)
            parts.append(f"lane {lane}: row {row}, exponent {exponent}")
    return "; ".join(parts)


def rounded_sum() -> list[str]:
    """Return the example of a sum with loss and absent blocks, in Markdown."""
    engine, workers = new_job()
    text = [
        "### 12.1 A sum, rounded once",
        f"A job with N = {WORKERS}, F = {LANES}, S = {SLOTS}, number {JOB}, key `{KEY:016x}`, "
        f"r₀ = {FIRST_ROUND:#x}. Both workers sum a float32 tensor of {COUNT} elements: five "
        "blocks, the last with 44 elements and padding. Pairs of values repeat within a block:",
        block_table([worker_pairs(x) for x in tensors()]),
        "Packets are shown from byte 42 of the frame, in hexadecimal as they travel.",
    ]

    join = workers[0].join()
    (joined,) = engine.receive(join)
    deliver([joined], workers)
    deliver(engine.receive(workers[1].join()), workers)
    text += [
        "**Join.** Worker 0 announces itself. The answer gives N, F, slots and credit. Worker 1 "
        "does the same.",
        show(join),
        show(joined),
    ]

    for worker, tensor in zip(workers, tensors(), strict=True):
        worker.start(tensor, "float32", "sum")
    frames = [worker.frames_to_send()[0] for worker in workers]
    results = [answer for frame in frames for answer in engine.receive(frame)]
    first = parse_packet(results[0])
    crc = int(first.blocks[0][0]) & 0xFFFFFFFF
    text += [
        "**Opening round.** Lane 0 carries the fingerprint, the CRC-32 of "
        f"`0:sum:float32:{COUNT}`, which is {crc:#010x}, in the word of the worker's number. The "
        "look-ahead words name row 0 in both lanes for worker 0; worker 1 has nothing in lane 1 "
        "before row 1. The largest magnitudes are 1.5 (exponent 127) and 0.5 (126) at worker 0, "
        "2.0 (128) and 1.0 (127) at worker 1; the low byte of a word is 255 less these.",
        *map(show, frames),
        "The result has both fingerprints, which each worker finds equal to its own, and the "
        f"unsigned minimum of the words. Agreed: {agreed(first)}. Worker 1 gets the same, with 1 "
        "in the byte of the worker.",
        show(results[0]),
    ]

    deliver(results, workers)
    frames = [worker.frames_to_send()[0] for worker in workers]
    nothing = engine.receive(frames[0])
    assert nothing == []
    probe = workers[0].retransmit(0, probe=True)
    (missing,) = engine.receive(probe)
    results = engine.receive(frames[1])
    second = parse_packet(results[0])
    text += [
        f"**Round {second.round:#x}.** The opcode is NUMBER_SUM, so the second byte is 0x81. "
        "Blocks travel as they are: 1.0 is 0x3f800000. Worker 0 sends those of both lanes. Its "
        "next row in lane 0 is 2, since row 1 of lane 0, block 2, is zero; in lane 1 it has "
        "nothing more.",
        show(frames[0]),
        "Worker 1's packet is late, and worker 0 asks. The first word of the answer is the bitmap "
        "of the workers that are in: only worker 0. The third is R.",
        show(probe),
        show(missing),
        "Worker 1 has no block at row 0 of lane 1, and repeats its word for that lane.",
        show(frames[1]),
        "The round is complete. In lane 0, 1.0 + 2.0 is 3.0, 0x40400000. 1.5 + 1.25·2^−24 lies "
        "between two float32, 1.5 and 1.5 + 2^−23, and nearer to the latter, 0x3fc00001. Agreed "
        f"for the next round: {agreed(second)}.",
        show(results[0]),
    ]

    deliver(results, workers)
    frames = [worker.frames_to_send()[0] for worker in workers]
    results = [answer for frame in frames for answer in engine.receive(frame)]
    deliver(results, workers)
    third = parse_packet(results[0])
    text += [
        f"**Round {third.round:#x}.** Worker 0 has a block for lane 0 only, worker 1 for both. All "
        "words are absent, so that this result is the last one. The lanes are at different rows, "
        "2 and 1.",
        *map(show, frames),
        show(results[0]),
    ]
    decoded = [worker.result() for worker in workers]
    assert all(worker.done for worker in workers)
    assert np.array_equal(decoded[0], decoded[1])
    text += [
        "**The result**, the same at both workers. Block 2 was never sent, and is zero. In block "
        "4, 3.0 − 3.0 is +0.",
        block_table([worker_pairs(decoded[0])], result=True),
        f"The next operation of the job is number 1; its opening round is {third.round + 1:#x}.",
    ]
    return text


def example() -> str:
    """Return the text of all examples, in Markdown."""
    text = [*rounded_sum(), *side_by_side(), *not_summed(), *maximum()]
    return "\n\n".join(map(wrapped, text)) + "\n"


def worker_pairs(x: np.ndarray) -> list[str]:
    """Return the first two elements of each block."""

    def text(number: float) -> str:
        return _TEXTS.get(number, f"{number:g}".replace("-", "−"))

    return [f"{text(x[start])}, {text(x[start + 1])}, …" for start in range(0, COUNT, 64)]


def block_table(columns: list[list[str]], *, result: bool = False) -> str:
    """Return a table of blocks with their row and lane, and what they hold."""
    titles = ["result"] if result else [f"worker {w}" for w in range(len(columns))]
    lines = [
        f"| block | row | lane | {' | '.join(titles)} |",
        "|---" * (3 + len(columns)) + "|",
    ]
    for block, values in enumerate(zip(*columns, strict=True)):
        row, lane = divmod(block, LANES)
        lines.append(f"| {block} | {row} | {lane} | {' | '.join(values)} |")
    return "\n".join(lines)


def insert(page: str) -> str:
    """Return the page with the examples between its markers.

    Raises:
        ValueError: If the markers are not there.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN.strip()} followed by {END.strip()}")
    return before + begin + example() + end + after


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(insert(path.read_text(encoding="utf-8")), encoding="utf-8")
