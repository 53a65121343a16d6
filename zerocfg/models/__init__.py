"""The one definition of keys, types, units, ranges, versions, and of who fills an `auto`, as pydantic classes.

Contents: The file formats (`deepspeed`, `accelerate`, `training_arguments`, `trl`, `spec`), the parameters of a model
from its config.json (`model_facts`, `families`, `architectures`, `vision`, `towers`), and the schemas that editors
read (`editor`). `schema` compiles the classes into `schemas/*.json`.

May use: pydantic; of the catalog how values are read, and names. No disk, no device. Linting reads the compiled form
and never imports this.

Begin at: `base.py` (`key`, `Section`), `reading.py`, then `deepspeed/`.
"""
