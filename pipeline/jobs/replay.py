"""The job ``replay``: messages of a store once more, in another topic of a live store or in a new store.

Each copy has the property REPLAY_OF, the message id of its original. A replay into a live store is one
staged_commit, called after what the replay is: done again, it adds nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import InvalidOption
from pipeline.jobs.new_store.joined_tables import new_topic
from pipeline.jobs.new_store.log_layout import RecordChange
from pipeline.jobs.new_store.log_slices import Longs, Rows, ServedRecords, SliceRecords
from pipeline.jobs.new_store.new_store import NewStore, Sources, StoreJob, finish_store
from pipeline.jobs.progress import job_progress
from pipeline.jobs.work import PIECE_BYTES, task_failures_raised
from pipeline.session.session import read_messages
from pipeline.sink.write_options import WRITER
from pipeline.source.endpoints import check_endpoint, tls_options
from storage.arrow.record_columns import RecordColumns
from storage.format.names import LIGHT_QUEUE_PREFIX, topic_name_problem
from storage.format.properties import NAME_END, PROPERTY_END
from storage.kernels.columns import STORE_TIMESTAMP, ByteArray
from storage.view.pieces import LogPiece
from storage.view.queues.record_queues import QueueKey
from storage.view.store_view import StoreView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.tls import TLS

MARK: Final = "REPLAY_OF"
VERSION: Final = 0
TIME_MAX: Final = 1 << 62
ASKED_S: Final = 10.0  # a writer, before Spark starts
UNREACHABLE_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What a replay did. ``already``: it had been done before, and added nothing.

    ``replay_id`` names the staged commit in a live store; ``store`` is the new one, if it made one.
    """

    messages: int
    already: bool
    replay_id: str
    store: NewStore | None
    seconds: float


@dataclass(frozen=True)
class Wanted(ServedRecords):
    """Chooses messages by time, tag and key. Times are ``[begin_ms, end_ms)``."""

    begin_ms: int = 0
    end_ms: int = TIME_MAX
    tags: tuple[str, ...] = ()
    key: str = ""

    def kept(
        self,
        piece: LogPiece,  # noqa: ARG002
        data: ByteArray,
        rows: Rows,
        keys: Sequence[QueueKey],  # noqa: ARG002
        key_of: Longs,  # noqa: ARG002
    ) -> npt.NDArray[np.bool_]:
        """Return which messages are to be replayed."""
        times = rows[:, STORE_TIMESTAMP]
        kept: npt.NDArray[np.bool_] = (times >= self.begin_ms) & (times < self.end_ms)
        batch = RecordColumns(data, rows, decompress_bodies=False)
        if self.tags:
            found = pc.is_in(batch.tags(), pa.array(self.tags, pa.string()))
            kept &= found.to_numpy(zero_copy_only=False)
        if self.key:
            padded = pc.binary_join_element_wise(" ", batch.keys(), " ", "")
            among = pc.match_substring(padded, f" {self.key} ")
            own = pc.equal(batch.message_id(), self.key)
            found = pc.or_kleene(pc.fill_null(among, False), own)
            kept &= found.to_numpy(zero_copy_only=False)
        return kept


@dataclass(frozen=True)
class Marked(RecordChange):
    """Brings messages into another topic and marks them."""

    def marks(self, taken: SliceRecords) -> tuple[npt.NDArray[np.uint8], Longs]:
        """Return REPLAY_OF for each record."""
        ids = RecordColumns(taken.data, taken.rows, decompress_bodies=False).message_id()
        pairs = pc.binary_join_element_wise(f"{MARK}{chr(NAME_END)}", ids, chr(PROPERTY_END), "")
        pairs = pairs.combine_chunks() if isinstance(pairs, pa.ChunkedArray) else pairs
        _, offsets, values = pairs.buffers()
        starts = np.frombuffer(offsets, np.int32)[pairs.offset : pairs.offset + len(pairs) + 1]
        return np.frombuffer(values, np.uint8), starts.astype(np.int64)


