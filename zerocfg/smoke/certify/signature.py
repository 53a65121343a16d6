"""Signatures of certificates, by OpenSSH: the keys, agents and lists of signers that teams sign their commits with.

A signature is a file beside the certificate, over its bytes. `ssh-keygen` of OpenSSH 8.2 or later makes and checks it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from zerocfg.budgets import FILE_BYTES, SIGNATURE_BYTES
from zerocfg.source import disk

SUFFIX = ".sig"
NAMESPACE = "zerocfg-smoke"
"""What a signature is for, so that one of a commit or an e-mail proves nothing here."""
_LIMIT = 60
"""Seconds for checking a signature, which asks nobody."""


class SignatureError(Exception):
    """A certificate cannot be signed, or its signature does not count. ``missing``: there is none."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


def signature_of(certificate: Path) -> Path:
    return certificate.with_name(certificate.name + SUFFIX)


def sign(certificate: Path, key: Path) -> Path:
    """Sign with a private key, or with a public one whose private part an agent holds; ssh-keygen may ask for a
    passphrase. Raises SignatureError."""
    signature_of(certificate).unlink(missing_ok=True)
    done = _ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, str(certificate), limit=None)
    if done.returncode != 0:
        raise SignatureError(f"{key} signs nothing: {_last(done)}")
    return signature_of(certificate)


def signer_of(certificate: Path, signers: Path) -> str:
    """Who signed a certificate, as the list of signers (``allowed_signers`` of OpenSSH and git) calls them.

    Raises SignatureError where nobody of the list did, or where the certificate is not what was signed.
    """
    signature = signature_of(certificate)
    if not signature.is_file():
        raise SignatureError("it is not signed", missing=True)
    try:  # whoever may commit writes both; ssh-keygen reads what it is given to its end
        disk.whole(signature, SIGNATURE_BYTES)
        content = disk.whole(certificate, FILE_BYTES)
        disk.whole(signers, FILE_BYTES)
    except (OSError, ValueError) as error:
        raise SignatureError(f"its signature is not read: {getattr(error, 'strerror', None) or error}") from None
    named = _ssh_keygen("find-principals", "-s", str(signature), "-f", str(signers))
    names = named.stdout.decode("utf-8", "replace").splitlines()
    if named.returncode != 0 or not names:
        raise SignatureError(f"nobody in {signers.name} signed it")
    who = names[0].partition(",")[0]
    done = _ssh_keygen("verify", "-f", str(signers), "-I", who, "-n", NAMESPACE, "-s", str(signature), text=content)
    if done.returncode != 0:
        raise SignatureError("its signature is of another content, or for another purpose")
    return who


def _ssh_keygen(
    what: str, *words: str, text: bytes | None = None, limit: float | None = _LIMIT
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["ssh-keygen", "-Y", what, *words],
            input=text,
            capture_output=True,
            timeout=limit,
            check=False,
        )
    except FileNotFoundError:
        raise SignatureError("signatures need `ssh-keygen` of OpenSSH 8.2 or later, which is not here") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise SignatureError(f"ssh-keygen -Y {what}: {type(error).__name__}") from None


def _last(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"ssh-keygen ended with {done.returncode}"
