"""Flights in a store, read with Spark: run it cell by cell, or ``python docs/examples/flights_spark.py STORE``.

``make demo STAY=1`` leaves a store with a year of flights and the services on it running, and prints
where it is; the store may be in use meanwhile.
"""

# %% A session: Java, Python and the format are found by themselves
import sys
import tempfile

from pyspark.sql import functions as F

from pipeline import build_session, read_messages

store = sys.argv[1] if len(sys.argv) > 1 else "./store"
spark = build_session("local[2]")

# %% What is in the store? The queues' offsets answer most questions without reading a message
queues = spark.read.format("penstock").option("table", "queues").load(store)
queues.select("topic", "queueId", "minOffset", "maxOffset", "messages").show()

# %% Messages of a topic: the options are those of Kafka's source
flights = spark.read.format("penstock").option("subscribe", "flights").load(store)
flights.select("queueId", "queueOffset", "tags", "keys", "storeTimestamp").show(5, truncate=False)

# %% Bodies are bytes; here they are JSON
FIELDS = "carrier string, origin string, dest string, dep_delay bigint, arr_delay bigint"
parsed = flights.select(F.from_json(F.col("body").cast("string"), FIELDS).alias("f")).select("f.*")
by_carrier = (
    parsed.groupBy("carrier")
    .agg(F.avg("arr_delay").alias("mean_delay"), F.count("*").alias("flights"))
    .orderBy(F.desc("mean_delay"))
)
by_carrier.show()

# %% Name the columns you need: a read of headers touches no body
headers = read_messages(spark, store, columns=["queueId", "tags"], subscribe="flights")
headers.groupBy("tags").count().orderBy("tags").show()

# %% Select by options, not by filters: only messages with this tag leave the source
from_newark = read_messages(spark, store, columns=["body"], subscribe="flights", tags="EWR")
print("from Newark:", from_newark.count())

# %% A job written for Kafka needs another format and another address
kafka = spark.read.format("penstock").option("subscribe", "flights").option("kafkaColumns", "true")
kafka.load(store).groupBy("partition").agg(F.max("offset")).orderBy("partition").show()

# %% The same as a stream: everything there is now, in batches of at most 100,000 messages
stream = (
    spark.readStream.format("penstock")
    .option("subscribe", "flights")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", "100000")
    .load(store)
)
arrivals = stream.select(F.from_json(F.col("body").cast("string"), FIELDS).alias("f")).select("f.*")
query = (
    arrivals.groupBy("carrier")
    .agg(F.avg("arr_delay").alias("mean_delay"), F.count("*").alias("flights"))
    .writeStream.format("memory")
    .queryName("delays")
    .outputMode("complete")
    .option("checkpointLocation", tempfile.mkdtemp())
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
streamed = spark.table("delays").orderBy(F.desc("mean_delay"))
streamed.show()
