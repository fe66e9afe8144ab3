"""Commands that are interrupted while they run."""

import os
import signal
import subprocess
import sys

PROGRAM = "from multistable.cli import main; main()"


def interrupted(*arguments, at, number=signal.SIGINT):
    """Run a command, and send it a signal when it prints ``at``. Returns its exit code and its standard error."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
    )
    with process:
        reached = any(at in line for line in process.stdout)
        if reached:
            process.send_signal(number)
        _, errors = process.communicate()
    assert reached, f"it ended with {process.returncode} before it said {at!r}: {errors}"
    return process.returncode, errors
