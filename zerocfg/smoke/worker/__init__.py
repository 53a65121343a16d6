"""One rank of a smoke-run: a program of its own, started by the real launcher; it imports nothing else of zerocfg.

The parent copies this package as ``zerocfg_worker`` into the run's scratch folder
(`zerocfg.smoke.launch.process.program`) and starts ``-m zerocfg_worker job.json`` there. The job is a `job.Job`; each
rank keeps ``reports/rank<N>.json`` up to date (`report.Report`), which is all that the parent knows of it.
"""
