"""What a launcher makes of its config file and its flags: the processes it starts and the variables it exports.

Follows accelerate/commands/launch.py (`_validate_launch_command`, `launch_command`); the variables themselves are in
:mod:`zerocfg.run.stages.exports`, the other launchers in :mod:`zerocfg.run.stages.process_counts`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from zerocfg.run.config import describe, in_file
from zerocfg.run.model import (
    UNKNOWN,
    Failure,
    Ignored,
    Origin,
    Run,
    Setting,
    SourceFile,
    lies_outside,
    may_be_quoted,
)
from zerocfg.run.stages import sections
from zerocfg.run.stages.admitted import admitted_of
from zerocfg.run.stages.exports import start
from zerocfg.run.stages.ignored_values import beaten_options, report_ignored
from zerocfg.run.stages.namespace import Launch, Namespace
from zerocfg.run.stages.options import (
    ALIASES,
    DISTRIBUTED_TYPES,
    MULTI_DEVICE,
    SECTIONS,
    TOP_LEVEL,
)

if TYPE_CHECKING:
    from zerocfg.source.node import Path


COUNT_ASKED_SINCE = "0.34.0"
"""The release that asks for `num_processes` where its file says -1, or nothing."""


class StopLaunchError(Exception):
    """The launcher fails here; nothing after it can be predicted."""


def accelerate_launch(run: Run) -> Launch:
    """`accelerate launch` with the run's config file (if any) and flags."""
    reader = _Reader(run)
    with suppress(StopLaunchError):
        reader.read()
    return reader.launch


