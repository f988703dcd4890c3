"""One rank of `benchmarks.ranks.compressors`: what compressors send, and what they cost."""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import afflux
from afflux.schemes.compressor import Compressor
from afflux.torchrun import end_with_parent

__all__ = ["main"]

_SEED = 7


def _compressors(words: list[str]) -> dict[str, Compressor]:
    return {word: afflux.hooks.scheme(word).compressor for word in words}


def sent(words: list[str], elements: int) -> list[dict[str, object]]:
    """Return what each says that it sends, and how many bytes of payload it has sent."""
    drawn = torch.randn(elements, generator=torch.Generator().manual_seed(_SEED + dist.get_rank()))
    average = torch.empty_like(drawn)
    rows: list[dict[str, object]] = []
    for word, compressor in _compressors(words).items():
        # The first call may also have to agree on the kind of tensor.
        for _ in range(2):
            tensor = drawn.clone()
            dist.barrier()
            before = afflux.statistics()["bytes_sent"]
            compressor.take(tensor, average, None)
            after = afflux.statistics()["bytes_sent"]
        said = compressor.volume(elements, dist.get_world_size())
        rows.append(
            {"word": word, "biased": compressor.biased, "said": said, "sent": after - before}
        )
    return rows


def timed(words: list[str], elements: int, rounds: int) -> list[dict[str, object]]:
    """Return the seconds of each in turn, with all ranks: by the clock, and of the processor.

    Those of this rank's processor are also measured without the other ranks.

    Args:
        words: The first is what the others are compared with.
        elements: Of the tensor.
        rounds: How often each has its turn.
    """
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    drawn = torch.randn(elements, generator=torch.Generator().manual_seed(_SEED + dist.get_rank()))
    tensor, average = torch.empty_like(drawn), torch.empty_like(drawn)
    compressors = _compressors(words)
    together: dict[str, list[float]] = {word: [] for word in words}
    busy: dict[str, list[float]] = {word: [] for word in words}
    own: dict[str, list[float]] = {word: [] for word in words}
    for _ in range(rounds):
        for word, compressor in compressors.items():
            tensor.copy_(drawn)
            dist.barrier()
            begin, busy_before = time.perf_counter(), time.process_time()
            compressor.take(tensor, average, None)
            busy[word].append(time.process_time() - busy_before)
            # Until the last rank has it.
            dist.barrier()
            together[word].append(time.perf_counter() - begin)
        for word, compressor in compressors.items():
            tensor.copy_(drawn)
            begin = time.process_time()
            compressor.take(tensor, average, alone)
            own[word].append(time.process_time() - begin)
    # The first round touches memory for the first time.
    return [
        {
            "word": word,
            "seconds": _median(together[word]),
            "busy_seconds": _median(busy[word]),
            "own_seconds": _median(own[word]),
        }
        for word in words
    ]


def _median(times: list[float]) -> float:
    later = sorted(times[1:])
    return later[len(later) // 2]


def main() -> int:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--words", type=json.loads, required=True, help="schemes, as JSON")
    parser.add_argument("--elements", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=0, help="0: count bytes")
    given = parser.parse_args()
    end_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("afflux")
    if given.rounds:
        rows = timed(given.words, given.elements, given.rounds)
    else:
        rows = sent(given.words, given.elements)
    name = f"rank{dist.get_rank()}.json"
    (given.folder / name).write_text(json.dumps(rows), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
