"""What a training script states about its run, read from its text and the modules that it imports."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from zerocfg.frontends.registry import calls
from zerocfg.patterns import pattern
from zerocfg.run.discover import Files
from zerocfg.run.model import (
    UNKNOWN,
    Call,
    Comparison,
    Consumer,
    DefaultDtype,
    LateDeepSpeed,
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
from zerocfg.run.script.imports import imported_names
from zerocfg.run.script.load_order import leaves_dtype, load_order
from zerocfg.run.script.loads import model_loads
from zerocfg.run.script.modules import Module, Open, parse, span_of
from zerocfg.run.script.options import Parser, class_defaults, parser_of
from zerocfg.run.script.own_imports import broken_imports
from zerocfg.run.script.reachable import Reach, Reached, Walk
from zerocfg.run.script.values import Values

_FOREIGN = {
    **dict.fromkeys(("lightning", "pytorch_lightning", "lightning_fabric"), "lightning"),
    "optimum": "optimum",  # its trainers derive from the Trainer, and have a DeepSpeed integration of their own
}
"""Packages whose training loops zerocfg does not check, with their display names."""
_OF_LIGHTNING = frozenset(("Fabric", "LightningCLI", "DeepSpeedStrategy", "FSDPStrategy"))
"""What else shows its loop, as `Trainer.from_argparse_args` may make the Trainer."""
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
_known: dict[tuple[SourceFile, Path], tuple[Script, Mapping[str, SourceFile]]] = {}
"""With each script the files that were opened to read it."""


def read_script(path: Path, files: Files, root: Path) -> Script:
    """What the script says; of a file that Python could not parse only that it is there. Read again when one of its
    modules is another file than it was."""
    file = files.open(path)
    known = _known.get((file, root))
    if known is not None and files.holds(known[1]):
        return known[0]
    if len(_known) >= _MOST_KEPT:
        _known.clear()
    with files.opened() as opened:
        script = _read(file, path, files.open, root)
    _known[file, root] = script, opened
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
    calls = tuple(_call(call, walk, parser, patched) for call in found.calls if _wanted(call.name))
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
        tuple(item.file for item in found.modules),
        parts,
        found.own_loop,
        _required(found),
        own=frozenset(parser.own),
        loading=_loading(found, walk, parser),
        comparisons=_comparisons(found, parser) if parser.options is not None else (),
        resumes=found.resumes,
        default_dtypes=tuple(
            DefaultDtype(ast.unparse(call.call.func), _origin(call)) for call in found.calls if leaves_dtype(call)
        ),
        strict_parser=_strict_parser(found) if parser.options is not None and not parser.lenient else None,
        saves_sharded=_saves_sharded(found) if reader in _SHARDING and "save_pretrained" in found.methods else None,
        imported=imported_names(found.modules, open_file, root),
        replaced=frozenset(found.replaced),
        prepared=_prepared(found) if reader == "accelerate" else {},
        own_checks=any(map(_replaces_checks, found.modules)),
        fixed=parser.fixed,
        beside=parser.beside,
        exported=frozenset(name for name in found.changed if name.isupper()),
        broken=broken_imports(found.modules, open_file, root),
        patched=patched,
        late_deepspeed=_late_deepspeed(found, walk, parser) if reader in _OF_TRAINER else (),
        loads=model_loads(found, walk, parser) if "from_pretrained" in found.methods else (),
    )


def _replaces_checks(module: Module) -> bool:
    """Whether a class of training arguments checks them otherwise than the library's from which it derives."""
    if "__post_init__" not in module.file.source.text:
        return False
    classes = [item for item in module.definitions.values() if isinstance(item, ast.ClassDef)]
    derived = [item for item in classes if any(is_arguments(module.dotted(base, item)) for base in item.bases)]
    checks = (item for kind in derived for item in kind.body if getattr(item, "name", "") == "__post_init__")
    return any("super().__post_init__(" not in ast.unparse(item) for item in checks)


def _comparisons(found: Reach, parser: Parser) -> tuple[Comparison, ...]:
    """The decisions by options of the script's own parser whose values nobody changes later."""
    options, defaults = parser.own - found.stored - found.changed, parser.defaults_of_options
    of_options = [
        Comparison(
            decision.option, decision.values, defaults.get(decision.option, UNKNOWN), _place(module, decision.test)
        )
        for module, owner, decision in found.decisions
        if decision.option in options and decision.holder in parser.names(owner)
    ]
    replaced = of_options and any(_REPLACES.search(module.file.source.text) for module in found.modules)
    return () if replaced else tuple(of_options)


def _strict_parser(found: Reach) -> StrictParser | None:
    from zerocfg.run.script.strict_parser import strict_options

    strict = strict_options(found)
    return StrictParser(strict[0], _origin(strict[1])) if strict is not None else None


def _prepared(found: Reach) -> dict[str, Origin]:
    from zerocfg.run.script.preparing import prepared_by_script

    return {section: _place(module, call) for section, (module, call) in prepared_by_script(found).items()}


