"""The one flat namespace of accelerate's launcher, and what a launch amounts to."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from zerocfg.record import field, record
from zerocfg.run.config import any_unknown
from zerocfg.run.model import UNKNOWN, Setting
from zerocfg.run.stages.options import PREFIXED, options_at

if TYPE_CHECKING:
    from zerocfg.run.model import Failure, Ignored, Origin
    from zerocfg.run.stages.admitted import AdmittedKeys


@record(slots=True)
class Launch:
    """What a launcher does.

    ``launcher``: "deepspeed", "fsdp", "megatron", "multi_gpu", "tpu", "simple", "sagemaker" for accelerate's own;
    "torchrun", "deepspeed-runner", "python" for the others; "none" when nothing tells how the job is started.
    ``num_processes``: ranks in the whole job, as they are really started.
    """

    launcher: str
    num_processes: Setting
    num_machines: Setting
    environment: dict[str, Setting] = field(default_factory=dict)
    mixed_precision: Setting | None = None
    failures: list[Failure] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)
    arguments: Namespace | None = None


@lru_cache(maxsize=16)
def _defaults(releases: AdmittedKeys) -> dict[str, Setting]:
    """What the launcher starts with, the same for all runs of a repository; never changed."""
    origin = releases.origin
    return {name: Setting(option.default, origin) for name, option in options_at(releases).items()}


class Namespace:
    """The launcher's one flat namespace: every value with its origin and what it replaced."""

    def __init__(self, releases: AdmittedKeys) -> None:
        self.releases = releases
        self.options = options_at(releases)
        self.settings = dict(_defaults(releases))
        self.flags: set[str] = set()

    def get(self, name: str) -> Any:
        setting = self.settings.get(name)
        return None if setting is None else setting.value

    def setting(self, name: str) -> Setting:
        return self.settings.get(name) or Setting(None, self.releases.origin)

    def set(self, name: str, value: Any, origin: Origin) -> None:
        old = self.settings.get(name)
        history = (old, *old.overridden) if old and old.origin.kind != "default" else ()
        self.settings[name] = Setting(value, origin, history)

    def shadow(self, name: str, lost: Setting) -> None:
        """Remember a value of the file that a flag beats."""
        old = self.settings[name]
        self.settings[name] = Setting(old.value, old.origin, (*old.overridden, lost))


def spelled(section: str, key: str) -> str:
    """The name in the namespace of a section's key: three sections get a prefix where it is missing."""
    key = str(key)
    known, prefix = PREFIXED.get(section, ("", ""))
    return key if key.startswith(known) else prefix + key


def whole(value: Any) -> bool:
    """An int that is no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def ranks(arguments: Namespace) -> Any:
    """num_processes // num_machines * num_machines: what is started when every machine gets the same share."""
    processes, machines = arguments.get("num_processes"), arguments.get("num_machines")
    if any_unknown(processes, machines):
        return UNKNOWN
    if whole(processes) and whole(machines) and machines >= 1:
        return processes // machines * machines
    if isinstance(processes, str):
        try:
            return int(processes)
        except ValueError:
            return UNKNOWN
    return UNKNOWN