class _Reader:
    def __init__(self, run: Run) -> None:
        self.file: SourceFile | None = run.accelerate
        self.flags = run.flags
        self.releases = admitted_of(run, "accelerate")
        self.forked = "accelerate" in run.forked
        self.arguments = Namespace(self.releases)
        outside = self.file is not None and lies_outside(self.file)
        why = "its config lies outside" if outside else "the launcher stops before it starts a process"
        unknown = Setting(UNKNOWN, Origin("computed", why))
        self.launch = Launch("none", unknown, unknown, arguments=self.arguments)

    # -- reporting ---------------------------------------------------------------------------------------------

    def fail(self, kind: str, message: str, *places: Origin) -> None:
        self.launch.failures.append(Failure(kind, "launch", message, places))

    def ignore(self, kind: str, message: str, path: Path, used: Setting | None = None) -> None:
        self.launch.ignored.append(Ignored(kind, message, in_file(self.file, path), used))

    def place(self, *path: str) -> Origin:
        return in_file(self.file, path)

    # -- the stages --------------------------------------------------------------------------------------------

    def read(self) -> None:
        self._read_flags()
        self._check_paradigms()
        if self.file is None:
            self._without_file()
        else:
            data = self._load()
            self._choose_paradigm(data)
            self._check_gpu_ids(data)
            self._merge(data)
            self._after_merge(data)
            self._report_dead(data)
        self._start()

    def _read_flags(self) -> None:
        for written, setting in self.flags.items():
            name = written.lstrip("-").replace("-", "_")
            if name == "no_tpu_cluster":
                name, setting = "tpu_use_cluster", Setting(False, setting.origin)
            name = ALIASES.get(name, name)
            option = self.arguments.options.get(name)
            if option is None:
                self.fail("flag-unknown", f"`accelerate launch` knows no option --{name}", setting.origin)
                continue
            try:
                value = _from_text(option.kind, setting.value)
            except ValueError:
                self.fail("flag-type", f"--{name} {setting.value} is no {option.kind}", setting.origin)
                value = UNKNOWN
            if option.choices and value is not UNKNOWN and value not in option.choices:
                words = ", ".join(option.choices)
                self.fail("flag-choice", f"--{name} {value} is none of {words}", setting.origin)
            self.arguments.set(name, value, setting.origin)
            self.arguments.flags.add(name)

    def _check_paradigms(self) -> None:
        get = self.arguments.get
        chosen = [name for name in ("multi_gpu", "cpu", "tpu", "use_deepspeed", "use_fsdp") if get(name) is True]
        if len(chosen) > 1:
            flags = ", ".join(f"--{name}" for name in chosen)
            self.fail(
                "flags-exclusive",
                f"only one of {flags} may be given",
                self.arguments.setting(chosen[0]).origin,
            )
        processes = self.arguments.setting("num_processes")
        if get("multi_gpu") is True and isinstance(processes.value, int) and processes.value < 2:
            self.fail("multi-gpu-processes", "--multi_gpu needs at least 2 processes", processes.origin)
        if get("use_parallelism_config") is True and (get("use_fsdp") is not True or get("fsdp_version") == 1):
            self.fail(
                "parallelism-without-fsdp2",
                "--use_parallelism_config needs --use_fsdp with --fsdp_version=2",
                self.arguments.setting("use_parallelism_config").origin,
            )

    def _without_file(self) -> None:
        arguments = self.arguments
        default = self.releases.origin
        if arguments.get("num_processes") is None:
            arguments.set("num_processes", UNKNOWN, Origin("default", "the number of accelerators of the machine"))
        for name, value in (
            ("debug", False),
            ("num_machines", 1),
            ("mixed_precision", "no"),
            ("dynamo_backend", "no"),
        ):
            if arguments.get(name) is None:
                arguments.settings[name] = Setting(value, default)
        arguments.settings["use_cpu"] = arguments.setting("cpu")

    def _load(self) -> dict[str, Any]:
        data = self.file.data() if self.file else None
        if not isinstance(data, dict):
            if self.file is None or not lies_outside(self.file):
                what = describe(data) if self.file is None or may_be_quoted(self.file) else "something else"
                self.fail("not-a-mapping", f"the accelerate config is {what}, not a mapping", self.place())
            raise StopLaunchError
        if data.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
            self.fail(
                "sagemaker",
                "compute_environment is not LOCAL_MACHINE: accelerate reads the file as a SageMaker config",
                self.place("compute_environment"),
            )
            self.launch.launcher = "sagemaker"
            raise StopLaunchError
        data = dict(data)
        late = self._processes_required()
        if not late:
            self._require("distributed-type-missing", "distributed_type", data)
        if "num_processes" not in data and not late and data["distributed_type"] == "NO":
            data["num_processes"] = 1
        if data.get("fp16") and "mixed_precision" not in data:
            data["mixed_precision"] = "fp16"
        data.pop("fp16", None)
        if data.get("mixed_precision") is False:
            data["mixed_precision"] = self._false("mixed_precision")
        if "dynamo_backend" in data:
            backend = data.pop("dynamo_backend")
            data["dynamo_config"] = {} if backend == "NO" else {"dynamo_backend": backend}
        self._check_newer(data)
        foreign = [str(key) for key in data if key not in TOP_LEVEL and key not in _ALWAYS]
        unknown = sorted(key for key in foreign if not self.releases.had(f"cluster.{key}"))
        if unknown and not self.forked:
            self.fail(
                "unknown-top-key",
                f"accelerate refuses the unknown top-level keys {', '.join(unknown)}",
                *(self.place(key) for key in unknown),
            )
        if late:  # by the class, which is made of keys that it knows
            self._require("distributed-type-missing", "distributed_type", data)
            self._require("num-processes-missing", "num_processes", data)
        kind = data["distributed_type"]
        if isinstance(kind, str) and not self._is_a_type(kind):
            self.fail("distributed-type", f"{kind!r} is not a valid DistributedType", self.place("distributed_type"))
            raise StopLaunchError
        for name in SECTIONS:
            if data.get(name) is None:
                data[name] = {}
        return {**TOP_LEVEL, **data}

    def _require(self, kind: str, name: str, data: dict[str, Any]) -> None:
        if name not in data:
            message = f"A `{name}` must be specified in the config file."
            self.fail(kind, message, self.place())
            raise StopLaunchError

    def _false(self, name: str) -> Any:
        """What the admitted releases make of false in a key, where they take it for a word."""
        words = [(state or {}).get("false", False) for _, state in self.releases.states(f"cluster.{name}")]
        return UNKNOWN if len(set(words)) > 1 else next(iter(words), False)

    def _processes_required(self) -> bool:
        """Whether no admitted release starts without `num_processes` in its file."""
        states = self.releases.states("cluster.num_processes")
        return bool(states) and all((state or {}).get("required") for _, state in states)

    def _is_a_type(self, kind: str) -> bool:
        """Whether an admitted release knows a kind of job."""
        states = self.releases.states("words.DistributedType")
        if not states:
            return kind in DISTRIBUTED_TYPES
        return any(kind in (state or {}).get("words", ()) for _, state in states)

    def _check_newer(self, data: dict[str, Any]) -> None:
        """Keys that came after all admitted releases: these refuse them as they refuse any unknown key."""
        newer = sorted(name for name in data if name in TOP_LEVEL and not self.releases.knows(f"cluster.{name}"))
        if newer:
            message = f"accelerate refuses the unknown top-level keys {', '.join(newer)}"
            self.fail("newer-top-key", message, *map(self.place, newer))

    def _choose_paradigm(self, data: dict[str, Any]) -> None:
        get = self.arguments.get
        if any(get(name) for name in ("multi_gpu", "tpu", "tpu_use_cluster", *_PARADIGMS)):
            return
        kind = data["distributed_type"]
        origin = self.place("distributed_type")
        chosen = {
            "use_deepspeed": kind == "DEEPSPEED",
            "multi_gpu": kind in MULTI_DEVICE,
            "tpu": kind == "XLA",
            "use_fsdp": kind == "FSDP",
            "use_megatron_lm": kind == "MEGATRON_LM",
            "use_parallelism_config": data["parallelism_config"] != {},
            "tpu_use_cluster": data["tpu_use_cluster"] if kind == "XLA" else False,
        }
        for name, value in chosen.items():
            self.arguments.set(name, value, origin)

    def _check_gpu_ids(self, data: dict[str, Any]) -> None:
        arguments = self.arguments
        if arguments.get("gpu_ids") is None:
            if data["gpu_ids"] is None:
                arguments.settings["gpu_ids"] = Setting("all", self.releases.origin)
            else:
                arguments.set("gpu_ids", data["gpu_ids"], self.place("gpu_ids"))
        ids = arguments.setting("gpu_ids")
        if ids.value is UNKNOWN:
            return
        if not isinstance(ids.value, str):
            self.fail("gpu-ids-type", f"gpu_ids is {describe(ids.value)}; accelerate splits it as text", ids.origin)
            raise StopLaunchError
        machines = arguments.get("num_machines")
        machines = data["num_machines"] if machines is None else machines
        few = len(ids.value.split(",")) < 2 and ids.value != "all"
        if few and arguments.get("multi_gpu") and isinstance(machines, int) and machines <= 1:
            self.fail(
                "gpu-ids-count",
                f"gpu_ids {ids.value!r} names less than two GPUs for a multi-GPU run",
                ids.origin,
            )

    def _merge(self, data: dict[str, Any]) -> None:
        """Every key of every section lands in the one namespace; a top-level value only where nothing is set."""
        odd = sections.stumbled_over(data, self.releases)
        if odd is not None:
            self.fail("section-type", f"{odd} is {describe(data[odd])}, not a mapping", self.place(odd))
            raise StopLaunchError
        for name in (*TOP_LEVEL, *([] if isinstance(data["distributed_type"], str) else ["distributed_type"])):
            value = data[name]
            if name == "use_cpu" and isinstance(value, dict):
                self.fail("use-cpu-type", "use_cpu is a mapping, neither true nor false", self.place(name))
                raise StopLaunchError
            if isinstance(value, dict):
                sections.merge(self.arguments, name, value, self.place)
            elif name == "distributed_type":
                continue
            elif name != "mixed_precision" and self.arguments.get(name) is None:
                written = self.file is not None and self.file.document is not None and name in (self.file.data() or {})
                origin = self.place(name) if written else self.releases.origin
                if name == "num_processes" and not written and value == 1:
                    origin = Origin("default", f"{self.releases.origin.note}, for distributed_type: 'NO'")
                if origin.kind == "default":
                    self.arguments.settings[name] = Setting(value, origin)
                else:
                    self.arguments.set(name, value, origin)
            elif name != "mixed_precision" and name in self.arguments.flags and name in (self.file_data() or {}):
                self.arguments.shadow(name, Setting(value, self.place(name)))

    def _after_merge(self, data: dict[str, Any]) -> None:
        arguments = self.arguments
        if not arguments.get("debug"):
            arguments.settings["debug"] = Setting(data["debug"], self.place("debug"))
        if not arguments.get("mixed_precision") and arguments.get("mixed_precision") is not UNKNOWN:
            if data["mixed_precision"] is None:
                arguments.settings["mixed_precision"] = Setting("no", self.releases.origin)
            else:
                arguments.set("mixed_precision", data["mixed_precision"], self.place("mixed_precision"))
                arguments.flags.add("mixed_precision from file")
        elif data["mixed_precision"] is not None and "mixed_precision" in arguments.flags:
            arguments.shadow("mixed_precision", Setting(data["mixed_precision"], self.place("mixed_precision")))
        if arguments.get("dynamo_backend") is None:
            arguments.settings["dynamo_backend"] = Setting("no", self.releases.origin)
        processes = arguments.get("num_processes")
        if not isinstance(processes, bool) and processes == -1 and self.releases.all_from(COUNT_ASKED_SINCE):
            self.fail(
                "num-processes-missing",
                "You need to manually pass in `--num_processes` using this config yaml.",
                self.place("num_processes") if "num_processes" in (self.file_data() or {}) else self.place(),
            )
            arguments.set("num_processes", UNKNOWN, Origin("computed", "num_processes is missing"))

    def file_data(self) -> dict[str, Any] | None:
        data = self.file.data() if self.file else None
        return data if isinstance(data, dict) else None

    def _report_dead(self, data: dict[str, Any]) -> None:
        written = self.file_data() or {}
        report_ignored(written, self.arguments, self.ignore)
        self.launch.ignored += beaten_options(written, self.arguments, self.place)

    def _start(self) -> None:
        section = (self.file_data() or {}).get("deepspeed_config")
        start(self.arguments, self.launch, self.file is not None, section, self.fail)
        if self.file is None and "config_file" in self.arguments.flags:
            self.launch.launcher = "none"  # the file that it names is not here, and may choose any


_ALWAYS = ("compute_environment", "distributed_type")
_PARADIGMS = ("use_deepspeed", "use_fsdp", "use_megatron_lm")


def _from_text(kind: str, value: Any) -> Any:
    """The text of a flag as argparse converts it; ValueError when it does not."""
    if value is UNKNOWN:
        return UNKNOWN
    if kind == "flag":
        return value is not False
    if kind == "bool":
        return bool(value)
    if not isinstance(value, str):
        return value
    return {"int": int, "float": float}.get(kind, str)(value)
