"""The functional-coverage model of the engine: what should have happened to it, in which state.

The words are those of `docs/protocol.md`, section 5. `tests/coverage/observer.py` says where each
value is sampled.
"""

from collections.abc import Mapping

from afflux_hdl.contract.registers import FRAME_COUNTERS
from tests.coverage.bins import Cross, Exclusion, Model, Sample

__all__ = ["KINDS", "OPCODES", "engine_model", "opcode_name"]

OPCODES = ("SUM", "MAX", "MIN", "UMIN", "NUMBER_MAX", "NUMBER_MIN", "NUMBER_SUM")
KINDS = ("contribution", "duplicate", "probe", "join", "refusal", "foreign")
"""Of verdicts, as neighbours of one another."""

CONTRIBUTES = ("opens", "joins", "completes")
DIMENSIONS: Mapping[str, tuple[str, ...]] = {
    "opcode": OPCODES,
    "dtype": tuple(map(str, range(16))),
    "workers": ("1", "2", "3–7", "8–63", "64"),
    "present": ("none", "one", "some", "all"),
    "loss": ("none", "contribution lost", "result lost", "probe"),
    "round": (*CONTRIBUTES, "duplicate", "previous", "premature", "stale"),
    "queue": ("empty", "some", "near full"),
    "phase": ("even", "odd"),
    "way": ("unicast", "group", "parent"),
    "verdict": tuple(each.name for each in FRAME_COUNTERS),
    "beats": ("1", "2", "3", "4–9", "10–"),
    "gaps": ("back to back", "gaps"),
    "network": ("takes all", "takes some", "takes nothing"),
    "link": ("up", "down by command", "down by itself"),
    "pair": tuple(
        f"{first} + {second}" for place, first in enumerate(KINDS) for second in KINDS[place:]
    ),
    "ends": ("reset", "destroyed"),
    "reset": ("between frames", "amid one in", "amid one out", "amid both"),
    "result": ("RESULT", "CONFLICT"),
}

NO_NUMBERS = Exclusion(
    "numbers are float32, float16 or bfloat16, and results are never partial sums",
    lambda bin_: bin_["opcode"].startswith("NUMBER") and bin_["dtype"] not in ("1", "2", "3"),
)
ALONE = Exclusion(
    "a worker that is alone opens and completes each round with one packet",
    lambda bin_: bin_["workers"] == "1" and bin_["round"] in ("opens", "joins"),
)
TWO = Exclusion(
    "of two workers the first opens the round and the second completes it",
    lambda bin_: bin_["workers"] == "2" and bin_["round"] == "joins",
)
ADDS_NOTHING = Exclusion(
    "what does not contribute to its round adds no blocks",
    lambda bin_: bin_["round"] not in CONTRIBUTES,
)


def _loss_does_not_fit(bin_: Sample) -> bool:
    allowed = {
        "none": (*CONTRIBUTES, "premature", "stale"),
        "contribution lost": CONTRIBUTES,
        "result lost": ("duplicate", "previous"),
        "probe": ("duplicate", "previous", "premature", "stale"),
    }
    return bin_["round"] not in allowed[bin_["loss"]]


LOSS = Exclusion(
    "by definition: what is lost and comes again contributes, what asks for a result does not",
    _loss_does_not_fit,
)
NO_ROOM = Exclusion(
    "the receive buffer has room for all that can wait: see docs/hardware.md, section 4",
    lambda bin_: bin_["verdict"] == "receive_overflow",
)

NO_TAIL = Exclusion(
    "a frame of one beat has no tail that could come after a reset",
    lambda bin_: bin_["beats"] == "1" and bin_["reset"] in ("amid one in", "amid both"),
)

CROSSES = (
    Cross("opcode × dtype of results", ("opcode", "dtype"), (NO_NUMBERS,)),
    Cross("result × workers × way", ("result", "workers", "way")),
    Cross("opcode × round", ("opcode", "round")),
    Cross("opcode × workers × present", ("opcode", "workers", "present")),
    Cross("workers × present × round", ("workers", "present", "round"), (ALONE, TWO, ADDS_NOTHING)),
    Cross(
        "workers × loss × round × queue × phase",
        ("workers", "loss", "round", "queue", "phase"),
        (ALONE, TWO, LOSS),
    ),
    Cross("opcode × workers × loss", ("opcode", "workers", "loss")),
    Cross("way × loss × round × phase", ("way", "loss", "round", "phase"), (LOSS,)),
    Cross("present × round × queue", ("present", "round", "queue"), (ADDS_NOTHING,)),
    Cross("verdict × queue × phase", ("verdict", "queue", "phase"), (NO_ROOM,)),
    Cross("verdict × network", ("verdict", "network"), (NO_ROOM,)),
    Cross("beats × gaps × network", ("beats", "gaps", "network")),
    Cross("pair, back to back × network", ("pair", "network")),
    Cross("ends × queue × way", ("ends", "queue", "way")),
    Cross("verdict × link", ("verdict", "link"), (NO_ROOM,)),
    Cross("way × round × link", ("way", "round", "link")),
    Cross("opcode × loss × link", ("opcode", "loss", "link")),
    Cross("workers × present × link", ("workers", "present", "link")),
    Cross("pair, back to back × link", ("pair", "link")),
    Cross("ends × way × link", ("ends", "way", "link")),
    Cross("reset × link", ("reset", "link")),
    Cross("reset × queue", ("reset", "queue")),
    Cross("reset × beats", ("reset", "beats"), (NO_TAIL,)),
)


def opcode_name(opcode_dtype: int) -> str:
    """Return the name of a header's opcode, without the scale of a sum of numbers."""
    opcode = opcode_dtype >> 4
    return "NUMBER_SUM" if opcode >= 8 else OPCODES[opcode]


def engine_model() -> Model:
    """Return the model, with nothing reached."""
    return Model(DIMENSIONS, CROSSES)
