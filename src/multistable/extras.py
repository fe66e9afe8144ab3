"""Packages that only some things need, and how to install them."""

EXTRAS = {
    "gymnasium": "rl",
    "jinja2": "report",
    "matplotlib": "report",
    "numba": "cpu",
    "optuna": "optuna",
    "ray": "ray",
    "tensorboard": "tensorboard",
}
"""The extra of ``pyproject.toml`` that each is in."""


def how_to_install(package: str) -> str:
    """The package alone, or all of its extra: the library itself is installed from a checkout."""
    return f'pip install {package}, or in a checkout of multistable pip install ".[{EXTRAS[package]}]"'


def missing(what: str, package: str) -> ModuleNotFoundError:
    """The error of what needs a package that is not installed."""
    return ModuleNotFoundError(f"{what} needs the package {package}: {how_to_install(package)}", name=package)
