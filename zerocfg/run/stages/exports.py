"""The variables that accelerate's launchers export.

Follows accelerate/utils/launch.py (`prepare_deepspeed_cmd_env`, `prepare_multi_gpu_env`,
`prepare_simple_launcher_cmd_env`). The stages before are in :mod:`zerocfg.run.stages.launcher`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import RefusedError, env_bool
from zerocfg.run.config import any_unknown, describe
from zerocfg.run.model import UNKNOWN, Origin, Setting
from zerocfg.run.stages.launch_counts import (
    Fail,
    check_local_size,
    check_network,
    check_threads,
    is_count,
    started_processes,
)
from zerocfg.run.stages.options import DYNAMO_BACKENDS, OPTIONS, PRECISIONS

if TYPE_CHECKING:
    from zerocfg.run.stages.namespace import Launch, Namespace

COUNTED_SINCE = "1.8.0"
"""The release whose simple launcher asks for an address and a port of several machines, and takes null for no count."""
CPU_READ_SINCE, AFFINITY_LOST_SINCE = "1.15.0", "1.13.0"
"""The release whose simple launcher reads `use_cpu` as true or false, and the one that stopped to bind threads to cores
whatever it says; those between never do."""
_SIZES = {"parallelism_config_cp_size", "parallelism_config_sp_size"}


@cache
def variables(section: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Each option that a section of accelerate's config fills, and a variable that carries it to the job: an entry of
    the fact ``env``."""
    schema = load_schema("accelerate")
    inner = schema.root.keys[section].section(schema)
    assert inner is not None
    return tuple((option, fact) for option, key in inner.keys.items() for fact in key.facts.get("env", ()))


def start(arguments: Namespace, launch: Launch, has_file: bool, section: Any, fail: Fail) -> None:
    """Choose the launcher and fill ``launch`` with what it starts and exports."""
    launch.mixed_precision = arguments.setting("mixed_precision")
    launch.num_machines = arguments.setting("num_machines")
    name = _launcher_name(arguments, has_file)
    launch.launcher = name
    exporter = _Exporter(arguments, launch, fail)
    launch.num_processes = started_processes(arguments, name)
    if not check_threads(arguments, fail):
        return
    if name == "tpu":
        return
    if name == "simple":
        exporter.simple()
        return
    if name == "deepspeed" and has_file and section is not None and not isinstance(section, dict):
        message = f"deepspeed_config is {describe(section)}, not a mapping"
        fail("section-type", message, arguments.setting("deepspeed_config").origin)
    check_network(arguments, fail)
    if name == "deepspeed":
        exporter.deepspeed(section if isinstance(section, dict) else {})
    else:
        exporter.multi_gpu()
    check_local_size(arguments, fail)


def _launcher_name(arguments: Namespace, has_file: bool) -> str:
    """Which launcher is taken. Without a config file accelerate switches `--multi_gpu` on where the machine has several
    accelerators and more than one process is asked for: a line that asks for several is written for such a machine,
    and one that does not say starts as many as there are."""
    get = arguments.get
    if get("cpu"):
        return "simple"
    order = {
        "use_deepspeed": "deepspeed",
        "use_fsdp": "fsdp",
        "use_megatron_lm": "megatron",
        "multi_gpu": "multi_gpu",
    }
    for flag, name in order.items():
        if get(flag):
            return name
    if get("tpu"):
        return "tpu"
    processes = get("num_processes")
    several = processes is UNKNOWN or (isinstance(processes, int) and processes > 1)
    return "multi_gpu" if several and not has_file else "simple"


