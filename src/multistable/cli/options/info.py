"""The options of ``multistable info``: none."""

from multistable.cli.errors import reporting


def command() -> None:
    """Show versions, devices, and which time loop advances each cell on each device."""
    with reporting():
        from multistable.cli.bodies import info

        info.run()
