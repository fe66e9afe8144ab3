"""Where the repository and the helpers of the tests lie."""

from pathlib import Path

HELPERS = Path(__file__).parent
ROOT = HELPERS.parents[1]
