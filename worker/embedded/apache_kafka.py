"""A real Apache Kafka on 127.0.0.1: one KRaft node, broker and controller in one."""

import base64
import signal
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from worker.embedded.broker import await_broker
from worker.embedded.failure import LaunchError
from worker.embedded.kafka_jars import kafka_jars, program
from worker.embedded.keeper import Command, Keeper
from worker.embedded.loopback import HOST, free_port, is_free

FORMAT_TIMEOUT_S = 60.0
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
PORT_ATTEMPTS = 3
JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true", "-Dlog4j2.level=WARN")
"""A short life in a small machine: a start in seconds is worth more than peak throughput."""


class ApacheKafka:
    """One node, formatted at the first start.

    Args:
        cache: where its jars are kept, or fetched to; None takes the user's cache.
        properties: further server properties, over the ones here.
    """

    name = "apache"

    def __init__(self, *, cache: Path | None = None, properties: Mapping[str, str] | None = None) -> None:
        self._cache = cache
        self._properties = dict(properties or {})
        self._keeper: Keeper | None = None
        self._classpath = ""
        self._port = 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        if not self._port:
            raise LaunchError("Apache Kafka has not been started")
        return f"{HOST}:{self._port}"

    def settings_overrides(self) -> Mapping[str, object]:
        return {"bootstrap_servers": self.bootstrap_servers}

    def start(self) -> None:
        """Returns when the broker answers; after `stop` or `kill`, on the same port with the same data.

        Raises:
            LaunchError: it did not start; MissingPrerequisiteError: java, or mvn for the first fetch, is missing.
        """
        if self._port:
            if self._kept.pid is None:
                self._serve(self._port)
            return
        program("java")
        self._classpath = f"{kafka_jars(self._cache)}/*"
        for attempt in range(PORT_ATTEMPTS):
            ports = free_port(), free_port()
            try:
                self._format(*ports)
                self._serve(ports[0])
            except LaunchError:
                self.close()
                # A port was taken between the look and the bind: that alone is worth another try.
                if attempt == PORT_ATTEMPTS - 1 or all(is_free(port) for port in ports):
                    raise
                continue
            self._port = ports[0]
            return

    def stop(self) -> None:
        """SIGTERM: segments are flushed and the node is shut down in order."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    @property
    def _kept(self) -> Keeper:
        if self._keeper is None:
            raise LaunchError("Apache Kafka is not there: not started, or closed")
        return self._keeper

    @property
    def _properties_file(self) -> Path:
        return self._kept.directory / "server.properties"

    def _signal(self, number: signal.Signals) -> None:
        self._kept.signal(number)
        if self._kept.wait(STOP_TIMEOUT_S) is None and self._kept.pid is not None:
            raise LaunchError(f"Apache Kafka did not stop within {STOP_TIMEOUT_S:g} s{self._kept.output_tail()}")

    def _format(self, broker_port: int, controller_port: int) -> None:
        self._keeper = Keeper()
        properties = {**node_properties(self._keeper.directory / "data", broker_port, controller_port), **self._properties}
        self._properties_file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        arguments = ("format", "--standalone", f"--cluster-id={cluster_id}", "-c", str(self._properties_file))
        self._keeper.run(self._java("kafka.tools.StorageTool", *arguments), FORMAT_TIMEOUT_S)

    def _serve(self, port: int) -> None:
        self._kept.spawn(self._java("kafka.Kafka", str(self._properties_file)))
        await_broker("Apache Kafka", self._kept, port, START_TIMEOUT_S)

    def _java(self, main_class: str, *arguments: str) -> Command:
        options = (*JVM_OPTIONS, f"-Djava.io.tmpdir={self._kept.directory}", "-cp", self._classpath)
        return Command((str(program("java")), *options, main_class, *arguments), env={})


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
