"""Certificates for servers on 127.0.0.1, from an authority of the moment: for trying TLS, never for relying on it."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from worker.embedded.failure import LaunchError, MissingPrerequisiteError

OPENSSL_TIMEOUT_S = 30.0
DAYS = "30"
CONFIGURATION = """\
[req]
distinguished_name = subject
[subject]
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
subjectAltName = {names}
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


@dataclass(frozen=True, slots=True)
class Certificate:
    """Two PEM files; the key is PKCS #8, unencrypted."""

    certificate: Path
    key: Path


class Authority:
    """Keeps its files in a directory of its owner's.

    Raises:
        MissingPrerequisiteError: there is no `openssl`.
    """

    def __init__(self, directory: Path) -> None:
        found = shutil.which("openssl")
        if found is None:
            raise MissingPrerequisiteError("certificates need `openssl`, which is not installed")
        self._openssl = found
        self._directory = directory
        self._own = self._made("authority", "authority", "IP:127.0.0.1", ())

    @property
    def ca_file(self) -> Path:
        return self._own.certificate

    def issue(self, name: str, names: str = "IP:127.0.0.1,DNS:localhost") -> Certificate:
        """A certificate for a server of these alternative names, as OpenSSL writes them."""
        return self._made(name, "server", names, ("-CA", str(self._own.certificate), "-CAkey", str(self._own.key)))

    def _made(self, name: str, extensions: str, names: str, signer: tuple[str, ...]) -> Certificate:
        made = Certificate(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        configuration = self._directory / f"{name}.cnf"
        configuration.write_text(CONFIGURATION.format(names=names))
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(made.key))
        subject = ("-subj", f"/CN={name} of a test", "-days", DAYS, "-out", str(made.certificate))
        argv = (self._openssl, "req", "-x509", "-config", str(configuration), "-extensions", extensions)
        ran = subprocess.run(  # noqa: S603  # found on the PATH
            (*argv, *key, *subject, *signer), check=False, capture_output=True, text=True, timeout=OPENSSL_TIMEOUT_S
        )
        if ran.returncode != 0:
            raise LaunchError(f"openssl made no certificate: {ran.stderr.strip()}")
        return made
