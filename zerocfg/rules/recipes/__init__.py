"""ZC8xx: training arguments, recipes, releases."""

from __future__ import annotations

from zerocfg.rules.recipes import (
    call_keywords,
    declared_twice,
    late_settings,
    line_values,
    load_arguments,
    lost_imports,
    outdented,
    own_imports,
    releases,
    releases_clash,
    removed,
    slips,
    trainer_arguments,
    trainer_model,
    trainer_schedule,
    trainer_steps,
    trainer_types,
    trainer_values,
    trainer_words,
    trl_batches,
    trl_options,
    trl_recipe,
    trl_trainers,
)