def replay(
    spark: SparkSession,
    store: str | Path,
    topics: str | Sequence[str],
    *,
    to_topic: str | None = None,
    endpoint: str | None = None,
    tls: TLS | None = None,
    target: str | Path | None = None,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    tags: str = "*",
    key: str | None = None,
    replay_id: str | None = None,
    piece_bytes: int = PIECE_BYTES,
    show_progress: bool = False,
) -> ReplayReport:
    """Write messages of ``topics`` again: to the writer at ``endpoint``, or to the new store ``target``.

    They are those stored in ``[begin_ms, end_ms)``, with one of ``tags`` (``"a || b"``), with ``key``
    among their keys or as their message id. ``to_topic`` may be left out for a new store, where
    messages then keep their topics; at an endpoint it must exist. Queue ids stay, by their remainder
    where the other topic has fewer queues; so does the order within a queue. Bodies are sent to an
    endpoint decompressed. Stored durably, all or nothing, on return.

    ``replay_id`` is otherwise made of all the arguments that say what is replayed and where to: the
    same arguments are the same replay, although without ``end_ms`` there may be more to replay by
    then. Raises InvalidOption, NotAStore, WriteFailed, TaskFailed.
    """
    began = perf_counter()
    names = [topics] if isinstance(topics, str) else list(topics)
    if (endpoint is None) == (target is None):
        raise InvalidOption("endpoint", "give either 'endpoint', a live writer, or 'target'")
    if endpoint is not None and to_topic is None:
        raise InvalidOption("to_topic", "missing; a replay into a live store goes to a topic there")
    if to_topic is not None and (problem := topic_name_problem(to_topic)):
        raise InvalidOption("to_topic", problem)
    if begin_ms is not None and end_ms is not None and begin_ms >= end_ms:
        raise InvalidOption("end_ms", f"{end_ms} is not after begin_ms, {begin_ms}")
    if target is not None and replay_id is not None:
        raise InvalidOption("replay_id", "means nothing for a new store; leave it out")
    sources = Sources.open([store])
    sources.check_topics("topics", names)
    light = [name for name in names if name.startswith(LIGHT_QUEUE_PREFIX)]
    if not names or light:
        raise InvalidOption("topics", f"{light[0]} is a light queue" if light else "names no topic")
    wanted = Wanted(
        dict.fromkeys(names, 0), begin_ms or 0, TIME_MAX if end_ms is None else end_ms,
        tuple(tag.strip() for tag in tags.split("||") if tag.strip() not in ("", "*")), key or "",
    )  # fmt: skip
    if target is not None:
        made = _to_store(
            spark, sources, wanted, to_topic, Path(target), piece_bytes, show_progress=show_progress
        )
        return ReplayReport(
            messages=made.records, already=False, replay_id="", store=made,
            seconds=perf_counter() - began,
        )  # fmt: skip
    assert endpoint is not None and to_topic is not None
    replay_id = replay_id or _identity(sources.plans[0].store, wanted, names, to_topic)
    from pipeline.sink.writer_connection import WriterConnection

    check_endpoint(endpoint, WRITER)
    with WriterConnection(endpoint, tls, timeout_s=ASKED_S, unreachable_s=UNREACHABLE_S) as writer:
        queue_count = writer.queue_count(to_topic)
        already = writer.is_committed(replay_id, VERSION)
    count = 0
    if not already:
        count = _to_writer(
            spark, store, names, wanted, {"endpoint": endpoint, **tls_options(tls)}, to_topic, queue_count,
            replay_id,
            show_progress=show_progress,
        )  # fmt: skip
    return ReplayReport(
        messages=count, already=already, replay_id=replay_id, store=None,
        seconds=perf_counter() - began,
    )  # fmt: skip


