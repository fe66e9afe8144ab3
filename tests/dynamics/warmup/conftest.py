"""What the tests of warmups share."""

import pytest

from multistable.dynamics.warmup import run_warmup


@pytest.fixture
def short_verification(monkeypatch):
    """The true measure after fewer steps: these tests are about what is done with it."""
    monkeypatch.setattr(run_warmup, "FINAL_STABILISATION", 300)
