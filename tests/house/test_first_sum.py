"""A first sum and its commands on two hosts are the same wherever they stand.

tests/host/test_readme.py runs them.
"""

import ast
import re

import pytest

from tests.support.checkout import ROOT

README = "README.md"
FIRST = "docs/howto/first_sum.md"
HOSTS = "docs/howto/two_hosts.md"
EXAMPLE = "examples/two_hosts.py"


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def listings(text: str, language: str) -> list[str]:
    """Return the listings in a language; "" are sessions and output."""
    fences = re.split(r"^```(\w*)\n", text, flags=re.MULTILINE)[1:]
    # Every other fence closes a listing.
    return [body for kind, body in zip(fences[::4], fences[1::4], strict=True) if kind == language]


def of_readme(text: str) -> list[str]:
    """Return the commands on two hosts, as typed at each prompt, but with an address."""
    [session] = [each for each in listings(text, "") if "host-b$" in each]
    lines = re.sub(r" *\\\n *", " ", session).splitlines()
    return [re.sub(r"^host-\w\$ | &$", "", line).replace("host-a", "10.0.0.1") for line in lines]


def of_page(text: str) -> list[str]:
    return "".join(listings(text, "sh")).splitlines()


def of_example(text: str) -> list[str]:
    """Return the first host's commands, written as the README writes them."""
    described = ast.get_docstring(ast.parse(text)) or ""
    secret, serve, variables, start = re.findall(r"^    (.*)", described, re.MULTILINE)[:4]
    start = f"{variables.removeprefix('export ')} {start}".replace("10.0.0.1:4700", "10.0.0.1")
    return [secret, serve.removesuffix(" &"), start.replace(EXAMPLE, "first_sum.py")]


def test_the_script_and_what_it_prints() -> None:
    readme, page = text_of(README), text_of(FIRST)
    assert listings(page, "python") == listings(readme, "python")
    [session] = [each for each in listings(readme, "") if each.startswith("$ torchrun")]
    (first, shown), (_, simulated) = re.findall(r"^\$ ([^#\n]*).*\n((?:rank .*\n)+)", session, re.M)
    _, start, others = listings(page, "sh")
    assert start == f"{first}\n"
    assert listings(page, "") == [shown]
    assert simulated == shown.replace("shm", "rtl")
    assert f"AFFLUX_AGGREGATOR=rtl:// {start.strip()} " in others
    assert listings(text_of(HOSTS), "") == [shown.splitlines()[0].replace("shm", "soft") + "\n"]


def test_the_commands_on_two_hosts() -> None:
    commands = of_readme(text_of(README))
    assert len(commands) == 4
    assert of_page(text_of(HOSTS)) == commands
    assert of_example(text_of(EXAMPLE)) == commands[:3]


@pytest.mark.parametrize(
    ("name", "commands"), [(README, of_readme), (HOSTS, of_page), (EXAMPLE, of_example)]
)
def test_another_option_is_seen(name, commands) -> None:
    text = text_of(name)
    assert commands(text.replace("--node-rank 0", "--node-rank 2")) != commands(text)