def _identity(store: StoreView, wanted: Wanted, topics: Sequence[str], to_topic: str) -> str:
    """Name a replay by what it is; the same arguments give the same name, wherever they are given."""
    place = store if store.location.is_url else store.paths.root.resolve()
    known = store.settings.store_id.hex() or str(place)
    definition = [
        known, sorted(topics), to_topic, wanted.begin_ms, wanted.end_ms, sorted(wanted.tags),
        wanted.key,
    ]  # fmt: skip
    digest = hashlib.sha256(json.dumps(definition).encode()).hexdigest()
    return f"replay-{digest[:32]}"


def _to_store(
    spark: SparkSession,
    sources: Sources,
    wanted: Wanted,
    to_topic: str | None,
    target: Path,
    piece_bytes: int,
    *,
    show_progress: bool,
) -> NewStore:
    outputs = wanted.outputs or {}
    with StoreJob.begin(
        spark, "replay", sources, target, outputs.__contains__,
        piece_bytes=piece_bytes, show_progress=show_progress,
    ) as job:  # fmt: skip
        change = Marked(to_topic or "")
        logs, _ = job.write([job.work], wanted, change, keep_offsets=False, carry=False)
        topics = None
        if to_topic is not None:
            count = max((queue_id for _, queue_id in logs[0].queues.queues), default=0)
            topics = {to_topic: new_topic(to_topic, count + 1)}
        chosen = outputs.__contains__
        made = finish_store(job.work, logs[0], sources, chosen, topics=topics, carry=False)
    return made.at(target)


def _to_writer(
    spark: SparkSession,
    store: str | Path,
    topics: Sequence[str],
    wanted: Wanted,
    place: Mapping[str, str],
    to_topic: str,
    queue_count: int,
    replay_id: str,
    *,
    show_progress: bool,
) -> int:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    frame = _frame(spark, store, topics, wanted, queue_count)
    bounds = StoreView.open(store).bounds
    size = bounds.end_offset - bounds.min_offset
    with (
        job_progress(spark, "replay", total_bytes=size, show=show_progress) as progress,
        progress.query(spark, size),
        task_failures_raised(),
    ):
        observed = Observation()
        (
            frame.observe(observed, f.count(f.lit(1)).alias("messages"))
            .write.format("penstock")
            .options(**place, topic=to_topic)
            .options(txnAppId=replay_id, txnVersion=VERSION)
            .mode("append")
            .save()
        )
    return int(observed.get["messages"])


def _frame(
    spark: SparkSession, store: str | Path, topics: Sequence[str], wanted: Wanted, queue_count: int
) -> DataFrame:
    from pyspark.sql import functions as f

    options: dict[str, Any] = {"subscribe": ",".join(topics), "mode": "FAILFAST"}
    if wanted.begin_ms:
        options |= {"startingTimestamp": wanted.begin_ms}
        options |= {"startingOffsetsByTimestampStrategy": "latest"}
    if wanted.end_ms < TIME_MAX:
        options["endingTimestamp"] = wanted.end_ms
    if wanted.tags:
        options["tags"] = " || ".join(wanted.tags)
    columns = ["queueId", "msgId", "tags", "keys", "headers", "body"]
    frame = read_messages(spark, str(store), columns=columns, includeHeaders=True, **options)
    if wanted.key:
        among = f.array_contains(f.split("keys", " "), wanted.key)
        frame = frame.where(f.coalesce(among, f.lit(False)) | (f.col("msgId") == wanted.key))
    own = f.coalesce("headers", f.array().cast("array<struct<key:string,value:binary>>"))
    mark = f.struct(f.lit(MARK).alias("key"), f.col("msgId").cast("binary").alias("value"))
    return frame.select(
        (f.col("queueId") % queue_count).cast("int").alias("queueId"),
        "tags",
        "keys",
        f.concat(f.filter(own, lambda header: header["key"] != MARK), f.array(mark)).alias(
            "headers"
        ),
        "body",
    )
