"""The captions of a run: each event in plain words, with its cycle."""

from collections.abc import Iterator, Sequence

from docs.generate.engine_page.network import FINGERPRINT, WIRE, Packet, Run
from docs.generate.engine_page.scenarios import LANES, ROWS, SLOTS, WORKERS

__all__ = ["Caption", "captions"]

Caption = tuple[int, str, str]
"""Cycle, kind, text. The kinds: "step" for the course of things, "sum" for a round that is
complete, "skip" for zero blocks that nobody will send, "trouble" for mishaps, "end"."""


def captions(run: Run) -> list[Caption]:
    """Return the captions of a run in the order of their cycles."""
    found = [*_opening(run), *_journeys(run), *_merges(run), *_rounds(run), *_ending(run)]
    return sorted(found, key=lambda caption: caption[0])


def _opening(run: Run) -> Iterator[Caption]:
    yield (
        0,
        "step",
        f"{WORKERS} workers add up {ROWS * SLOTS * LANES} blocks each; pale ones are zero. First "
        "each only names, for each column, the first block it has.",
    )
    if run.scenario.stalled:
        worker, begin, end = run.scenario.stalled
        yield begin, "trouble", f"Worker {worker} stalls: it neither reads nor sends."
        yield end, "trouble", f"Worker {worker} is back, and takes what has come meanwhile."


def _journeys(run: Run) -> Iterator[Caption]:
    """Tell what packets do on their way."""
    answered: set[tuple[int, int, int]] = set()
    for packet in run.packets:
        who, slot = f"worker {packet.worker}", f"slot {packet.slot}"
        half_way = packet.sent + WIRE // 2
        if packet.up and packet.first < 0:
            yield half_way, "trouble", f"A packet is lost: {_what(packet)} of {who}, for {slot}."
        elif packet.up and packet.kind == "probe":
            text = f"{who.capitalize()} has no answer in {slot} yet, and asks the engine."
            yield packet.sent, "trouble", text
        elif packet.copy == "network":
            text = f"The network delivers {who}'s packet for {slot} again."
            yield packet.sent + WIRE, "trouble", text
        elif packet.copy == "again" and packet.up:
            text = f"{who.capitalize()} sends its packet for {slot} again, the same bytes."
            yield packet.sent, "trouble", text
        elif packet.kind == "missing":
            names = " and ".join(f"worker {each}" for each in packet.missing)
            text = f"The engine answers {who}: in {slot}, {names} is missing."
            yield packet.first, "trouble", text
        elif packet.kind == "result":
            place = (packet.worker, packet.slot, packet.round)
            if packet.arrives < 0:
                text = f"A result is lost: {slot}'s, on its way to {who}."
                yield packet.last + WIRE // 2, "trouble", text
            elif place in answered:
                text = f"{who.capitalize()} has this result of {slot} already, and ignores it."
                yield packet.arrives, "trouble", text
            else:
                answered.add(place)
                yield packet.arrives, "step", _received(packet)


def _received(packet: Packet) -> str:
    who = f"Worker {packet.worker}"
    if all(row < 0 for row in packet.next):
        return f"{who} has all sums of slot {packet.slot}."
    if packet.round == 0:
        return f"{who} knows which blocks slot {packet.slot} begins with, and sends those it has."
    sums = _listed([f"block {number} = {value}" for _, number, value in packet.blocks])
    return f"{who} has {sums}, and sends its next packet for slot {packet.slot}."


def _merges(run: Run) -> Iterator[Caption]:
    """Tell what the engine decides on each frame."""
    seen: dict[tuple[int, int], set[int]] = {}
    frames = [packet for packet in run.packets if packet.up and packet.judged >= 0]
    for packet in sorted(frames, key=lambda packet: packet.judged):
        slot, who = f"slot {packet.slot}", f"Worker {packet.worker}"
        inside = seen.setdefault((packet.slot, packet.round), set())
        if packet.cause == "accepted":
            inside.add(packet.worker)
            count = f"{slot} has {len(inside)} of {WORKERS}"
            what, one = _what(packet), len(packet.blocks) < 2
            yield packet.judged, "step", f"{who}'s {what} arrive{'s' if one else ''}: {count}."
        elif packet.cause == "duplicates":
            if len(inside) < WORKERS:
                text = f"The bitmap of {slot} has worker {packet.worker} already: nothing is added."
            else:
                text = (
                    f"The bitmap of {slot} has worker {packet.worker} already: nothing is added. "
                    f"The slot still holds the sums, and answers with them again."
                )
            yield packet.judged, "trouble", text
        elif packet.cause == "probes" and len(inside) == WORKERS:
            later = len(seen.get((packet.slot, packet.round + 1), ()))
            held = "still holds the sums of the round before" if later else "holds the sums"
            text = f"{slot.capitalize()} {held}: worker {packet.worker} gets them again."
            yield packet.judged, "trouble", text


def _rounds(run: Run) -> Iterator[Caption]:
    """Tell which rounds are complete, and what they skip."""
    told: set[tuple[int, int]] = set()
    rows: dict[tuple[int, int], int] = {}
    for packet in run.packets:
        if packet.kind != "result" or (packet.slot, packet.round) in told:
            continue
        told.add((packet.slot, packet.round))
        slot = f"slot {packet.slot}"
        if packet.round == 0:
            text = f"{slot.capitalize()} knows what all have: each column's first block comes next."
        else:
            sums = _listed([f"block {number} = {value}" for _, number, value in packet.blocks])
            text = f"{slot.capitalize()} is full. The sums go to every worker: {sums}."
        yield packet.first, "sum", text
        skipped = []
        for lane, row in enumerate(packet.next):
            before = rows.get((packet.slot, lane), -1)
            end = ROWS if row < 0 else row
            skipped += [_number(packet.slot, lane, each) for each in range(before + 1, end)]
            rows[packet.slot, lane] = max(before, end)
        if skipped:
            blocks = _listed([str(number) for number in sorted(skipped)])
            one = len(skipped) == 1
            text = (
                f"Block{'' if one else 's'} {blocks} {'is' if one else 'are'} zero at all workers: "
                f"skipped. No packet will ever carry {'it' if one else 'them'}."
            )
            yield packet.first + 6, "skip", text


def _ending(run: Run) -> Iterator[Caption]:
    for worker, cycle in enumerate(run.done):
        yield cycle, "end", f"Worker {worker} is done: it has the whole sum."
    sent = {
        (packet.worker, number)
        for packet in run.packets
        for _, number, _ in packet.blocks
        if packet.up and number != FINGERPRINT
    }
    quiet = 1 + max(*run.done, *(packet.arrives for packet in run.packets))
    text = (
        f"All workers have the same sum. {len(sent)} blocks had to travel for it, of "
        f"{WORKERS * ROWS * SLOTS * LANES}."
    )
    yield quiet, "end", text


def _number(slot: int, lane: int, row: int) -> int:
    return (row * SLOTS + slot) * LANES + lane


def _what(packet: Packet) -> str:
    """Return what a worker's packet carries."""
    numbers = [number for _, number, _ in packet.blocks if number != FINGERPRINT]
    if packet.round == 0:
        return "look-ahead"
    if not numbers:
        return "empty packet (it has only zeros here)"
    return ("block " if len(numbers) == 1 else "blocks ") + _listed(
        [str(each) for each in sorted(numbers)]
    )


def _listed(items: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))
