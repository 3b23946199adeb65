"""A real Apache Kafka on 127.0.0.1: one KRaft node, broker and controller in one."""

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path

from worker.embedded.failure import LaunchError, MissingPrerequisiteError
from worker.embedded.kafka_jars import java, kafka_jars
from worker.embedded.kafka_security import SUPER_USER, KafkaSecurity
from worker.embedded.keeper import Command, Keeper
from worker.embedded.loopback import HOST, answers_kafka
from worker.embedded.server import Server, await_serving

FORMAT_TIMEOUT_S = 60.0
START_TIMEOUT_S = 90.0
JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
"""A short life on a small machine: a start within seconds is worth more than peak throughput."""
LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %m (%c{1})%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


class ApacheKafka(Server):
    """One node with one replica of everything.

    Args:
        cache: where its jars are kept, or fetched to; None takes the user's cache.
        properties: further server properties, over the ones here.
        security: who may do what, over TLS; None lets everybody on this machine do everything.
    """

    name = "apache"
    port_count = 2

    def __init__(
        self,
        *,
        cache: Path | None = None,
        properties: Mapping[str, str] | None = None,
        security: KafkaSecurity | None = None,
    ) -> None:
        super().__init__()
        self._security = security
        self._cache = cache
        self._properties = dict(properties or {})

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    def settings_overrides(self) -> Mapping[str, object]:
        log_in = {} if self._security is None else self._security.settings_of(SUPER_USER)
        return {"bootstrap_servers": self.bootstrap_servers, **log_in}

    def _prepare(self, keeper: Keeper, ports: tuple[int, ...]) -> None:
        properties = {**node_properties(keeper.directory / "data", *ports), **self._properties}
        if self._security is not None:
            properties |= self._security.properties(keeper.directory)
        server_properties = keeper.directory / "server.properties"
        server_properties.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        (keeper.directory / "log4j2.properties").write_text(LOGGING)
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        users = () if self._security is None else self._security.format_arguments()
        arguments = ("format", "--standalone", f"--cluster-id={cluster_id}", "-c", str(server_properties), *users)
        try:
            keeper.run(self._java(keeper, "kafka.tools.StorageTool", *arguments), FORMAT_TIMEOUT_S)
        except LaunchError as error:
            if "UnsupportedClassVersionError" in str(error):
                raise MissingPrerequisiteError(f"Apache Kafka needs Java 17 or newer: {error}") from error
            raise

    def _serve(self, keeper: Keeper, ports: tuple[int, ...]) -> None:
        keeper.spawn(self._java(keeper, "kafka.Kafka", str(keeper.directory / "server.properties")))
        context = None if self._security is None else self._security.client_context()
        await_serving("Apache Kafka", keeper, lambda: answers_kafka(ports[0], context), timeout_s=START_TIMEOUT_S)

    def _java(self, keeper: Keeper, main_class: str, *arguments: str) -> Command:
        logging = f"-Dlog4j2.configurationFile={keeper.directory / 'log4j2.properties'}"
        options = (*JVM_OPTIONS, f"-Djava.io.tmpdir={keeper.directory}", logging)
        classpath = f"{kafka_jars(self._cache)}/*"
        # Our own environment, as `java` may be a shim that finds the real one by it.
        return Command((str(java()), *options, "-cp", classpath, main_class, *arguments), env=None)


def node_properties(data: Path, broker_port: int, controller_port: int) -> dict[str, str]:
    """Everything a single node needs: one replica of everything, few partitions, and no waiting for others."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
        "listeners": f"BROKER://{HOST}:{broker_port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"BROKER://{HOST}:{broker_port},CONTROLLER://{HOST}:{controller_port}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        # After SIGKILL a node is let in again only when its old registration has expired.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }
