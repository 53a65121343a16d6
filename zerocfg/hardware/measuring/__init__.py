"""A program of its own: ``python -m zerocfg.hardware.measuring``, one process for each rank.

The only code of the package that uses torch. :mod:`zerocfg.hardware.measure` starts it; what crashes or hangs in here
costs that process only.
"""
