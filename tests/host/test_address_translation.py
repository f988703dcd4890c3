"""Workers whose addresses are translated on the way, as by a router between two networks."""

import torch
import torch.distributed as dist

import afflux
from afflux.group.forming import plans
from tests.support.host.aggregators import aggregator
from tests.support.host.network import network
from tests.support.host.ranks import run_ranks, values
from tests.support.host.translator import Translator
from tests.support.host.warnings_heard import Recording

DEFAULT = {"AFFLUX_AGGREGATOR": "gloo://"}


def reduce_some(rank, group):
    generator = torch.Generator().manual_seed(rank)
    results = []
    for count in (1, 3000, 40_000):
        tensor = torch.randn(count, generator=generator)
        dist.all_reduce(tensor, group=group)
        results.append(tensor.view(torch.uint8).numpy().tobytes())
    return results


def through(rank, size, url, rebinds, options):
    group = dist.new_group(pg_options=afflux.Options(aggregator=url, **options))
    results = reduce_some(rank, group)
    for _ in range(rebinds):
        dist.barrier()
        if rank == 0:
            Translator.rebind(url)
        dist.barrier()
        results += reduce_some(rank, group)
    dist.destroy_process_group(group)
    return results


def test_many_workers_have_one_address():
    with aggregator() as url, Translator(url) as translator:
        alone = values(run_ranks(through, 3, url, 0, {}, environment=DEFAULT))
        behind = values(run_ranks(through, 3, translator.url, 0, {}, environment=DEFAULT))
        assert len(translator.ports) == 3
    assert behind == alone
    assert {tuple(each) for each in behind} == {tuple(alone[0])}


def test_a_translation_that_changes_in_the_middle_costs_time_only():
    """The aggregator answers nobody whom it does not know: so the workers join again.

    Its operator has allowed that.
    """
    with aggregator(may_move=True) as url, Translator(url) as translator:
        alone = values(run_ranks(through, 2, url, 2, {}, environment=DEFAULT))
        behind = values(run_ranks(through, 2, translator.url, 2, {}, environment=DEFAULT))
        assert len(set(translator.ports)) >= 4
    assert behind == alone


def automatic(rank, size, hidden):
    plans._warn_of_gloo.cache_clear()
    recording = Recording()
    options = afflux.Options(
        aggregator="auto", interface="192.168.9.1" if rank == hidden else "eth0"
    )
    group = dist.new_group(pg_options=options)
    tensor = torch.full((1000,), rank + 1.0)
    dist.all_reduce(tensor, group=group)
    return tensor[7].item(), afflux.statistics(group), recording.messages


def beside_a_private_address(hidden):
    """Return what two ranks have of which one knows only an address that leads nowhere."""
    with network(hosts=2, aggregators=0, gbit=None) as made:
        private = "address add 192.168.9.1/32 dev lo"
        done = made.hosts[hidden].run("/sbin/ip", *private.split())
        assert done.returncode == 0, done.stderr
        environment = DEFAULT | {"AFFLUX_CONNECT_TIMEOUT": "2"}
        outcomes = values(
            run_ranks(automatic, 2, hidden, hosts=made.hosts, environment=environment)
        )
    assert [total for total, _, _ in outcomes] == [3.0, 3.0]
    return outcomes


def test_a_rank_behind_a_translation_connects_to_lower_ones():
    for _, found, messages in beside_a_private_address(1):
        assert found["topology"] == "streams"
        # It cannot be called, so the kernel's word on its connections must do.
        assert all("cannot be reached by TCP" in text for text in messages)


def test_a_rank_behind_a_translation_that_others_must_reach_leaves_gloo():
    for rank, (_, found, messages) in enumerate(beside_a_private_address(0)):
        assert found["topology"] == "gloo"
        told = [text for text in messages if "go through Gloo" in text]
        assert len(told) == (rank == 0)
        for text in (*told, found["topology_reason"]):
            assert "rank 0 waited for connections with rank 1 at 10.77.0.2:" in text
