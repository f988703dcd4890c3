"""Plays a trial: forms its group, lets the fault come, and judges what every rank says.

A trial is bad if a result is wrong, a rank hangs, an error does not name its cause, survivors
cannot go on, or something is left behind. An error by name is a good end where nothing else is
promised; docs/reliability.md says what is.
"""

import contextlib
import re
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tests.chaos.crew import Crew, Member, answers, send
from tests.chaos.place import Place
from tests.chaos.plan import CALLS, Kill, Trial
from tests.chaos.wire import Faults

__all__ = ["BAD", "Player"]

WRONG, HUNG, DIED = "WRONG", "HUNG", "DIED"
NOT_NAMED, NOT_NOTICED, STUCK, LEFT = "NOT NAMED", "NOT NOTICED", "DOES NOT GO ON", "LEFT BEHIND"
NOT_FORMED = "NOT FORMED"
BAD = (WRONG, HUNG, DIED, NOT_NAMED, NOT_NOTICED, STUCK, LEFT, NOT_FORMED)
WENT_ON, FINISHED, NAMED = "went on", "finished", "ended by name"

_TIMEOUT_S = 15.0
_SHORT_TIMEOUT_S = 3.0
_BOUND_S = 45.0
"""For an answer: the group's timeout, and what a machine that is busy otherwise takes."""

_SPARE = 8
"""Calls after the last moment at which a rank may be killed; all need it but broadcasts."""

_AFTER = 4
_MORE_DESCRIPTORS, _MORE_THREADS = 8, 4
"""Of a process that has made other groups since, with links to other processes."""

_SETTLED_S = 5.0

_FAIL_BACK = "0.02"
"""AFFLUX_FAIL_BACK: the sooner ranks look for an aggregator, the likelier within their calls."""

_BACK_S = 10.0

Answers = dict[Member, dict[str, Any]]


class _Bad(Exception):
    def __init__(self, outcome: str, why: str) -> None:
        super().__init__(f"{outcome}: {why}")
        self.outcome, self.why = outcome, why


class Player:
    """Plays trials, one after the other.

    Args:
        place: Where.
        crew: The ranks' processes.
        bug: The name of one that is planted in the ranks; "" for none.
    """

    def __init__(self, place: Place, crew: Crew, bug: str = "") -> None:
        self._place, self._crew, self._bug = place, crew, bug
        self._formed = 0

    def play(self, trial: Trial) -> dict[str, Any]:
        """Play a trial; return its record."""
        began = time.monotonic()
        played = _Played(self, trial)
        record: dict[str, Any] = {
            "trial": trial.number,
            "seed": trial.seed,
            "way": trial.way,
            "ranks": len(trial.layout),
            "hosts": list(trial.layout),
            "fault": trial.fault,
            "beneath": trial.beneath,
            "kills": [[kill.victims, kill.call, kill.nanoseconds] for kill in trial.kills],
            "moment": [trial.call, trial.delay_s, trial.seconds],
            "share": trial.share,
        }
        try:
            record["outcome"], record["why"] = played.run(), ""
        except _Bad as bad:
            record["outcome"], record["why"] = bad.outcome, bad.why
            self._crew.drop(played.everyone)
            self._place.end_aggregator()
        finally:
            self._place.end_keeper()
        return record | played.found | {"seconds": round(time.monotonic() - began, 3)}

    def members(self, trial: Trial) -> list[Member]:
        """Return the processes that take part."""
        return self._crew.take(trial.layout)

    def lose(self, members: Collection[Member]) -> None:
        """Let go of processes that have died."""
        self._crew.drop(members)

    def options(self, way: str, members: Sequence[Member]) -> dict[str, Any]:
        """Return what a new group of these members is asked for."""
        self._formed += 1
        url = self._place.aggregator() if way == "aggregator" else f"{way}://"
        return {
            "way": url,
            "variables": {"AFFLUX_FAIL_BACK": _FAIL_BACK},
            "store": self._place.store,
            "prefix": f"group {self._formed}",
            "members": [each.number for each in members],
            "timeout_s": _TIMEOUT_S,
            "bug": self._bug,
        }

    @property
    def place(self) -> Place:
        """Where trials are played."""
        return self._place


