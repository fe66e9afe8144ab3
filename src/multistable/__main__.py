"""``python -m multistable``, where the console script is not installed."""

from multistable.cli import main

main()
