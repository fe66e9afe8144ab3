"""The option ``--where``, which chooses runs of experiments by their settings."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

from multistable.experiments.experiment import Experiment
from multistable.experiments.scales import Scale, comparable, settings_in


def conditions(where: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Each setting with its values, from texts such as ``T=300,600``; the values of one setting add up."""
    found: dict[str, tuple[str, ...]] = {}
    for text in where:
        setting, _, listed = (part.strip() for part in text.partition("="))
        values = tuple(value.strip() for value in listed.split(","))
        if not (setting and all(values)):
            raise ValueError(
                f"--where must be SETTING=VALUE or SETTING=VALUE,VALUE, such as T=300 or cell=gru,lstm, got {text!r}"
            )
        found[setting] = tuple(dict.fromkeys((*found.get(setting, ()), *values)))
    return found


def check_conditions(wanted: Sequence[Experiment], scale: Scale) -> None:
    """Refuse a condition that no run meets, and conditions that no run meets together."""
    if not scale.conditions:
        return
    names = ", ".join(experiment.name for experiment in wanted) if len(wanted) < 4 else f"the {len(wanted)} experiments"
    everything = replace(scale, conditions={})
    runs = [settings_in(config) for experiment in wanted for config in experiment.at(everything)]
    known = list(dict.fromkeys(name for settings in runs for name in settings))
    for setting, values in scale.conditions.items():
        if setting not in known:
            close = get_close_matches(setting, known, n=1)
            meant = f" (did you mean {close[0]}?)" if close else ""
            raise ValueError(f"--where must name one of {', '.join(known)}, got {setting!r}{meant}")
        there = {comparable(settings[setting]): str(settings[setting]) for settings in runs if setting in settings}
        for value in values:
            if comparable(value) not in there:
                accepted = f"one of {', '.join(there.values())} for {names} at the scale {scale.name}"
                raise ValueError(f"--where {setting} must be {accepted}, got {value!r}")
    if not any(experiment.at(scale) for experiment in wanted):
        raise ValueError(f"--where leaves no run of {names}, got {', '.join(scale.where)}")