_OF_TRAINER = ("transformers", "trl")


def _late_deepspeed(found: Reach, walk: Walk, parser: Parser) -> tuple[LateDeepSpeed, ...]:
    if "deepspeed" not in found.stored:
        return ()
    from zerocfg.run.script.late_deepspeed import late_assignments  # few scripts assign one

    late = []
    for item in late_assignments(found, walk, parser):
        values = Values(walk.scopes(item.module, item.owner), parser.defaults_of_options, parser.names(item.owner))
        value = Setting(values.of(item.value), _place(item.module, item.value))
        shown, place = ast.unparse(item.value), _place(item.module, item.place)
        late.append(LateDeepSpeed(item.holder, item.kind, item.parsed, item.sure, item.filled, value, shown, place))
    return tuple(late)


_SHARDING = ("accelerate", "transformers")
"""Readers of whose scripts it is known how they save what ZeRO-3 shards."""


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
    for call in found.calls:
        text = call.call.args[0] if call.call.args and call.name in _CHECKS else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and _unconditional(call):
            origin = Origin("file", call.name, call.module.file, span=span_of(call.module, call.call))
            every.append((_CHECKS[call.name] + text.value, origin))
    return tuple(every)


def _unconditional(item: Reached) -> bool:
    return any(isinstance(line, ast.Expr) and line.value is item.call for line in item.module.body)


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
        return _FOREIGN[library] if last.endswith("Trainer") or last in _OF_LIGHTNING else None
    return _LOOPS.get(name) or calls().get(name)


def _reader(found: Reach, parser: Parser) -> tuple[Consumer | None, str, Reached | None]:
    """Whose loop the script runs, and the call that shows it. A Trainer makes its own Accelerator and engine, so one
    beside it is another matter. Of two trainers the one counts whose arguments alone the parser fills; any other two
    leave it open."""
    shown: dict[str, Reached] = {}
    for call in found.calls:
        loop = _loop(call.name)
        if loop is not None and not (call.name == "trlx.train" and "nemo" in call.module.file.source.text.lower()):
            shown.setdefault(loop, call)
    loops: list[Consumer] = ["trl", "transformers", "accelerate", "deepspeed"]
    ours = [loop for loop in loops if loop in shown]
    if any(call.name == "trl.PPOConfig" and _given(call) & _OLD_PPO for call in found.calls):
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


def _given(item: Reached) -> set[str]:
    return {keyword.arg for keyword in item.call.keywords if keyword.arg is not None}


def _call(item: Reached, walk: Walk, parser: Parser, patched: bool) -> Call:
    values = Values(walk.scopes(item.module, item.owner), parser.defaults_of_options, parser.names(item.owner))
    objects: dict[str, str] = {}
    config = None
    derived = not item.module.dotted(item.call.func)
    arguments = class_defaults(walk, item.module, item.call.func, item.name) if derived else {}
    for keyword in item.call.keywords:
        if keyword.arg is not None:
            value = values.of(keyword.value)
            arguments[keyword.arg] = Setting(value, _place(item.module, keyword.value))
            made = values.followed(keyword.value)
            if isinstance(made, ast.Call) and (name := item.module.dotted(made.func)):
                objects[keyword.arg] = name
        if keyword.arg in CONFIGS:
            config = config_of(walk, item.module, keyword.value, values) or config
    complete = not item.call.args and all(keyword.arg is not None for keyword in item.call.keywords)
    guarded = _constructs(item.name) and not derived and (patched or _guarded(item, walk))
    place = item.module.file, span_of(item.module, item.call)
    return Call(item.name, arguments, *place, complete, config, derived, guarded, objects)


def _constructs(name: str) -> bool:
    """Whether a call makes a trainer, its arguments or an Accelerator, whose signatures differ by release."""
    return name == "accelerate.Accelerator" or name.endswith("Trainer") or is_arguments(name)


def _guarded(item: Reached, walk: Walk) -> bool:
    return bool(item.module.holding(item.name.partition(".")[0], walk.root)) or is_guarded(item.module, item.call)


def _parts(found: Reach, walk: Walk, parser: Parser) -> tuple[SourceFile, ...]:
    """What is known of the DeepSpeed configs that the script writes out, outermost dicts alone."""
    inner = {id(node) for _, _, item in found.dicts for node in nodes(item) if node is not item}
    changed = frozenset(found.changed)
    read = (
        parts_of(
            module, item, Values(walk.scopes(module, owner), parser.defaults_of_options, parser.names(owner)), changed
        )
        for module, owner, item in found.dicts
        if id(item) not in inner
    )
    return tuple(item for item in read if item is not None)


def _origin(item: Reached) -> Origin:
    return Origin("file", item.name, file=item.module.file, span=span_of(item.module, item.call))


def _place(module: Module, node: ast.expr) -> Origin:
    return Origin("file", file=module.file, span=span_of(module, node))