class _Exporter:
    def __init__(self, arguments: Namespace, launch: Launch, fail: Fail) -> None:
        self.arguments = arguments
        self.launch = launch
        self.fail = fail

    def put(self, variable: str, option: str, *, lower: bool = False) -> None:
        """Export an option's value as text, where an admitted release does."""
        known = option not in OPTIONS or option in self.arguments.options
        if not known or not self.arguments.releases.knows(f"variable.{variable}"):
            return
        setting = self.arguments.setting(option)
        value = setting.value
        text = UNKNOWN if value is UNKNOWN else str(value).lower() if lower else str(value)
        self.launch.environment[variable] = Setting(text, setting.origin, setting.overridden)

    def put_section(self, section: str, *, above_1: str = "") -> None:
        """Export what the launchers export of a section; with ``above_1`` what needs that size to be above 1."""
        for option, variable in variables(section):
            needed = next((size for size in _SIZES if size in variable.get("needs", ())), "")
            if needed == above_1 and (variable["when"] == "always" or self.arguments.get(option) is not None):
                self.put(variable["name"], option, lower=variable["text"] == "lower")

    def put_text(self, variable: str, text: Any, why: str) -> None:
        self.launch.environment[variable] = Setting(text, Origin("computed", why))

    # -- the launchers -----------------------------------------------------------------------------------------

    def deepspeed(self, section: dict[str, Any]) -> None:
        self._debug_and_devices()
        self._precision()
        fields = [str(key) for key in section]
        if "mixed_precision from file" in self.arguments.flags:
            fields.append("mixed_precision")
        self.put_text("ACCELERATE_CONFIG_DS_FIELDS", ",".join(fields).lower(), "the keys of `deepspeed_config`")
        self.put_text("ACCELERATE_USE_DEEPSPEED", "true", "the DeepSpeed launcher")
        self.put_section("deepspeed_config")
        self._affinity_and_parallelism()

    def multi_gpu(self) -> None:
        self._debug_and_devices()
        self._precision()
        self._dynamo()
        if self.arguments.get("use_fsdp"):
            self._fsdp()
        if self.arguments.get("use_megatron_lm"):
            self._megatron()
        self._threads()
        self._affinity_and_parallelism()

    def simple(self) -> None:
        arguments = self.arguments
        cpu, use_cpu = arguments.setting("cpu"), arguments.setting("use_cpu")
        used = cpu if cpu.value else use_cpu
        text = UNKNOWN if used.value is UNKNOWN else str(used.value)
        self.launch.environment["ACCELERATE_USE_CPU"] = Setting(text, used.origin, used.overridden)
        self._debug_and_devices()
        machines, processes = arguments.get("num_machines"), arguments.get("num_processes")
        if not is_count(arguments, self.fail, "num_machines"):
            return
        several = isinstance(machines, (int, float)) and machines > 1
        lenient = arguments.releases.any_from(COUNTED_SINCE)
        needed = ("main_process_ip", "main_process_port")
        if several:
            for name in needed if arguments.releases.all_from(COUNTED_SINCE) else needed[:1]:
                if arguments.get(name) is None:
                    origin = arguments.setting("num_machines").origin
                    self.fail("main-process-missing", f"several machines need {name}", origin)
                    return
        if (lenient or not several) and not is_count(arguments, self.fail, "num_processes", null=lenient):
            return
        if several or (isinstance(processes, (int, float)) and processes > 1):
            for variable, name, default in (
                ("MASTER_ADDR", "main_process_ip", "127.0.0.1"),
                ("MASTER_PORT", "main_process_port", "29500"),
            ):
                value = arguments.get(name)
                if value is None:
                    unset = default if not several else UNKNOWN if lenient else "None"
                    self.launch.environment[variable] = Setting(unset, arguments.releases.origin)
                    continue
                self.put(variable, name)
                if name == "main_process_ip" and value is not UNKNOWN and not isinstance(value, str):
                    origin = arguments.setting(name).origin
                    self.fail("main-process-ip-type", f"main_process_ip is {describe(value)}, not a text", origin)
        releases = arguments.releases
        read = releases.all_from(CPU_READ_SINCE)
        if read and isinstance(text, str) and not _is_truth(text):
            self.fail("use-cpu-type", f"use_cpu is {describe(used.value)}, neither true nor false", used.origin)
        on = isinstance(text, str) and text.lower() in ("y", "yes", "t", "true", "on", "1")
        if on if read else releases.all_from(COUNTED_SINCE) and not releases.any_from(AFFINITY_LOST_SINCE):
            self.put_text("KMP_AFFINITY", "granularity=fine,compact,1,0", "training on CPU")
            self.put_text("KMP_BLOCKTIME", "1", "training on CPU")
        self._precision()
        self._dynamo()
        mode = arguments.setting("dynamo_mode")
        if mode.value is not UNKNOWN and not isinstance(mode.value, str):
            # The other launchers make text of everything; this one hands the variables to the process as they are.
            self.fail("dynamo-mode-type", f"dynamo_mode is {describe(mode.value)}, not a text", mode.origin)
        self._threads()
        if arguments.get("enable_cpu_affinity"):
            self.put_text("ACCELERATE_CPU_AFFINITY", "1", "enable_cpu_affinity")

    # -- parts that several launchers share ---------------------------------------------------------------------

    def _debug_and_devices(self) -> None:
        if self.arguments.get("debug"):
            self.put_text("ACCELERATE_DEBUG_MODE", "true", "debug")
        ids = self.arguments.get("gpu_ids")
        if ids is not None and ids != "all":
            self.put("CUDA_VISIBLE_DEVICES", "gpu_ids")

    def _precision(self) -> None:
        setting = self.arguments.setting("mixed_precision")
        value = setting.value
        if value is UNKNOWN:
            self.launch.environment["ACCELERATE_MIXED_PRECISION"] = setting
            return
        if not isinstance(value, str):
            message = f"mixed_precision is {describe(value)}; accelerate calls .lower() on it. Quote the word: 'no'"
            self.fail("mixed-precision-type", message, setting.origin)
            self.launch.mixed_precision = Setting(UNKNOWN, setting.origin, setting.overridden)
            return
        word = value.lower()
        if word not in PRECISIONS:
            message = f"Unknown mixed_precision mode: {word}. Choose between {', '.join(PRECISIONS)}."
            self.fail("mixed-precision", message, setting.origin)
            self.launch.mixed_precision = Setting(UNKNOWN, setting.origin, setting.overridden)
            return
        self.launch.mixed_precision = Setting(word, setting.origin, setting.overridden)
        self.put("ACCELERATE_MIXED_PRECISION", "mixed_precision", lower=True)
        if word == "fp8" and "fp8_backend" in self.arguments.options:
            self._fp8()

    def _fp8(self) -> None:
        for name, setting in self.arguments.settings.items():
            if not name.startswith("fp8_") or setting.value is None:
                continue
            if name != "fp8_override_linear_precision":
                self.put(f"ACCELERATE_{name.upper()}", name)
                continue
            try:
                parts = [str(setting.value[index]) for index in range(3)]
            except (TypeError, IndexError, KeyError):
                self.fail(
                    "fp8-override-type",
                    f"override_linear_precision is {describe(setting.value)}",
                    setting.origin,
                )
                continue
            for direction, text in zip(("FPROP", "DGRAD", "WGRAD"), parts, strict=False):
                self.launch.environment[f"ACCELERATE_FP8_OVERRIDE_{direction}"] = Setting(text, setting.origin)

    def _dynamo(self) -> None:
        backend = self.arguments.setting("dynamo_backend")
        if backend.value is not UNKNOWN:
            if not isinstance(backend.value, str):
                self.fail("dynamo-backend", f"dynamo backend is {describe(backend.value)}", backend.origin)
                return
            if backend.value.lower() not in DYNAMO_BACKENDS:
                self.fail("dynamo-backend", f"Unknown dynamo backend: {backend.value.upper()}", backend.origin)
                return
        text = backend.value.upper() if isinstance(backend.value, str) else UNKNOWN
        self.launch.environment["ACCELERATE_DYNAMO_BACKEND"] = Setting(text, backend.origin, backend.overridden)
        for name in ("mode", "use_fullgraph", "use_dynamic", "use_regional_compilation"):
            self.put(f"ACCELERATE_DYNAMO_{name.upper()}", f"dynamo_{name}")

    def _fsdp(self) -> None:
        self.put_text("ACCELERATE_USE_FSDP", "true", "the FSDP launcher")
        efficient = self.arguments.setting("fsdp_cpu_ram_efficient_loading")
        sync = self.arguments.setting("fsdp_sync_module_states")
        if not any_unknown(efficient.value, sync.value) and efficient.value and not sync.value:
            message = "When using `--fsdp_cpu_ram_efficient_loading` set `--fsdp_sync_module_states` to `True`"
            self.fail("fsdp-ram-sync", message, sync.origin, efficient.origin)
            return
        self.put_section("fsdp_config")

    def _megatron(self) -> None:
        self.put_text("ACCELERATE_USE_MEGATRON_LM", "true", "the Megatron-LM launcher")
        self.put_section("megatron_lm_config")

    def _threads(self) -> None:
        if self.arguments.get("num_cpu_threads_per_process") is not None:
            self.put("OMP_NUM_THREADS", "num_cpu_threads_per_process")

    def _affinity_and_parallelism(self) -> None:
        if self.arguments.get("enable_cpu_affinity"):
            self.put_text("ACCELERATE_CPU_AFFINITY", "1", "enable_cpu_affinity")
        if not self.arguments.get("use_parallelism_config"):
            return
        if self.launch.launcher == "deepspeed" and "parallelism_config_sp_size" not in self.arguments.options:
            return  # DeepSpeed's launcher hands it on since there are sequence parallel ranks
        self.put_text("ACCELERATE_USE_PARALLELISM_CONFIG", "true", "parallelism_config")
        self.put_section("parallelism_config")
        for size in sorted(_SIZES & set(self.arguments.options)):
            setting = self.arguments.setting(size)
            if setting.value is UNKNOWN:
                continue
            if not isinstance(setting.value, (int, float)):
                self.fail("parallelism-type", f"{size} is {describe(setting.value)}, not a number", setting.origin)
                return
            if setting.value > 1:
                self.put_section("parallelism_config", above_1=size)


def _is_truth(text: str) -> bool:
    try:
        env_bool(text)
    except RefusedError:
        return False
    return True
