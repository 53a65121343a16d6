"""An accelerate config in another form, or for another engine.

Contents: Conversions (`into_json`, `into_yaml`, `fsdp1`, `zero_to_fsdp2`, `ddp`): new texts, and a row for every key.
`outcome` compares the effective settings before and after. It writes nothing.

May use: `migrate` and what is below it.

Begin at: `conversion.py`, `targets.py`, `fsdp1.py`.
"""
