"""Whether a change may be merged.

Contents: Lint, builds that match their sources (`builds`), certificates (`certificates`) and policies (`policy`,
`policy_schemas`). Needs no GPU.

May use: `compare`, and of `smoke` the certificate alone (`smoke/model/certificate.py`,
`smoke/certify/certificate_file.py`).

Begin at: `gate.py`, then `builds.py`, `certificates.py`.
"""
