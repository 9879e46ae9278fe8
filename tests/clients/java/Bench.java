import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.producer.Producer;

/** Rates and latencies, measured beside the client. */
final class Bench {
    static Map<String, Object> perform(
            ClientServiceProvider provider, ClientConfiguration configuration, JsonObject command) throws Exception {
        switch (Driver.text(command, "do")) {
            case "bench_send":
                return send(provider, configuration, command);
            case "bench_push":
                return push(provider, configuration, command);
            case "bench_latency":
                return latency(provider, configuration, command);
            default:
                throw new IllegalArgumentException(Driver.text(command, "do"));
        }
    }

    private static Message message(ClientServiceProvider provider, JsonObject command, byte[] body) {
        return provider.newMessageBuilder().setTopic(Driver.text(command, "topic")).setBody(body).build();
    }

    private static Map<String, Object> send(
            ClientServiceProvider provider, ClientConfiguration configuration, JsonObject command) throws Exception {
        Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(Driver.text(command, "topic")).build();
        Semaphore window = new Semaphore(Driver.number(command, "in_flight"));
        byte[] body = new byte[Driver.number(command, "size")];
        AtomicLong sent = new AtomicLong();
        AtomicInteger errors = new AtomicInteger();
        long began = System.nanoTime();
        long warm = began + Driver.number(command, "warm_ms") * 1_000_000L;
        long end = warm + Driver.number(command, "run_ms") * 1_000_000L;
        while (System.nanoTime() < end) {
            window.acquire();
            producer.sendAsync(message(provider, command, body)).whenComplete((receipt, error) -> {
                window.release();
                if (error != null) {
                    errors.incrementAndGet();
                } else {
                    long now = System.nanoTime();
                    if (now >= warm && now < end) {
                        sent.incrementAndGet();
                    }
                }
            });
        }
        window.acquire(Driver.number(command, "in_flight"));
        producer.close();
        return Map.of("count", sent.get(), "seconds", (end - warm) / 1e9, "errors", errors.get());
    }

    private static Map<String, Object> push(
            ClientServiceProvider provider, ClientConfiguration configuration, JsonObject command) throws Exception {
        int wanted = Driver.number(command, "count");
        AtomicInteger calls = new AtomicInteger();
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
        int skipped = wanted / 5;
        PushConsumer consumer = provider.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(Driver.text(command, "group"))
            .setSubscriptionExpressions(Collections.singletonMap(Driver.text(command, "topic"), FilterExpression.SUB_ALL))
            .setMaxCacheMessageCount(4096)
            .setMessageListener(message -> {
                int call = calls.incrementAndGet();
                if (call == skipped) {
                    first.set(System.nanoTime());
                } else if (call == wanted) {
                    last.set(System.nanoTime());
                }
                return ConsumeResult.SUCCESS;
            }).build();
        long end = System.nanoTime() + 120_000_000_000L;
        while (last.get() == 0 && System.nanoTime() < end) {
            Thread.sleep(5);
        }
        consumer.close();
        return Map.of("count", wanted - skipped, "seconds", (last.get() - first.get()) / 1e9, "errors", 0);
    }

    private static Map<String, Object> latency(
            ClientServiceProvider provider, ClientConfiguration configuration, JsonObject command) throws Exception {
        int count = Driver.number(command, "count");
        int rate = Driver.number(command, "rate");
        int skipped = 3 * rate;
        long[] times = new long[skipped + count];
        AtomicInteger calls = new AtomicInteger();
        PushConsumer consumer = provider.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(Driver.text(command, "group"))
            .setSubscriptionExpressions(Collections.singletonMap(Driver.text(command, "topic"), FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                ByteBuffer body = message.getBody();
                int number = body.getInt();
                times[number] = System.nanoTime() - body.getLong();
                calls.incrementAndGet();
                return ConsumeResult.SUCCESS;
            }).build();
        Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(Driver.text(command, "topic")).build();
        Thread.sleep(2000);
        long due = System.nanoTime();
        for (int i = 0; i < times.length; i++) {
            due += 1_000_000_000L / rate;
            long pause = due - System.nanoTime();
            if (pause > 0) {
                Thread.sleep(Duration.ofNanos(pause).toMillis(), (int) (pause % 1_000_000));
            }
            ByteBuffer body = ByteBuffer.allocate(Driver.number(command, "size"));
            body.putInt(i).putLong(due);
            producer.sendAsync(message(provider, command, body.array()));
        }
        long end = System.nanoTime() + 30_000_000_000L;
        while (calls.get() < times.length && System.nanoTime() < end) {
            Thread.sleep(10);
        }
        producer.close();
        consumer.close();
        long[] measured = Arrays.copyOfRange(times, skipped, times.length);
        Arrays.sort(measured);
        return Map.of("count", calls.get() - skipped, "seconds", count / (double) rate, "errors", times.length - calls.get(),
            "p50_ms", measured[count / 2] / 1e6, "p99_ms", measured[count * 99 / 100] / 1e6);
    }
}
