"""The criteria for trainings with schemes; the trainings themselves are benchmarks."""

import pytest
import torch

from afflux.scheme_words import COMPRESSORS, SELECTORS, scheme
from benchmarks.training import to_loss_tables
from benchmarks.training.plans import bare, runs
from benchmarks.training.scheme_tables import TABLES, judged
from benchmarks.training.smoothing import first_at, last_mean, smooth
from benchmarks.training.tasks import TASKS


def row(end, name="", seed=1, failed="", losses=(3.0,) * 40):
    return {
        **{"bench": "convergence", "task": "digits", "scheme": name, "seed": seed, "steps": 40},
        **{"failed": failed, "losses": list(losses), "held_out": [[0, 2.0], [40, end]]},
    }


def test_losses_are_means_of_the_steps_before():
    losses = [float(number) for number in range(40, 0, -1)]
    assert smooth(losses)[:3] == [40, 39.5, 39]
    assert smooth(losses)[-1] == last_mean(losses) == 10.5
    assert first_at(losses, 10.5) == 40
    # A window that is not whole does not count.
    assert first_at(losses, 39.5) == 20
    assert first_at(losses, 10.0) is None


def test_a_training_is_judged_by_how_dense_trainings_differ():
    flat = [[level] * 40 for level in (3.0, 3.1, 3.2)]
    dense = [row(end, losses=losses) for end, losses in zip((0.10, 0.12, 0.14), flat, strict=True)]
    assert judged([row(0.17)], dense) == "as dense"
    assert judged([row(0.20)], dense) == "behind"
    assert judged([row(0.17), row(0.20)], dense) == "behind"
    assert judged([row(0.17, losses=[3.5] * 40)], dense) == "behind"
    assert judged([row(1.5)], dense) == "**does not converge**"
    assert judged([row(0.1), row(2.0, failed="broke")], dense) == "**diverged**: broke"


def test_tables_show_a_training_that_does_not_converge():
    falling = [3.0 - step / 20 for step in range(40)]
    rows = [row(0.1, losses=falling), row(0.12, seed=2, losses=falling), row(1.9, "topk")]
    rows.append(row(0.1, "float32", losses=falling) | {"sent_bytes": 4e6, "volume_bytes": 5e6})
    lines = TABLES["digits"](rows).splitlines()
    assert "1, 2" in lines[2]
    assert "does not converge" in lines[3]
    assert "| as dense | 4,000 KB | – | 1.0 | 5,000 KB |" in lines[4]


def test_every_word_is_in_a_training_and_every_scheme_can_be_made():
    planned = runs()
    assert {*COMPRESSORS, *SELECTORS} <= set().union(*(bare(run.scheme) for run in planned))
    assert {run.task for run in planned} == set(TASKS)
    for text in {run.scheme for run in planned if run.scheme}:
        assert scheme(text).compressor.volume(1000, 4) > 0
    chosen = runs(["lstm"], ["gtopk"])
    assert {*map(str, (run.scheme for run in chosen))} >= {"", "float32", "gtopk:density=0.1"}
    assert all(bare(run.scheme) & {"", "float32", "gtopk"} for run in chosen)


def test_the_times_to_a_loss_are_by_that_of_gloo():
    about = {"bench": "to_loss", "task": "lstm", "rate_gbit": 0.1, "scheme": "", "failed": ""}
    about |= {
        "target": 5.9,
        "loss": 5.9,
        "steps": 100,
        "step_s": 0.5,
        "cpu_s": 0.1,
        "reached": True,
    }
    rows = [
        about | {"way": "udp", "scheme": "topk", "steps": 300, "reached": False, "loss": 6.5},
        about | {"way": "udp", "seconds": 25.0},
        about | {"way": "gloo", "seconds": 50.0},
    ]
    lines = to_loss_tables.table(rows).splitlines()
    assert "| 100 Mbit/s | Gloo | everything | 100 | 50.0 s | 1.00 |" in lines[2]
    assert "| Afflux, aggregator | everything | 100 | 25.0 s | 2.00 |" in lines[3]
    assert "| `topk` | not in 300 steps: 6.5 | – |" in lines[4]


@pytest.mark.parametrize("name", TASKS)
def test_ranks_have_batches_of_their_own_the_same_each_time(name):
    task = TASKS[name]
    first, again, other = (task.batch(1, 5, rank, 4) for rank in (0, 0, 1))
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[0], other[0])
    torch.manual_seed(1)
    assert task.model()(*first).requires_grad
