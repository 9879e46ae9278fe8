import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Load on a Kafka broker through the Java client. */
final class KafkaClient {
    public static void main(String[] args) {
        try {
            run(args);
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] args) throws Exception {
        Meter meter = new Meter(args);
        switch (meter.text("operation", "produce")) {
            case "create":
                create(meter);
                break;
            case "produce":
                produce(meter);
                break;
            case "consume":
                consume(meter);
                break;
            case "latency":
                latency(meter);
                break;
            case "restart":
                restart(meter);
                break;
            default:
                throw new IllegalArgumentException(meter.text("operation", ""));
        }
    }

    private static Properties properties(Meter meter) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", meter.text("address", ""));
        return properties;
    }

    private static void create(Meter meter) throws Exception {
        int topics = meter.number("topics", 1);
        long began = System.nanoTime();
        try (Admin admin = Admin.create(properties(meter))) {
            List<NewTopic> wanted = new ArrayList<>();
            for (int i = 0; i < topics; i++) {
                wanted.add(new NewTopic("bench-" + i, 1, (short) 1));
                if (wanted.size() == 500 || i == topics - 1) {
                    admin.createTopics(wanted).all().get(5, TimeUnit.MINUTES);
                    wanted.clear();
                }
            }
        }
        meter.result(topics, (System.nanoTime() - began) / 1e9, "");
    }

    private static KafkaProducer<byte[], byte[]> producer(Meter meter) {
        int size = meter.number("size_bytes", 1024);
        int batch = meter.number("batch", 64);
        int inFlight = meter.number("in_flight", 64);
        Properties properties = properties(meter);
        properties.put("acks", "all");
        properties.put("compression.type", "none");
        properties.put("buffer.memory", 256L * 1024 * 1024);
        // 61 bytes of batch header; a record without key costs 8 to 12 bytes beside its value.
        properties.put("batch.size", batch == 1 ? 1 : 61 + batch * (size + 10));
        properties.put("linger.ms", batch == 1 ? 0 : 5);
        properties.put("enable.idempotence", inFlight <= 5);
        properties.put("max.in.flight.requests.per.connection", inFlight);
        properties.put("max.request.size", batch == 1 ? 1048576 : Math.max(1048576, 4 * batch * (size + 100)));
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static void produce(Meter meter) throws Exception {
        int size = meter.number("size_bytes", 1024);
        int batch = meter.number("batch", 64);
        int topics = meter.number("topics", 1);
        long limit = meter.number("messages", 0);
        int permits = meter.number("in_flight", 64) * batch;
        Semaphore window = new Semaphore(permits);
        byte[][] bodies = Meter.payloads(size);
        KafkaProducer<byte[], byte[]> producer = producer(meter);
        Thread thread = new Thread(() -> {
            int body = 0;
            int topic = 0;
            long sent = 0;
            while (!meter.stopping && (limit == 0 || sent < limit)) {
                window.acquireUninterruptibly(batch);
                for (int i = 0; i < batch; i++) {
                    long began = System.nanoTime();
                    producer.send(new ProducerRecord<>("bench-" + topic, 0, null, bodies[body++ % bodies.length]),
                        (metadata, error) -> {
                            if (error == null) {
                                meter.acknowledged(1, began);
                            } else {
                                meter.fail(error);
                            }
                            window.release();
                        });
                }
                sent += batch;
                topic = (topic + 1) % topics;
                if (body > 1_000_000_000) {
                    body = 0;
                }
            }
        });
        thread.start();
        if (limit > 0) {
            long began = System.nanoTime();
            thread.join();
            producer.flush();
            long count = meter.messages.sum();
            meter.result(count, (System.nanoTime() - began) / 1e9, "");
        } else {
            meter.window();
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Meter meter) {
        Properties properties = properties(meter);
        properties.put("enable.auto.commit", "false");
        properties.put("max.poll.records", 10_000);
        properties.put("max.partition.fetch.bytes", 4 * 1024 * 1024);
        properties.put("receive.buffer.bytes", 1024 * 1024);
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void consume(Meter meter) {
        long expected = meter.number("messages", 1_000_000);
        KafkaConsumer<byte[], byte[]> consumer = consumer(meter);
        TopicPartition partition = new TopicPartition("bench-0", 0);
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        Passes passes = new Passes(meter, expected);
        while (passes.more()) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(1000));
            for (ConsumerRecord<byte[], byte[]> record : records) {
                passes.take();
            }
            if (passes.complete()) {
                consumer.seekToBeginning(List.of(partition));
            }
        }
    }

    private static void latency(Meter meter) throws Exception {
        int size = meter.number("size_bytes", 1024);
        int rate = meter.number("rate", 1000);
        Properties properties = properties(meter);
        properties.put("acks", "all");
        properties.put("linger.ms", 0);
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        Properties reading = properties(meter);
        reading.put("enable.auto.commit", "false");
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        TopicPartition partition = new TopicPartition("bench-0", 0);
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        Thread reader = new Thread(() -> {
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(500));
                long now = System.nanoTime();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    meter.messages.increment();
                    if (meter.measuring) {
                        meter.latency.record(now - ByteBuffer.wrap(record.value()).getLong());
                    }
                }
            }
        });
        reader.setDaemon(true);
        reader.start();
        Thread sender = new Thread(() -> {
            // Eight times the rate until three seconds before the window, so that the compiler has seen enough calls.
            long due = System.nanoTime();
            long slow = due + (long) ((Double.parseDouble(meter.text("warm_up_s", "5")) - 3) * 1e9);
            while (!meter.stopping) {
                due += 1_000_000_000L / (due < slow ? 8 * rate : rate);
                Pace.until(due);
                ByteBuffer body = ByteBuffer.allocate(size);
                body.putLong(due);
                producer.send(new ProducerRecord<>("bench-0", 0, null, body.array()), (metadata, error) -> {
                    if (error != null) {
                        meter.fail(error);
                    }
                });
            }
        });
        sender.setPriority(Thread.MAX_PRIORITY);
        sender.start();
        meter.window();
    }

    /** Sends one message and waits until it is acknowledged; prints the wall clock of that moment. */
    private static void restart(Meter meter) throws Exception {
        Properties properties = properties(meter);
        properties.put("acks", "all");
        properties.put("linger.ms", 0);
        properties.put("retry.backoff.ms", 10);
        properties.put("retry.backoff.max.ms", 20);
        properties.put("reconnect.backoff.ms", 10);
        properties.put("reconnect.backoff.max.ms", 20);
        properties.put("delivery.timeout.ms", 180_000);
        properties.put("request.timeout.ms", 1_000);
        properties.put("max.block.ms", 180_000);
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        producer.send(new ProducerRecord<>("bench-0", 0, null, new byte[1024])).get();
        Meter.say("@ready");
        System.in.read();
        producer.send(new ProducerRecord<>("bench-0", 0, null, new byte[1024])).get();
        Meter.say(String.format(Locale.ROOT, "@acknowledged %.4f", System.currentTimeMillis() / 1e3));
    }
}
