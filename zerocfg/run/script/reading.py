"""What a training script states about its run, read from its text and the modules that it imports."""

from __future__ import annotations

import ast
from pathlib import Path

from zerocfg.frontends.registry import calls
from zerocfg.patterns import pattern
from zerocfg.run.model import (
    UNKNOWN,
    Call,
    Comparison,
    Consumer,
    DefaultDtype,
    Loading,
    Origin,
    Script,
    Setting,
    SourceFile,
    StrictParser,
)
from zerocfg.run.script.arguments import is_arguments
from zerocfg.run.script.code import nodes
from zerocfg.run.script.config_dicts import config_of, parts_of
from zerocfg.run.script.guards import is_guarded, patches_trainers
from zerocfg.run.script.load_order import leaves_dtype, load_order
from zerocfg.run.script.modules import Module, Open, parse, span_of
from zerocfg.run.script.options import Parser, class_defaults, parser_of
from zerocfg.run.script.reachable import Reach, Reached, Walk
from zerocfg.run.script.values import Values

_FOREIGN = {
    **dict.fromkeys(("lightning", "pytorch_lightning", "lightning_fabric"), "lightning"),
    "optimum": "optimum",  # its trainers derive from the Trainer, and have a DeepSpeed integration of their own
}
"""Packages whose training loops zerocfg does not check, with their display names."""
_SAT = "SwissArmyTransformer"
_LOOPS: dict[str, Consumer | str] = {
    "accelerate.Accelerator": "accelerate",
    "deepspeed.initialize": "deepspeed",
    "trlx.train": "accelerate",  # whose trainers make an Accelerator, but for those of NeMo
    "sat.training_main": _SAT,  # puts its own options into the DeepSpeed config
}
_OLD_PPO = frozenset("model_name ppo_epochs log_with optimize_cuda_cache early_stopping adap_kl_ctrl".split())
"""Arguments of TRL's PPOConfig before 0.12, whose PPOTrainer was no Trainer but made an Accelerator of its own."""
_PLUGINS = frozenset(
    "accelerate.Accelerator accelerate.DeepSpeedPlugin accelerate.FullyShardedDataParallelPlugin "
    "accelerate.GradientAccumulationPlugin deepspeed.initialize deepspeed.init_inference".split()
)


CONFIGS = ("deepspeed", "config", "config_params", "hf_ds_config")
"""Arguments that take a DeepSpeed config, as a path or a dict: of TrainingArguments, deepspeed.initialize and
accelerate's DeepSpeedPlugin."""
_REPLACES = pattern(r"(?:\bvars\(\w+\)|\b__dict__)\s*(?:\.update|\[|\|=)|\bsetattr\(|\bNamespace\(")
"""What may give a parser's answer other values than the command line's."""
_MOST_KEPT = 512
_known: dict[tuple[SourceFile, Path], Script] = {}


def read_script(path: Path, open_file: Open, root: Path) -> Script:
    """What the script says; of a file that Python could not parse only that it is there. Read again when one of its
    modules is another file than it was."""
    file = open_file(path)
    known = _known.get((file, root))
    if known is not None and all(one.path is not None and open_file(one.path) is one for one in known.files):
        return known
    if len(_known) >= _MOST_KEPT:
        _known.clear()
    script = _known[file, root] = _read(file, path, open_file, root)
    return script


