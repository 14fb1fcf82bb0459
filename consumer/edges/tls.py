"""TLS as a client: whom to trust, and what proves us."""

from __future__ import annotations

import ssl
from pathlib import Path

from consumer.errors import ConfigError


def client_context(
    *,
    cafile: Path | None = None,
    certfile: Path | None = None,
    keyfile: Path | None = None,
    key_password: str = "",
) -> ssl.SSLContext:
    """A context that verifies the server's certificate and its name; without a CA file, by the
    system's certificates.

    Raises ConfigError that names the file that can't be used.
    """
    context = _trusting(cafile)
    if certfile is not None:
        try:
            # Never None for the password: Python would ask for it on the terminal, and wait.
            context.load_cert_chain(certfile, keyfile, key_password)
        except (OSError, ValueError) as error:
            files = ", ".join(str(file) for file in (certfile, keyfile) if file)
            raise ConfigError(
                [f"{files}: no certificate with its key, or a wrong key password ({_why(error)})"]
            ) from error
    return context


def _trusting(cafile: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=cafile)
    except (OSError, ValueError) as error:
        raise ConfigError([f"{cafile}: no certificate to trust ({_why(error)})"]) from error


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or type(error).__name__)


def distrust(error: BaseException | None) -> str | None:
    """Why the server's certificate was not accepted; None where that is not what went wrong."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate can't be trusted: {error.verify_message}"
        error = error.__cause__
    return None
