"""What the tests of warmups share."""

import pytest

from multistable.dynamics.warmup import run_warmup


@pytest.fixture
def short_verification(monkeypatch):
    """The true measure after fewer steps: these tests are about what is done with it."""
    monkeypatch.setattr(run_warmup, "FINAL_STABILISATION", 300)


@pytest.fixture
def short_final_measure(monkeypatch):
    """The final measure is not what these tests are about."""
    monkeypatch.setattr(run_warmup, "FINAL_STABILISATION", 100)
