"""A Kafka 4 broker of one node for comparisons: jars from Maven Central, data kept between runs.

Needs ``java`` 17 or newer and ``mvn``. Jars lie in ``$XDG_CACHE_HOME/penstock-bench``.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from zlib import crc32

HERE: Final = Path(__file__).parent / "kafka"
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
START_TIMEOUT_S: Final = 60.0
CONNECTOR_JARS: Final = (
    "spark-sql-kafka",
    "spark-token-provider-kafka",
    "kafka-clients",
    "commons-pool2",
)


def fetch(pom: str) -> list[Path]:
    """Return the jars that a POM beside this file asks for, fetched by Maven at the first use."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")  # noqa: TID251
    file = HERE / f"{pom}-pom.xml"
    target = cache / "penstock-bench" / f"{pom}-{crc32(file.read_bytes()):08x}"
    if not (target / ".done").exists():
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        command = ["mvn", "-q", "-B", "-f", str(file), *goal, f"-DoutputDirectory={target}"]
        subprocess.run(command, check=True)
        (target / ".done").touch()
    return sorted(target.glob("*.jar"))


def connector_jars() -> str:
    """Return Spark's Kafka source and what it needs beside Spark, for ``spark.jars``.

    It is the newest on Maven Central, which may be a version behind Spark itself.
    """
    jars = fetch("connector")
    return ",".join(str(jar) for jar in jars if jar.name.startswith(CONNECTOR_JARS))


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def kafka_broker(data: Path) -> Iterator[str]:
    """Run a broker over ``data`` and yield its address; topics made by writing have 4 partitions."""
    java = [
        "java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35", "-cp", ":".join(map(str, fetch("broker"))),
    ]  # fmt: skip
    data.mkdir(parents=True, exist_ok=True)
    port, controller = free_port(), free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data / "logs",
        "log.retention.ms": -1,
        "num.partitions": 4,
        "offsets.topic.replication.factor": 1,
    }
    file = data / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    if not (data / "logs" / "meta.properties").exists():
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file)],
            check=True, capture_output=True,
        )  # fmt: skip
    with (data / "broker.log").open("wb") as log:
        broker = subprocess.Popen([*java, "kafka.Kafka", str(file)], stdout=log, stderr=log)
    try:
        _wait_for(port, broker)
        yield f"127.0.0.1:{port}"
    finally:
        broker.terminate()
        broker.wait(60)


def _wait_for(port: int, broker: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until:
        if broker.poll() is not None:
            raise RuntimeError(f"the broker ended with {broker.returncode}; see its broker.log")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError(f"the broker does not listen after {START_TIMEOUT_S:.0f} s")
