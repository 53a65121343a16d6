"""Whether a build needs no other smoke-run: it has a certificate of the files, values and code that are here now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.smoke.certify.certificate_file import CertificateError, read, values_hash
from zerocfg.smoke.certify.code import code_hashes
from zerocfg.smoke.model.certificate import NAME

if TYPE_CHECKING:
    from zerocfg.smoke.prepare.folder import RunFolder


def is_certified(run: RunFolder) -> bool:
    """Whether a smoke-run of this very build passed. What a project requires beside that is the gate's business."""
    if run.handwritten is not None or run.changed:
        return False
    try:
        found = read(run.path / NAME)
    except (OSError, CertificateError):
        return False
    result = found.result
    return (
        result.passed
        and not result.failed
        and result.failure is None
        and not result.unmeasured
        and result.run == run.name
        and found.files == run.hashes
        and found.values == values_hash(run.lock)
        and found.code == code_hashes(run.path, run.lock)
    )
