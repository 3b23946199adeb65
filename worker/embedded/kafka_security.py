"""A broker that lets in who it knows, over TLS, and lets each do what an ACL says: for trying that, on 127.0.0.1."""

import secrets
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from worker.embedded.authority import Authority

SUPER_USER = "admin"
LOGIN_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class KafkaSecurity:
    """TLS from `authority`, passwords for `users`, and no right that no ACL gives; `admin` may do everything.

    The controller's own listener stays open to 127.0.0.1, unencrypted, with every right.
    """

    authority: Authority
    users: Sequence[str]
    passwords: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        passwords = {user: secrets.token_urlsafe(16) for user in (SUPER_USER, *self.users)}
        object.__setattr__(self, "passwords", passwords)

    def settings_of(self, user: str, mechanism: str = "SCRAM-SHA-256") -> Mapping[str, object]:
        """Fields of `KafkaSettings` with which this user gets in."""
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": mechanism,
            "sasl_username": user,
            "sasl_password": self.passwords[user],
            "ssl_ca_file": self.authority.ca_file,
        }

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.ca_file))

    def format_arguments(self) -> Sequence[str]:
        """What makes the users as the cluster is made: nobody could log in to make them."""
        return [
            part
            for user, password in self.passwords.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for part in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
        ]

    def properties(self, directory: Path) -> Mapping[str, str]:
        """Server properties, over those of a node without security; writes its key and certificate there."""
        issued = self.authority.issue("broker")
        keystore = directory / "keystore.pem"
        keystore.touch(mode=0o600)
        keystore.write_text(issued.key.read_text() + issued.certificate.read_text())
        admin = f'username="{SUPER_USER}" password="{self.passwords[SUPER_USER]}"'
        users = " ".join(f'user_{user}="{password}"' for user, password in self.passwords.items())
        listener = "listener.name.broker"
        return {
            "listener.security.protocol.map": "BROKER:SASL_SSL,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            f"{listener}.scram-sha-256.sasl.jaas.config": f"{LOGIN_MODULES}.scram.ScramLoginModule required {admin};",
            f"{listener}.scram-sha-512.sasl.jaas.config": f"{LOGIN_MODULES}.scram.ScramLoginModule required;",
            f"{listener}.plain.sasl.jaas.config": f"{LOGIN_MODULES}.plain.PlainLoginModule required {users};",
            # Takes unsigned tokens, which is all that a test can issue.
            f"{listener}.oauthbearer.sasl.jaas.config": (
                f"{LOGIN_MODULES}.oauthbearer.OAuthBearerLoginModule required "
                f'unsecuredLoginStringClaim_sub="{SUPER_USER}";'
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.ca_file),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{SUPER_USER};User:ANONYMOUS",
        }
