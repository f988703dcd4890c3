"""Engines and groups against which tests of several modules run."""

import pytest


@pytest.fixture(params=["shm", "soft"])
def engine(request, monkeypatch):
    """Run a test once in shared memory and once through the software engine's packets."""
    monkeypatch.setenv("AFFLUX_AGGREGATOR", f"{request.param}://")
    return request.param
