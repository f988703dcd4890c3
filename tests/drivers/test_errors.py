"""Every error survives the way between processes, as multiprocessing and launchers send it."""

import copy
import importlib
import pickle
import pkgutil

import pytest

import afflux
import afflux_drivers
from afflux_drivers.collectives.worker import RanksEnded
from afflux_drivers.errors import AffluxError, Disagreement, RanksMissing, timed_out


def every_class():
    for package in (afflux_drivers, afflux):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            name = module.name.rpartition(".")[2]
            # NCCL's plugin lies beside the modules, and is none.
            if name != "__main__" and name.isidentifier():
                importlib.import_module(module.name)
    found, new = set(), {AffluxError}
    while new:
        found |= new
        new = {below for each in new for below in each.__subclasses__()} - found
    return sorted(found, key=lambda each: each.__qualname__)


def examples():
    special = {
        RanksMissing: lambda kind: kind("late", (2, 3)),
        RanksEnded: lambda kind: kind("gone", (1,)),
        Disagreement: lambda kind: kind(
            "differ", number=3, description="3:sum", fingerprint=7, fingerprints=(7, 8)
        ),
    }
    for kind in every_class():
        yield special.get(kind, lambda kind: kind("a message"))(kind)


@pytest.mark.parametrize("way", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy])
def test_every_error_can_be_copied(way):
    checked = 0
    for error in examples():
        error.operation = "3:sum:float32:4"
        error.extra = (1, 2)
        again = way(error)
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.__dict__ == error.__dict__
        assert isinstance(again, RuntimeError)
        checked += 1
    assert checked >= 15


def test_timeouts_have_the_words_of_gloo():
    assert f" {timed_out(0.001)}" == " Timed out waiting 1ms (timeout 0.001 s)"
