"""Schemes by a word: what they mean, and what is wrong with others."""

import re
import sys
from typing import Any
from unittest.mock import Mock

import pytest

import afflux
from afflux import scheme_words
from afflux.group.settings.variables import SettingsError
from afflux.schemes.compressor import Compressor, Selector


def test_every_word_makes_what_it_says_by_itself():
    for word, make in scheme_words.COMPRESSORS.items():
        made = make()
        assert isinstance(made, Compressor) and made.word == word
        assert afflux.hooks.scheme(word).density == made.density
    for word, choose in scheme_words.SELECTORS.items():
        chosen = choose()
        assert isinstance(chosen, Selector) and chosen.word == word
        assert afflux.hooks.scheme(f"{word} + float32").density == chosen.density


def test_options_and_warm_up():
    scheme = afflux.hooks.scheme("GTopK:density=0.25 + momentum + warmup:densities=0.5/0.3,steps=2")
    found = []
    for step in range(6):
        scheme.steps = step
        found.append(scheme.density)
    assert found == [0.5, 0.5, 0.3, 0.3, 0.25, 0.25]
    assert scheme.compressor.density == 0.25


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("gtopkk", "there is no 'gtopkk'; known are"),
        ("", "there is no ''"),
        ("powersgd", "torch has it, by matrices"),
        ("randomk + threshold", "threshold selects elements, and must be first"),
        ("randomk + gtopk", "gtopk selects elements itself"),
        ("threshold + momentum", "or as many as their values have it"),
        ("threshold:bound=0", "bound is 0.0: it must be above 0"),
        ("blocktopk:blocks=0", "blocks is 0: it must be at least 1"),
        ("feedback", "no part says what is summed"),
        ("gtopk:densty=1", "gtopk has no option 'densty'; it has density"),
        ("gtopk:density=much", "density='much' must be a number"),
        ("gtopk:density=0", "density is 0.0: it must be above 0"),
        ("gtopk + float32", "float32 and gtopk are two forms"),
        ("float32 + momentum", "float32 gives all elements"),
        ("gtopk + momentum + feedback:on=off", "without feedback"),
        ("gtopk + feedback:on=yes", "on='yes' must be on or off"),
        ("gtopk + warmup", "warmup lacks densities, steps"),
        ("gtopk + warmup:densities=2,steps=1", "density is 2.0"),
        ("gtopk + warmup:densities=0.5,steps=0", "steps is 0"),
        ("gtopk + momentum + momentum:factor=0.5", "momentum stands twice"),
        ("gtopk:density=1,density=0.5", "gtopk has density twice"),
        ("randomk:seed=9999999999", "seed is 9999999999: it must be from 0"),
    ],
)
def test_what_there_is_not_is_named_with_a_reason(text, reason):
    with pytest.raises(ValueError, match=re.escape(f"scheme {text!r}: ")) as caught:
        afflux.hooks.scheme(text)
    assert reason in str(caught.value)


def test_the_environment_chooses(monkeypatch):
    ddp: Any = Mock(process_group=None)
    assert afflux.hooks.register(ddp) is None
    ddp.register_comm_hook.assert_not_called()
    monkeypatch.setenv("AFFLUX_SCHEME", "gtopk:density=0.5")
    scheme = afflux.hooks.register(ddp)
    assert scheme is not None and scheme.density == 0.5
    ddp.register_comm_hook.assert_called_once_with(scheme, afflux.hooks.scheme_hook)
    scheme = afflux.hooks.register(ddp, "float32")
    assert scheme is not None and scheme.compressor.word == "float32"
    monkeypatch.setenv("AFFLUX_SCHEME", "fastest")
    with pytest.raises(SettingsError, match="AFFLUX_SCHEME: scheme 'fastest'"):
        afflux.hooks.register(ddp)


MODULE = """
import torch.distributed as dist
import afflux

class Signs(afflux.hooks.Compressor):
    word = "signs"
    def __init__(self, scale: float = 1.0, kind: str = "plain", loose=None):
        self.scale, self.kind = scale, kind
    def take(self, tensor, average, group):
        average.copy_(tensor.sign() * self.scale)
        tensor.sub_(average)
        dist.all_reduce(average, dist.ReduceOp.AVG, group)
    def volume(self, elements, ranks):
        return elements * 4.0

def nothing():
    return None

constant = 7
"""


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """Return what installs a distribution that registers words, for this test."""

    def install(lines, name="strange-schemes"):
        folder = tmp_path / name
        info = folder / f"{name.replace('-', '_')}-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text("[afflux.schemes]\n" + "\n".join(lines) + "\n")
        (folder / "strange_schemes.py").write_text(MODULE)
        monkeypatch.syspath_prepend(folder)

    yield install
    sys.modules.pop("strange_schemes", None)


def test_a_word_of_another_package(distribution, monkeypatch):
    distribution(["Signs = strange_schemes:Signs"])
    ddp: Any = Mock(process_group=None)
    monkeypatch.setenv("AFFLUX_SCHEME", "signs:scale=0.5,kind=Other")
    scheme = afflux.hooks.register(ddp)
    assert scheme is not None
    assert (scheme.compressor.scale, scheme.compressor.kind) == (0.5, "other")
    # Behind a selector, and in the list of what there is.
    assert afflux.hooks.scheme("blocktopk + signs").compressor.word == "blocktopk + signs"
    with pytest.raises(ValueError, match=r"warmup, signs \(of strange-schemes 1\.2\)$"):
        afflux.hooks.scheme("sings")


@pytest.mark.parametrize(
    ("line", "text", "reason"),
    [
        ("gtopk = strange_schemes:Signs", "gtopk", "gtopk is Afflux's own word, and {} registers"),
        ("momentum = strange_schemes:Signs", "topk + momentum", "momentum is Afflux's own word"),
        (
            "signs = nowhere:Signs",
            "signs",
            "signs of {} cannot be loaded from 'nowhere:Signs': Mod",
        ),
        ("signs = strange_schemes:Sings", "signs", "cannot be loaded from 'strange_schemes:Sings'"),
        ("signs = strange_schemes:constant", "signs", "signs of {} is 7, which cannot be called"),
        ("signs = strange_schemes:nothing", "signs", "signs makes None, which is neither"),
        ("signs = strange_schemes:Signs", "signs:loose=1", "must annotate its option loose"),
        ("signs = strange_schemes:Signs", "signs:size=1", "no option 'size'; it has scale, kind"),
    ],
)
def test_a_registration_that_is_wrong_is_named(distribution, line, text, reason):
    distribution([line])
    with pytest.raises(ValueError, match=re.escape(f"scheme {text!r}: ")) as caught:
        afflux.hooks.scheme(text)
    assert reason.format("strange-schemes 1.2") in str(caught.value)
    # What is wrong with one word leaves others alone.
    assert afflux.hooks.scheme("bf16").compressor.word == "bf16"


def test_the_cause_of_a_failed_import_is_kept(distribution, monkeypatch):
    distribution(["signs = nowhere:Signs"])
    monkeypatch.setenv("AFFLUX_SCHEME", "signs")
    with pytest.raises(SettingsError, match="AFFLUX_SCHEME: scheme 'signs'") as caught:
        afflux.hooks.register(Mock(process_group=None))
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_two_distributions_with_one_word_are_both_named(distribution):
    distribution(["signs = strange_schemes:Signs"])
    distribution(["signs = strange_schemes:Signs"], "more-schemes")
    with pytest.raises(ValueError, match=r"more-schemes 1\.2 and strange-schemes 1\.2 register"):
        afflux.hooks.scheme("signs")
