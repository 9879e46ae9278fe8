"""RocketMQ and Kafka: servers and clients on the JVM."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.peers import software
from bench.peers.cells import Cell
from bench.peers.peer import Peer, free_port, wait_for_port
from bench.peers.programs import OPENED

KAFKA_CLUSTER: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
KAFKA_POM: Final = software.CLIENTS / "java" / "kafka" / "kafka-pom.xml"
ROCKETMQ_POM: Final = software.CLIENTS / "java" / "rocketmq" / "rocketmq-pom.xml"
ROCKETMQ_VERSION: Final = "5.3.3"
KAFKA_VERSION: Final = "4.1.0"


def kafka_java(*main: object, heap: str = "1g", classes: Sequence[Path] = ()) -> list[str]:
    """Return the command of a Java program that has Kafka's jars."""
    path = ":".join([*map(str, classes), f"{software.jars(KAFKA_POM)}/*"])
    return [
        software.require("java", "default-jdk-headless"), f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-cp", path, *map(str, main),
    ]  # fmt: skip


def set_up_kafka(data: Path, port: int, controller: int, settings: Mapping[str, object]) -> Path:
    """Write the settings of a broker of one node, format its directory unless it is; return their file."""
    address = f"127.0.0.1:{port}"
    wanted = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data / "logs",
        "offsets.topic.replication.factor": 1,
        **settings,
    }
    file = data / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in wanted.items()))
    if not (data / "logs" / "meta.properties").exists():
        storage = kafka_java("kafka.tools.StorageTool", "format", "-t", KAFKA_CLUSTER, "-c", file)
        subprocess.run(storage, check=True, capture_output=True)
    return file


class KafkaPeer(Peer):
    """One KRaft node that is broker and controller."""

    name = "kafka"
    warm_up_s = 20.0

    @classmethod
    def prepare(cls) -> str:
        """Fetch the jars and compile the client."""
        software.java_classes("kafka", software.jars(KAFKA_POM))
        return KAFKA_VERSION

    def start(self) -> None:
        """Start the broker."""
        settings: dict[str, object] = {"auto.create.topics.enable": "false"}
        if self.is_sync:
            settings["log.flush.interval.messages"] = 1
        self._settings = set_up_kafka(self.directory, self.port, free_port(), settings)
        super().start()

    def start_again(self) -> None:
        """Start the broker and leave it to itself."""
        self.run(*kafka_java("kafka.Kafka", self._settings))

    @property
    def native_client(self) -> Sequence[object]:
        """The Java client."""
        classes = software.java_classes("kafka", software.jars(KAFKA_POM))
        return kafka_java("KafkaClient", classes=[classes])


class RocketmqPeer(Peer):
    """Name server and broker."""

    name = "rocketmq"
    warm_up_s = 20.0
    has_python_client = False  # its own sends one message a call, to a proxy

    def __init__(self, directory: Path, cell: Cell) -> None:
        super().__init__(directory, cell)
        self._name_server_port = free_port()

    @classmethod
    def prepare(cls) -> str:
        """Fetch the jars and compile the client."""
        software.java_classes("rocketmq", software.jars(ROCKETMQ_POM))
        return ROCKETMQ_VERSION

    def _java(self, heap: str, *main: object) -> list[str]:
        jars = software.jars(ROCKETMQ_POM)
        return [
            software.require("java", "default-jdk-headless"), f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC",
            "-XX:-UseLargePages", "-XX:MaxDirectMemorySize=4g", *OPENED, f"-Duser.home={self.directory}",
            f"-Drocketmq.home.dir={self.directory}", f"-Drocketmq.log.root={self.directory}/logs",
            "-Drocketmq.client.logLevel=ERROR", f"-Drocketmq.client.logRoot={self.directory}/logs",
            "-cp", f"{software.java_classes('rocketmq', jars)}:{jars}/*", *map(str, main),
        ]  # fmt: skip

    def start(self) -> None:
        """Start the name server and the broker."""
        settings = self.directory / "name-server.conf"
        settings.write_text(f"listenPort={self._name_server_port}\n")
        name_server = self.run(
            *self._java("256m", "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", settings)
        )
        wait_for_port(self._name_server_port, name_server)
        store = self.directory / "store"
        broker: dict[str, object] = {
            "brokerClusterName": "bench", "brokerName": "bench-broker", "brokerId": 0,
            "brokerIP1": "127.0.0.1", "namesrvAddr": f"127.0.0.1:{self._name_server_port}",
            "listenPort": self.port, "haListenPort": free_port(), "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "flushDiskType": "SYNC_FLUSH" if self.is_sync else "ASYNC_FLUSH",
            "autoCreateTopicEnable": "false", "diskMaxUsedSpaceRatio": 95,
            "waitTimeMillsInSendQueue": 5000,
        }  # fmt: skip
        if self.cell.operation == "consume":  # its default is 32 messages or 256 KiB an answer
            broker |= {
                "maxTransferCountOnMessageInMemory": 4096, "maxTransferBytesOnMessageInMemory": 4 << 20,
            }  # fmt: skip
        (self.directory / "broker.conf").write_text(
            "".join(f"{name}={value}\n" for name, value in broker.items())
        )
        self.start_again()
        wait_for_port(self.port, self.processes[-1])

    def start_again(self) -> None:
        """Start the broker and leave it to itself."""
        settings = self.directory / "broker.conf"
        self.run(*self._java("2g", "org.apache.rocketmq.broker.BrokerStartup", "-c", settings))

    @property
    def native_client(self) -> Sequence[object]:
        """The Java remoting client."""
        return self._java("1g", "RocketmqClient")

    @property
    def arguments(self) -> dict[str, object]:
        """Where name server and broker are."""
        return {"namesrv": f"127.0.0.1:{self._name_server_port}", "broker": self.address}
