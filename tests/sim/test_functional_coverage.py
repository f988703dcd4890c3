"""The functional-coverage model itself: its rules, and a little traffic that reaches much of it."""

import pytest

from tests.checks.engine_checks import BUILDS, open_engine
from tests.coverage.bins import Cross, Exclusion, Model
from tests.coverage.engine_bins import CROSSES, DIMENSIONS, engine_model
from tests.coverage.functional import cover

ODD = Exclusion("two of a kind are one", lambda bin_: bin_["a"] == "1" and bin_["b"] == "2")


def small_model() -> Model:
    return Model({"a": ("1", "2"), "b": ("1", "2", "3")}, [Cross("a × b", ("a", "b"), (ODD,))])


def test_bins_are_counted_but_for_those_that_cannot_be() -> None:
    model = small_model()
    model.add({"a": "2", "b": "1"})
    model.add({"a": "2", "b": "1"})
    # Nothing that this cross looks at.
    model.add({"a": "1"})
    figures = model.figures()
    assert (figures["bins"], figures["reached"], figures["share"]) == (5, 1, 0.2)
    report = model.report(model.crosses[0])
    assert report.missed == ["1 × 1", "1 × 3", "2 × 2", "2 × 3"]
    assert report.excluded == {"two of a kind are one": 1}


def test_a_rule_that_is_wrong_is_seen() -> None:
    model = small_model()
    model.add({"a": "1", "b": "2"})
    assert model.figures()["contradicted"] == ["1 × 2: two of a kind are one"]
    assert model.figures()["reached"] == 0


def test_a_value_that_there_is_not_is_an_error() -> None:
    with pytest.raises(ValueError, match="dimension 'a' has no value '3'"):
        small_model().add({"a": "3"})


def test_every_dimension_is_in_a_cross_and_every_rule_excludes_something() -> None:
    assert {name for cross in CROSSES for name in cross.dimensions} == set(DIMENSIONS)
    model = engine_model()
    for cross in CROSSES:
        report = model.report(cross)
        assert len(report.excluded) == len(cross.exclusions), cross.name
        assert report.bins == len(report.missed) > 0


@pytest.mark.slow
def test_a_little_traffic_reaches_much() -> None:
    """And every frame is counted as the golden model counts it; nothing that cannot be happens."""
    model = engine_model()
    with open_engine(512) as engine:
        cover(engine, model, BUILDS[512], 512, frames=1000, seed=3)
    figures = model.figures()
    assert figures["contradicted"] == []
    assert figures["share"] > 0.35, figures["share"]
