"""Measures the activations of a training step without a GPU, weights or data.

A program of its own, ``python -m zerocfg.tracer``: a JSON list of requests on standard input, one of answers
on standard output. ``zerocfg.memory.activations.tracing`` starts it in a process of its own. It imports nothing else of
zerocfg, so that the Python that has torch need not have zerocfg's dependencies.

Contents: the steps of a training, recorded on tensors without content.

May use: torch and transformers; nothing else of zerocfg.

Begin at: `__main__.py`, `record.py`.
"""
