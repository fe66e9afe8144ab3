"""Optional packages, and how to install them."""

EXTRAS = {
    "gymnasium": "rl",
    "jinja2": "report",
    "lightning": "lightning",
    "llvmlite": "cpu",
    "matplotlib": "report",
    "optuna": "optuna",
    "ray": "ray",
    "sb3-contrib": "sb3",
    "tensorboard": "tensorboard",
    "transformers": "transformers",
}
"""The extra of ``pyproject.toml`` that each package is in."""


def how_to_install(package: str) -> str:
    """The commands that install a package alone, or its whole extra from a checkout."""
    return f'pip install {package}, or in a checkout of multistable pip install ".[{EXTRAS[package]}]"'


def missing(what: str, package: str) -> ModuleNotFoundError:
    """The error for a feature, ``what``, whose package is not installed."""
    return ModuleNotFoundError(f"{what} needs the package {package}: {how_to_install(package)}", name=package)
