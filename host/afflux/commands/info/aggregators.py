"""Asks the aggregators that were named what they are; it does not search for others."""

import time
from typing import Any

from afflux.group.settings.aggregator_url import AggregatorUrl, lanes_to, local_address_towards
from afflux.group.settings.variables import Settings
from afflux_drivers.control.client import describe
from afflux_drivers.errors import AffluxError

__all__ = ["ask"]


def ask(url: str, timeout_s: float) -> dict[str, Any]:
    """Ask the aggregator at `url` what it is.

    Returns:
        `url` and either `error` or: `engine`, `workers`, `lanes`, `jobs`, `slots`, `port`,
        `protocol`; `answer_s` (connection and answer), `from_address` (the local one that leads
        there), `lanes_on_the_way` (blocks that a packet there may hold).
    """
    started = time.perf_counter()
    try:
        where = AggregatorUrl.parse(url)
        if where.embedded:
            return {
                "url": url,
                "error": "its ranks start it, so there is no running aggregator to ask",
            }
        about = describe(
            (where.host, where.port), timeout_s, Settings.from_environment().control_secret()
        )
        answer_s = time.perf_counter() - started
        lanes = lanes_to(where.host, where.port)
    except (AffluxError, OSError, ValueError) as error:
        return {"url": url, "error": str(error)}
    about.pop("ok", None)
    return {
        "url": url,
        **about,
        "answer_s": answer_s,
        "from_address": local_address_towards(where.host),
        "lanes_on_the_way": lanes,
    }
