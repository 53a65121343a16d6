"""What a face of zerocfg asks for: what is linted or built, with which settings, rules, baseline and cache.

Contents: The settings of a project (`settings`, `settings_edit`), the selection of rules (`selection`), known findings
(`baseline`), one lint (`job`), one build with its lint (`compile_runs`), suppressing what is found (`add_ignores`),
kept outcomes (`cache`), and linting the examples of rules (`examples`). Wrong use is `zerocfg.errors.UsageError`.

May use: everything up to `smoke`; today `linter`, `emit`, `resolve` and `terminal`. Neither click nor a face. The
command line, `zerocfg.api`, `zerocfg.guard`, the pytest plugin and the language server stand on it.

Begin at: `job.py`, `settings.py`.
"""