def _read(file: SourceFile, path: Path, open_file: Open, root: Path) -> Script:
    module = parse(file, path)
    if module is None:
        return Script(file, files=(file,), understood=False)
    walk = Walk(open_file, root)
    found = walk.from_start(module)
    parser = parser_of(found, walk)
    reader, foreign, shown = _reader(found, parser)
    patched = patches_trainers(found.modules)
    calls = tuple(_call(one, walk, parser, patched) for one in found.calls if _wanted(one.name))
    parts = _parts(found, walk, parser) if found.dicts else ()
    return Script(
        file,
        reader,
        _origin(shown) if shown is not None else None,
        foreign,
        calls,
        parser.options,
        parser.lenient,
        parser.parsed,
        parser.defaults,
        frozenset(found.stored),
        frozenset(found.opened),
        frozenset(found.methods),
        found.shallow and not found.unread,
        tuple(one.file for one in found.modules),
        parts,
        found.own_loop,
        _required(found),
        own=frozenset(parser.own),
        loading=_loading(found, walk, parser),
        comparisons=_comparisons(found, parser) if parser.options is not None else (),
        resumes=found.resumes,
        default_dtypes=tuple(
            DefaultDtype(ast.unparse(one.call.func), _origin(one)) for one in found.calls if leaves_dtype(one)
        ),
        strict_parser=_strict_parser(found) if parser.options is not None and not parser.lenient else None,
        saves_sharded=_saves_sharded(found) if reader == "accelerate" and "save_pretrained" in found.methods else None,
    )


def _comparisons(found: Reach, parser: Parser) -> tuple[Comparison, ...]:
    """The decisions by options of the script's own parser whose values nobody changes later."""
    options, defaults = parser.own - found.stored - found.changed, parser.defaults_of_options
    of_options = [
        Comparison(one.option, one.values, defaults.get(one.option, UNKNOWN), _place(module, one.test))
        for module, owner, one in found.decisions
        if one.option in options and one.holder in parser.names(owner)
    ]
    replaced = of_options and any(_REPLACES.search(module.file.source.text) for module in found.modules)
    return () if replaced else tuple(of_options)


def _strict_parser(found: Reach) -> StrictParser | None:
    from zerocfg.run.script.strict_parser import strict_options

    strict = strict_options(found)
    return StrictParser(strict[0], _origin(strict[1])) if strict is not None else None


def _saves_sharded(found: Reach) -> Origin | None:
    from zerocfg.run.script.saving import saves_sharded  # few scripts save so

    saved = saves_sharded(found)
    return _place(saved[0], saved[1]) if saved is not None else None


def _loading(found: Reach, walk: Walk, parser: Parser) -> Loading | None:
    order = load_order(found)
    if order is None:
        return None
    one = order.load
    values = Values(walk.scopes(one.module, one.owner), parser.defaults_of_options, parser.names(one.owner))
    given = next((keyword.value for keyword in one.call.keywords if keyword.arg == "device_map"), None)
    device_map = Setting(values.of(given), _place(one.module, given)) if given is not None else None
    return Loading(_origin(one), order.first, device_map)


_CHECKS = {"transformers.check_min_version": "transformers>=", "transformers.require_version": ""}


def _required(found: Reach) -> tuple[tuple[str, Origin], ...]:
    """The requirements that modules check when they are started or imported."""
    every = []
    for one in found.calls:
        text = one.call.args[0] if one.call.args and one.name in _CHECKS else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and _unconditional(one):
            origin = Origin("file", one.name, one.module.file, span=span_of(one.module, one.call))
            every.append((_CHECKS[one.name] + text.value, origin))
    return tuple(every)


def _unconditional(one: Reached) -> bool:
    return any(isinstance(line, ast.Expr) and line.value is one.call for line in one.module.body)


def is_stated(name: str) -> bool:
    """Whether a call states arguments or a config that a library reads."""
    return name in _PLUGINS or is_arguments(name)


def _wanted(name: str) -> bool:
    return name in _PLUGINS or is_arguments(name) or _loop(name) is not None


def _loop(name: str) -> Consumer | str | None:
    """Whose loop a call shows."""
    library, _, last = name.partition(".")
    if library in ("transformers", "trl"):
        return library if last.endswith("Trainer") else None
    if library in _FOREIGN:
        return _FOREIGN[library] if last.endswith("Trainer") or last in ("Fabric", "LightningCLI") else None
    return _LOOPS.get(name) or calls().get(name)


