"""What accelerate's launcher takes of the sections of its config file into its one flat namespace, by release.

Follows the loop over the file's keys in accelerate/commands/launch.py (`_validate_launch_command`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zerocfg.run.model import UNKNOWN, Origin, Setting
from zerocfg.run.stages.namespace import spelled
from zerocfg.run.stages.options import SECTIONS

if TYPE_CHECKING:
    from zerocfg.run.stages.admitted import AdmittedKeys
    from zerocfg.run.stages.namespace import Namespace

BY_ITSELF_SINCE = "1.5.0"
"""The release that takes each section by itself, where it is a mapping, and prefers what the launch line says. Those
before walk through all sections, whatever stands there, and let their values beat the launch line."""
FP8_SINCE = "1.4.0"
"""The release that takes anything of `fp8_config`."""
_TAKEN_SINCE = {"fp8_config": FP8_SINCE}
DYNAMO_PREFIX_SINCE = "1.14.0"
"""The release that puts the prefix before a key of `dynamo_config` that lacks it."""


def flag_wins(releases: AdmittedKeys) -> bool:
    """Whether an option of the launch line beats the same key of a section in every admitted release."""
    return releases.all_from(BY_ITSELF_SINCE)


def file_wins(section: str, releases: AdmittedKeys) -> bool:
    """Whether the keys of a section beat the launch line in an admitted release, and every one takes that section."""
    since = _TAKEN_SINCE.get(section)
    return not flag_wins(releases) and (since is None or releases.all_from(since))


def stumbled_over(data: dict[str, Any], releases: AdmittedKeys) -> str | None:
    """A section at which no admitted release starts, because something else than a mapping stands there."""
    if releases.any_from(BY_ITSELF_SINCE):
        return None
    for name in (*SECTIONS, "ipex_config", "tp_config"):
        walked = releases.knows(f"cluster.{name}") and (name != "fp8_config" or releases.any_from(FP8_SINCE))
        section = data.get(name)
        if walked and not isinstance(section, dict) and section not in (None, "", []) and section is not UNKNOWN:
            return name
    return None


def merge(arguments: Namespace, section: str, keys: dict[str, Any], place: Callable[..., Origin]) -> None:
    """The keys of one section, as all admitted releases take them; UNKNOWN where they do not agree."""
    releases = arguments.releases
    if not releases.any_from(BY_ITSELF_SINCE if section not in SECTIONS else _TAKEN_SINCE.get(section, "0")):
        return
    for key, value in keys.items():
        name = target(section, str(key), releases)
        since = DYNAMO_PREFIX_SINCE if name != str(key) and section == "dynamo_config" else _TAKEN_SINCE.get(section)
        known = since is None or releases.all_from(since)
        _put(arguments, name, value if known else UNKNOWN, place(section, key))


def target(section: str, key: str, releases: AdmittedKeys) -> str:
    """The name in the namespace of a section's key."""
    if section == "dynamo_config" and not releases.any_from(DYNAMO_PREFIX_SINCE):
        return key
    return spelled(section, key)


def _put(arguments: Namespace, name: str, value: Any, origin: Origin) -> None:
    written = arguments.get(name)
    if name not in arguments.flags or not arguments.releases.any_from(BY_ITSELF_SINCE):
        arguments.set(name, value, origin)
    elif flag_wins(arguments.releases) or value == written:
        arguments.shadow(name, Setting(value, origin))
    else:
        arguments.set(name, UNKNOWN, origin)