class _Played:
    def __init__(self, player: Player, trial: Trial) -> None:
        self.player, self.trial, self.place = player, trial, player.place
        self.everyone = player.members(trial)
        self.living = list(self.everyone)
        self.next = 0
        self.found: dict[str, Any] = {
            "judged": 0,
            "notice_s": [],
            "go_on_s": [],
            "errors": [],
        }

    def run(self) -> str:
        """Return how the trial ended.

        Raises:
            _Bad: It ended badly.
        """
        trial = self.trial
        if trial.way == "aggregator":
            self.place.aggregator()
        with self._fault(trial.beneath):
            if trial.fault == "rank leaves":
                outcome = self._leaves()
            elif trial.fault == "store killed, then a rank":
                outcome = self._without_a_store()
            elif trial.fault == "rank stopped for good":
                outcome = self._stopped_for_good()
            elif trial.fault == "cable pulled for good":
                outcome = self._cut_off()
            elif trial.fault == "no descriptor left":
                outcome = self._without_descriptors()
            elif trial.fault.startswith("aggregator") and "while" not in trial.fault:
                outcome = self._aggregator_ends()
            elif trial.kills:
                outcome = self._killed()
            else:
                outcome = self._passes()
        self._end()
        return outcome

    # Kinds of trials.

    def _killed(self) -> str:
        self._form()
        for kill in self.trial.kills:
            dead = [self.everyone[place] for place in kill.victims]
            found = self._until_noticed(kill, dead)
            self._all_named(found, dead)
            self._shrink(dead)
        self._compare_with_fresh()
        return WENT_ON

    def _until_noticed(self, kill: Kill, dead: Sequence[Member]) -> Answers:
        """Carry out calls in which ranks are killed, and as many more as it takes to miss them."""
        found = self._part(CALLS + _SPARE, kill=kill, dead=dead)
        # The victim may have been quick enough to take part in all of these.
        unaware = [each for each, answer in found.items() if answer["error"] is None]
        if unaware:
            found |= self._part(_SPARE, asked=unaware)
        return found

    def _leaves(self) -> str:
        self._form()
        self._right(self._part(CALLS))
        leaver = self.everyone[self.trial.kills[0].victims[0]]
        self._clean(self._ask([leaver], "end"))
        self._shrink([leaver])
        self._compare_with_fresh()
        return WENT_ON

    def _without_a_store(self) -> str:
        self._form(store=self.place.keeper())
        self._right(self._part(_AFTER))
        self.place.end_keeper()
        (kill,) = self.trial.kills
        dead = [self.everyone[place] for place in kill.victims]
        self._all_named(self._until_noticed(kill, dead), dead)
        for each in dead:
            self.living.remove(each)
        # No store, no smaller group: that is said, within its bound.
        numbers = [each.number for each in dead]
        for member, answer in self._ask(self.living, "shrink", dead=numbers).items():
            self._named(member, answer["error"], r"store")
        return NAMED

    def _stopped_for_good(self) -> str:
        (kill,) = self.trial.kills
        dead = [self.everyone[place] for place in kill.victims]
        self._form(timeout_s=_SHORT_TIMEOUT_S)
        with contextlib.ExitStack() as stopped:
            moment = self._when(lambda: stopped.enter_context(self.place.stopped(dead[0].pid)))
            found = self._part(CALLS + _SPARE, dead=dead, meanwhile=moment, dies=False)
            self._all_named(found, dead)
            self.found["notice_s"][:] = [
                round(max(each["error"]["after_s"] for each in found.values()), 3)
            ]
            dead[0].process.kill()
        self._shrink(dead)
        return WENT_ON

    def _cut_off(self) -> str:
        away = [each for each in self.everyone if each.place.name == "h1"]
        self._form(timeout_s=2 * _SHORT_TIMEOUT_S)
        with contextlib.ExitStack() as pulled:
            moment = self._when(lambda: pulled.enter_context(self.place.unplugged("h1")))
            found = self._part(CALLS + _SPARE, meanwhile=moment)
            left = {each: found[each] for each in self.living if each not in away}
            self._all_named(left, away)
            for member in away:
                self._named(member, found[member]["error"], "")
            self.found["notice_s"].append(
                round(max(each["error"]["after_s"] for each in left.values()), 3)
            )
            self._shrink(away)
        self._clean(self._ask(away, "end"))
        return WENT_ON

    def _without_descriptors(self) -> str:
        self._form()
        self._right(self._part(CALLS))
        poor = self.trial.choose.choice(self.living)
        self._clean(self._ask([poor], "limit", spare=0))
        self._right(self._part(CALLS))
        self._clean(self._ask(self.living, "end"))
        found = self._ask(self.living, "form", **self.player.options(self.trial.way, self.living))
        for member, answer in found.items():
            error = answer["error"]
            # The kernel's own error says what is missing, too.
            if error is not None and "Too many open files" not in error["message"]:
                self._named(member, error, "")
        self._ask(self.living, "end")
        self._clean(self._ask([poor], "limit", spare=None))
        self._form()
        self._right(self._part(_AFTER))
        failed = any(answer["error"] for answer in found.values())
        return WENT_ON if failed else FINISHED

    def _aggregator_ends(self) -> str:
        fault = self.trial.fault
        self._form()
        number = signal.SIGTERM if fault == "aggregator ended" else signal.SIGKILL
        ended_at = 0.0

        def end() -> None:
            nonlocal ended_at
            self.place.signal_aggregator(number)
            ended_at = time.monotonic()
            if fault == "aggregator killed, another at its port":
                self.place.end_aggregator()
                self.place.aggregator()

        kill = self.trial.kills[0] if self.trial.kills else None
        dead = [self.everyone[place] for place in kill.victims] if kill is not None else []
        found = self._part(CALLS + _SPARE, kill=kill, dead=dead, meanwhile=self._when(end))
        failed = [member for member, answer in found.items() if answer["error"] is not None]
        for member in failed:
            self._named(member, found[member]["error"], r"aggregator|\brank")
        if failed and not dead:
            seen = max(found[member]["at"] for member in failed) - ended_at
            self.found["notice_s"].append(round(seen, 3))
        if fault == "aggregator killed, another at its port" and not failed:
            self._comes_back()
        self.place.end_aggregator()
        self.place.aggregator()
        for each in dead:
            # The group may have failed before the call in which it was to be killed.
            each.process.kill()
            each.process.join()
        if dead:
            self._shrink(dead)
            return WENT_ON
        self._clean(self._ask(self.living, "end"))
        began = time.monotonic()
        self._form()
        self.found["go_on_s"].append(round(time.monotonic() - began, 3))
        self._right(self._part(_AFTER))
        return NAMED if failed else FINISHED

    def _comes_back(self) -> None:
        """Carry out calls until all ranks use the aggregator that has taken the place."""
        until = time.monotonic() + _BACK_S
        while True:
            found = self._part(_AFTER)
            self._right(found)
            if all(answer["fail_backs"] for answer in found.values()):
                return
            if time.monotonic() > until:
                raise _Bad(STUCK, f"the group does not use the new aggregator in {_BACK_S:g} s")

    def _passes(self) -> str:
        """Carry out calls before, under and after a fault that ends."""
        self._form()
        begun: list[float] = []
        with contextlib.ExitStack() as fault:

            def begin() -> None:
                fault.enter_context(self._fault(self.trial.fault))
                begun.append(time.monotonic())

            moment = self._when(begin)

            def begin_and_lift(found: Any) -> None:
                moment(found)
                # Ranks may wait for its end within the first part.
                if begun and time.monotonic() > begun[0] + self.trial.seconds:
                    fault.close()

            found = self._part(CALLS, meanwhile=begin_and_lift)
            if not begun:
                begin()
            if not any(answer["error"] for answer in found.values()):
                found = self._part(CALLS, meanwhile=begin_and_lift)
        failed = [member for member, answer in found.items() if answer["error"] is not None]
        for member in failed:
            self._named(member, found[member]["error"], "")
        if failed:
            return NAMED
        self._right(self._part(_AFTER))
        return FINISHED

    @contextlib.contextmanager
    def _fault(self, name: str) -> Any:
        trial, place = self.trial, self.place
        share = trial.share
        faults: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
            "": contextlib.nullcontext,
            "rank stopped for a while": lambda: place.stopped(trial.choose.choice(self.living).pid),
            "/dev/shm full": lambda: place.full_memory_files("h0"),
            "packets lost": lambda: place.loss(trial.host, share),
            "packets doubled": lambda: place.spoilt(Faults(doubled=share)),
            "packets overtaken": lambda: place.spoilt(Faults(delayed=share)),
            "packets changed": lambda: place.spoilt(Faults(changed=share)),
            "cable pulled for a while": lambda: place.unplugged(trial.host),
            "aggregator's cable pulled for a while": lambda: place.unplugged(trial.host),
            "receives nothing for a while": lambda: place.deaf(trial.host),
            "MTU of an interface shrinks": lambda: place.narrowed(trial.host, 1280),
            "large packets vanish": lambda: place.black_hole(1300),
            "neighbours forgotten": lambda: place.forgotten(trial.choose),
            "storm of a foreign host": lambda: place.storm(trial.choose),
            "aggregator stopped for a while": lambda: place.stopped(place.aggregator_pid),
        }
        with faults[name]():
            yield

    # Steps.

    def _form(self, store: tuple[str, int] | None = None, timeout_s: float = _TIMEOUT_S) -> None:
        options = self.player.options(self.trial.way, self.living)
        options |= {"timeout_s": timeout_s} | ({} if store is None else {"store": store})
        for member, answer in self._ask(self.living, "form", **options).items():
            if answer["error"] is not None:
                raise _Bad(NOT_FORMED, f"process {member.number}: {_told(answer['error'])}")

    def _part(
        self,
        count: int,
        *,
        kill: Kill | None = None,
        dead: Sequence[Member] = (),
        meanwhile: Callable[[Any], None] | None = None,
        dies: bool = True,
        asked: Sequence[Member] = (),
    ) -> Answers:
        """Carry out the trial's next calls, at all or those asked; return what survivors say."""
        trial, first = self.trial, self.next
        self.next += count
        options = {
            "seed": trial.seed,
            "trial": trial.number,
            "first": first,
            "last": first + count,
            "most": trial.most,
        }
        for member in asked or self.living:
            own = {}
            if kill is not None and member in dead:
                own = {"kill": (first + kill.call, kill.nanoseconds)}
            send([member], "run", **options, **own)
        waiting = [each for each in asked or self.living if dies or each not in dead]
        found, died = answers(waiting, _BOUND_S, meanwhile)
        expected = set(dead) if dies else set()
        self._alive(waiting, found, died, expected)
        for member, answer in found.items():
            if answer["wrong"]:
                raise _Bad(WRONG, f"process {member.number}: {answer['wrong']}")
            self.found["judged"] += answer.get("judged", 0)
        if died:
            seen = max(answer["at"] for answer in found.values()) - min(died.values())
            self.found["notice_s"].append(round(max(0.0, seen), 3))
        return found

    def _ask(self, asked: Sequence[Member], name: str, **arguments: Any) -> Answers:
        send(asked, name, **arguments)
        found, died = answers(asked, _BOUND_S)
        self._alive(asked, found, died, set())
        for member, answer in found.items():
            if answer["wrong"]:
                raise _Bad(WRONG, f"process {member.number}: {answer['wrong']}")
        return found

    def _alive(
        self,
        asked: Collection[Member],
        found: Answers,
        died: Mapping[Member, float],
        expected: set[Member],
    ) -> None:
        for member in died.keys() - expected:
            member.process.join(5)
            raise _Bad(
                DIED, f"process {member.number}, {member.process.exitcode}: {member.log()[-3000:]}"
            )
        hung = [each for each in asked if each not in found and each not in died]
        if hung:
            said = {each.number: answer["error"] for each, answer in found.items()}
            stacks = "\n".join(f"process {each.number}: {each.stacks()}" for each in hung)
            raise _Bad(HUNG, f"{[each.number for each in hung]}; others: {said}; {stacks[-6000:]}")

    def _when(self, action: Callable[[], object]) -> Callable[[Any], None]:
        """Return what acts, once, when the first rank is in the call of the trial's moment."""
        call, watched = self.next + self.trial.call, self.living[0]
        acted = False

        def look(_: object) -> None:
            nonlocal acted
            if not acted and watched.progress >= call:
                acted = True
                time.sleep(self.trial.delay_s)
                action()

        return look

    def _shrink(self, dead: Sequence[Member]) -> None:
        for each in dead:
            self.living.remove(each)
        asked = self._ask(self.living, "shrink", dead=[each.number for each in dead])
        for member, answer in asked.items():
            if answer["error"] is not None:
                raise _Bad(STUCK, f"process {member.number}: {_told(answer['error'])}")
        took = max(each["at"] for each in asked.values()) - min(
            each["began"] for each in asked.values()
        )
        self.found["go_on_s"].append(round(took, 3))
        self._right(self._part(_AFTER))

    def _compare_with_fresh(self) -> None:
        if not self.trial.fresh:
            return
        shrunk = self._ask(self.living, "digest")
        self._clean(self._ask(self.living, "end"))
        self._form()
        fresh = self._ask(self.living, "digest")
        digests = {each.get("digest") for each in (*shrunk.values(), *fresh.values())}
        if len(digests) != 1 or None in digests:
            raise _Bad(WRONG, f"sums of a fresh group are others: {shrunk} {fresh}")
        self.found["fresh"] = True

    def _end(self) -> None:
        self._clean(self._ask(self.living, "end"))
        gone = [each for each in self.everyone if not each.process.is_alive()]
        self.player.lose(gone)
        self._nothing_left()

    def _nothing_left(self) -> None:
        until = time.monotonic() + _SETTLED_S
        while True:
            census = self._ask(self.living, "census")
            told = [text for member, has in census.items() if (text := _too_much(member, has))]
            if not told:
                break
            if self.found["errors"] and all(
                _left_by_a_failure(member, has) for member, has in census.items()
            ):
                # A group that has failed is not freed (docs/reliability.md). Others take the places
                # of these processes, so that nothing adds up.
                self.found["kept"] = len(told)
                self.player.lose(self.living)
                return
            if time.monotonic() > until:
                raise _Bad(LEFT, "; ".join(told))
            time.sleep(0.2)
        self.found["census"] = {
            name: max(has[name] for has in census.values())
            for name in ("descriptors", "threads", "rss_kb")
        }
        if self.trial.way == "aggregator":
            self.found["census"]["aggregator_kb"] = self.place.aggregator_kb()

    # Judgements.

    def _clean(self, found: Answers) -> None:
        for member, answer in found.items():
            if answer["error"] is not None:
                raise _Bad(STUCK, f"process {member.number}: {_told(answer['error'])}")

    def _right(self, found: Answers) -> None:
        self._clean(found)

    def _all_named(self, found: Answers, dead: Sequence[Member]) -> None:
        ranks = [str(self.living.index(each)) for each in dead]
        pattern = rf"\brank(\(s\)|s)? (\d+,? (and )?)*({'|'.join(ranks)})\b"
        for member, answer in found.items():
            if answer["error"] is None:
                raise _Bad(NOT_NOTICED, f"process {member.number} misses no rank")
            self._named(member, answer["error"], pattern)

    def _named(self, member: Member, error: Mapping[str, Any] | None, pattern: str) -> None:
        """See that an error is one of Afflux, and that its text has what the pattern finds."""
        if error is None:
            raise _Bad(NOT_NOTICED, f"process {member.number} has no error")
        if not error["named"] or not re.search(pattern, error["message"]):
            raise _Bad(NOT_NAMED, f"process {member.number}: {_told(error)}")
        if error["kind"] not in self.found["errors"]:
            self.found["errors"].append(error["kind"])


def _told(error: Mapping[str, Any]) -> str:
    return f"{error['kind']}: {error['message']}"


def _left_by_a_failure(member: Member, has: Mapping[str, Any]) -> bool:
    """Return whether a process has no more than segments and descriptors of groups that failed."""
    return not _too_much(member, {**has, "segments": 0, "descriptors": 0})


def _too_much(member: Member, has: Mapping[str, Any]) -> str:
    """Say what a process has that it should not have, between two groups."""
    for name in ("segments", "children", "shm"):
        if has[name]:
            return f"process {member.number} has {name}: {has}"
    base = member.baseline = member.baseline or dict(has)
    for name, more in (("descriptors", _MORE_DESCRIPTORS), ("threads", _MORE_THREADS)):
        if has[name] > base[name] + more:
            return f"process {member.number} has more {name}: {dict(has)}, and had {base}"
    return ""
