"""A Kafka 4 broker of one node for comparisons: jars from Maven Central, data kept between runs.

Needs ``java`` 17 or newer and ``mvn``. Jars lie in ``$XDG_CACHE_HOME/penstock-bench``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.peers import software
from bench.peers.jvm_peers import kafka_java, set_up_kafka
from bench.peers.peer import free_port, wait_for_port

CONNECTOR_POM: Final = Path(__file__).parent / "kafka" / "connector-pom.xml"
CONNECTOR_JARS: Final = (
    "spark-sql-kafka",
    "spark-token-provider-kafka",
    "kafka-clients",
    "commons-pool2",
)


def connector_jars() -> str:
    """Return Spark's Kafka source and what it needs beside Spark, for ``spark.jars``.

    It is the newest on Maven Central, which may be a version behind Spark itself.
    """
    jars = software.jars(CONNECTOR_POM)
    return ",".join(
        str(jar) for jar in sorted(jars.glob("*.jar")) if jar.name.startswith(CONNECTOR_JARS)
    )


@contextmanager
def kafka_broker(data: Path) -> Iterator[str]:
    """Run a broker over ``data`` and yield its address; topics made by writing have 4 partitions."""
    data.mkdir(parents=True, exist_ok=True)
    port = free_port()
    kept = {"log.retention.ms": -1, "num.partitions": 4}
    settings = set_up_kafka(data, port, free_port(), kept)
    with (data / "broker.log").open("wb") as log:
        broker = subprocess.Popen(kafka_java("kafka.Kafka", settings), stdout=log, stderr=log)
    try:
        wait_for_port(port, broker)
        yield f"127.0.0.1:{port}"
    finally:
        broker.terminate()
        broker.wait(60)