def _reader(found: Reach, parser: Parser) -> tuple[Consumer | None, str, Reached | None]:
    """Whose loop the script runs, and the call that shows it. A Trainer makes its own Accelerator and engine, so one
    beside it is another matter. Of two trainers the one counts whose arguments alone the parser fills; any other two
    leave it open."""
    shown: dict[str, Reached] = {}
    for one in found.calls:
        loop = _loop(one.name)
        if loop is not None and not (one.name == "trlx.train" and "nemo" in one.module.file.source.text.lower()):
            shown.setdefault(loop, one)
    loops: list[Consumer] = ["trl", "transformers", "accelerate", "deepspeed"]
    ours = [loop for loop in loops if loop in shown]
    if any(one.name == "trl.PPOConfig" and _given(one) & _OLD_PPO for one in found.calls):
        return None, "", None
    trainers = [loop for loop in ours if loop in ("trl", "transformers")]
    framework = next((loop for loop in shown if loop in calls().values()), None)
    if framework is not None:
        return (None, "", None) if ours else (framework, "", shown[framework])
    for foreign in (*_FOREIGN.values(), _SAT):
        if foreign in shown:
            return (None, "", None) if trainers else (None, foreign, shown[foreign])
    if ours == ["accelerate", "deepspeed"] and found.prepares:  # the engine is another model's
        ours = ["accelerate"]
    if len(trainers) > 1:
        owners = {name.partition(".")[0] for name in parser.parsed if is_arguments(name)}
        trainers = [loop for loop in trainers if owners == {loop}] or trainers
    only = trainers if trainers else ours
    return (only[0], "", shown[only[0]]) if len(only) == 1 else (None, "", None)


def _given(one: Reached) -> set[str]:
    return {keyword.arg for keyword in one.call.keywords if keyword.arg is not None}


def _call(one: Reached, walk: Walk, parser: Parser, patched: bool) -> Call:
    values = Values(walk.scopes(one.module, one.owner), parser.defaults_of_options, parser.names(one.owner))
    objects: dict[str, str] = {}
    config = None
    derived = not one.module.dotted(one.call.func)
    arguments = class_defaults(walk, one.module, one.call.func, one.name) if derived else {}
    for keyword in one.call.keywords:
        if keyword.arg is not None:
            value = values.of(keyword.value)
            arguments[keyword.arg] = Setting(value, _place(one.module, keyword.value))
            made = values.followed(keyword.value)
            if isinstance(made, ast.Call) and (name := one.module.dotted(made.func)):
                objects[keyword.arg] = name
        if keyword.arg in CONFIGS:
            config = config_of(walk, one.module, keyword.value, values) or config
    complete = not one.call.args and all(keyword.arg is not None for keyword in one.call.keywords)
    guarded = _constructs(one.name) and not derived and (patched or _guarded(one, walk))
    place = one.module.file, span_of(one.module, one.call)
    return Call(one.name, arguments, *place, complete, config, derived, guarded, objects)


def _constructs(name: str) -> bool:
    """Whether a call makes a trainer, its arguments or an Accelerator, whose signatures differ by release."""
    return name == "accelerate.Accelerator" or name.endswith("Trainer") or is_arguments(name)


def _guarded(one: Reached, walk: Walk) -> bool:
    return bool(one.module.holding(one.name.partition(".")[0], walk.root)) or is_guarded(one.module, one.call)


def _parts(found: Reach, walk: Walk, parser: Parser) -> tuple[SourceFile, ...]:
    """What is known of the DeepSpeed configs that the script writes out, outermost dicts alone."""
    inner = {id(node) for _, _, one in found.dicts for node in nodes(one) if node is not one}
    changed = frozenset(found.changed)
    read = (
        parts_of(
            module, one, Values(walk.scopes(module, owner), parser.defaults_of_options, parser.names(owner)), changed
        )
        for module, owner, one in found.dicts
        if id(one) not in inner
    )
    return tuple(one for one in read if one is not None)


def _origin(one: Reached) -> Origin:
    return Origin("file", one.name, file=one.module.file, span=span_of(one.module, one.call))


def _place(module: Module, node: ast.expr) -> Origin:
    return Origin("file", file=module.file, span=span_of(module, node))
