"""Certificates for a test, by the openssl command: an authority, and what it vouches for."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

OPENSSL = shutil.which("openssl")

_EC_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
_LEAF = """
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
{names}
"""
_REQUEST = """
[req]
distinguished_name=name
[name]
[ca]
basicConstraints=critical,CA:TRUE
keyUsage=critical,keyCertSign,cRLSign
subjectKeyIdentifier=hash
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate and its key, in PEM files; `both` has them in one."""

    cert: Path
    key: Path

    @property
    def both(self) -> Path:
        path = self.cert.with_suffix(".both.pem")
        path.write_text(self.key.read_text() + self.cert.read_text())
        return path


class Authority:
    """A certificate authority of its own in this folder. Everything it makes lives for two days."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._config = folder / "openssl.cnf"
        self._config.write_text(_REQUEST)
        self.cert, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        _openssl(
            *("req", "-x509", *_EC_KEY, "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-config", self._config, "-extensions", "ca"),
            *("-keyout", self._key, "-out", self.cert),
        )

    def issue(self, name: str, *subjects: str, key_password: str = "") -> Certificate:
        """A certificate for this common name and these subjects (`IP:127.0.0.1`, `DNS:db`)."""
        made = Certificate(cert=self._folder / f"{name}.pem", key=self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.cnf"
        names = f"subjectAltName={','.join(subjects)}" if subjects else ""
        extensions.write_text(_LEAF.format(names=names))
        secret = ("-passout", f"pass:{key_password}") if key_password else ("-nodes",)
        _openssl(
            *("req", "-new", *_EC_KEY, *secret, "-subj", f"/CN={name}"),
            *("-config", self._config, "-keyout", made.key, "-out", request),
        )
        _openssl(
            *("x509", "-req", "-days", "2", "-in", request, "-extfile", extensions),
            *("-CA", self.cert, "-CAkey", self._key, "-CAcreateserial", "-out", made.cert),
        )
        return made


def _openssl(*arguments: str | Path) -> None:
    command = [OPENSSL or "openssl", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
