"""The version: `pyproject.toml` states it, and everything that repeats it says the same."""

import re
import tomllib

import afflux
from afflux_hdl.contract.registers import RELEASE
from docs.generate.source_tree import ROOT

ASSIGNED = re.compile(r"^__version__\s*=", re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_package_has_the_version_that_the_project_states() -> None:
    assert afflux.__version__ == PROJECT["version"], "run: make setup"


def test_no_module_states_a_version_of_its_own() -> None:
    for root in ("hdl", "drivers", "sim", "host"):
        for path in (ROOT / root).rglob("*.py"):
            assert not ASSIGNED.search(path.read_text(encoding="utf-8")), path


def test_the_gateware_is_of_the_same_release() -> None:
    octets = [str(octet) for octet in RELEASE.to_bytes(3, "big")]
    assert ".".join(octets) == PROJECT["version"]


def test_a_citation_is_of_the_same_release() -> None:
    assert f"\nversion: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_changelog_has_the_release() -> None:
    assert PROJECT["version"] in (ROOT / "CHANGELOG.md").read_text()
