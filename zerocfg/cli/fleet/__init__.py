"""``lint --repos``: the lint of one repository of many, here or on the workers of a cluster, and what is reported."""
