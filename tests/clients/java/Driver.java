import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.Closeable;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.RecallReceipt;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** Runs the official Java client by commands: one JSON object a line in, one a line out. README.md lists them. */
final class Driver {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Gson GSON = new GsonBuilder().serializeNulls().create();
    private static final PrintStream OUT = System.out;

    private final ClientConfiguration configuration;
    private final Map<String, Closeable> clients = new ConcurrentHashMap<>();
    private final Map<Integer, MessageView> taken = new ConcurrentHashMap<>();
    private final AtomicInteger refs = new AtomicInteger();

    private Driver(String address, boolean tls) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(address).enableSsl(tls);
        String accessKey = System.getenv("DRIVER_ACCESS_KEY");
        if (!accessKey.isEmpty()) {
            builder.setCredentialProvider(
                new StaticSessionCredentialsProvider(accessKey, System.getenv("DRIVER_SECRET_KEY")));
        }
        configuration = builder.build();
    }

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // the client's log
        Driver driver = new Driver(args[0], args[1].equals("tls"));
        ExecutorService pool = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonObject command = JsonParser.parseString(line).getAsJsonObject();
            pool.submit(() -> driver.answer(command));
        }
        Runtime.getRuntime().halt(0);
    }

    static void say(Map<String, Object> value) {
        byte[] line = (GSON.toJson(value) + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (OUT) {
            OUT.write(line, 0, line.length);
            OUT.flush();
        }
    }

    private void answer(JsonObject command) {
        Map<String, Object> said = new HashMap<>();
        try {
            said.putAll(perform(command));
        } catch (Throwable error) {
            Throwable cause = error;
            for (Throwable next = error; next != null; next = next.getCause()) {
                cause = next;
            }
            said.put("error", error + (cause == error ? "" : "; " + cause));
        }
        said.put("id", command.get("id").getAsInt());
        say(said);
    }

    private Map<String, Object> perform(JsonObject command) throws Exception {
        String name = text(command, "name");
        switch (text(command, "do")) {
            case "start":
                clients.put(name, start(name, command));
                return Map.of();
            case "send": {
                List<String> ids = new ArrayList<>();
                List<String> handles = new ArrayList<>();
                for (JsonElement wanted : command.getAsJsonArray("messages")) {
                    SendReceipt receipt = ((Producer) clients.get(name)).send(outgoing(wanted.getAsJsonObject()));
                    ids.add(receipt.getMessageId().toString());
                    handles.add(receipt.getRecallHandle());
                }
                return Map.of("ids", ids, "recall_handles", handles);
            }
            case "recall": {
                Producer producer = (Producer) clients.get(name);
                RecallReceipt receipt = producer.recallMessage(text(command, "topic"), text(command, "recall_handle"));
                return Map.of("message_id", receipt.getMessageId().toString());
            }
            case "send_transaction": {
                Producer producer = (Producer) clients.get(name);
                Transaction transaction = producer.beginTransaction();
                Message message = outgoing(command.getAsJsonObject("message"));
                String id = producer.send(message, transaction).getMessageId().toString();
                if (text(command, "end").equals("commit")) {
                    transaction.commit();
                } else if (text(command, "end").equals("rollback")) {
                    transaction.rollback();
                }
                return Map.of("ids", List.of(id));
            }
            case "receive": {
                List<Map<String, Object>> found = new ArrayList<>();
                for (MessageView message : simple(name).receive(number(command, "max"), invisible(command))) {
                    Map<String, Object> described = described(message);
                    int ref = refs.incrementAndGet();
                    taken.put(ref, message);
                    described.put("ref", ref);
                    found.add(described);
                }
                return Map.of("messages", found);
            }
            case "ack":
                simple(name).ack(taken.get(number(command, "ref")));
                return Map.of();
            case "change":
                simple(name).changeInvisibleDuration(taken.get(number(command, "ref")), invisible(command));
                return Map.of();
            case "stop":
                clients.remove(name).close();
                return Map.of();
            default:
                return Bench.perform(PROVIDER, configuration, command);
        }
    }

    private Closeable start(String name, JsonObject command) throws Exception {
        switch (text(command, "kind")) {
            case "producer":
                ProducerBuilder builder = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
                    .setTopics(text(command, "topic"));
                if (command.has("checks") && command.get("checks").getAsBoolean()) {
                    builder.setTransactionChecker(message -> TransactionResolution.valueOf(
                        message.getProperties().getOrDefault("checked", "ROLLBACK")));
                }
                return builder.build();
            case "simple":
                return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                    .setConsumerGroup(text(command, "group")).setSubscriptionExpressions(subscriptions(command))
                    .setAwaitDuration(Duration.ofMillis(number(command, "await_ms"))).build();
            default:
                return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
                    .setConsumerGroup(text(command, "group")).setSubscriptionExpressions(subscriptions(command))
                    .setMessageListener(listener(name)).build();
        }
    }

    /** Fails and sleeps as the message's own properties ask for. */
    private static MessageListener listener(String name) {
        Map<String, Integer> calls = new ConcurrentHashMap<>();
        return message -> {
            String id = message.getMessageId().toString();
            int call = calls.merge(id, 1, Integer::sum);
            say(Map.of("event", "call", "name", name, "call", call, "message", described(message)));
            try {
                Thread.sleep(Long.parseLong(message.getProperties().getOrDefault("sleep_ms", "0")));
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
            boolean good = call > Integer.parseInt(message.getProperties().getOrDefault("fail_times", "0"));
            say(Map.of("event", "return", "name", name, "call", call, "id", id, "ok", good));
            return good ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
        };
    }

    private static Map<String, FilterExpression> subscriptions(JsonObject command) {
        FilterExpression filter = FilterExpression.SUB_ALL;
        JsonObject wanted = command.getAsJsonObject("filter");
        if (wanted != null) {
            filter = wanted.has("sql") ? new FilterExpression(text(wanted, "sql"), FilterExpressionType.SQL92)
                : new FilterExpression(text(wanted, "tag"));
        }
        return Map.of(text(command, "topic"), filter);
    }

    private static Message outgoing(JsonObject wanted) {
        MessageBuilder message = PROVIDER.newMessageBuilder().setTopic(text(wanted, "topic")).setBody(wanted.has("size")
            ? pattern(number(wanted, "size")) : text(wanted, "body").getBytes(StandardCharsets.UTF_8));
        if (wanted.has("tag")) {
            message.setTag(text(wanted, "tag"));
        }
        if (wanted.has("keys")) {
            JsonArray keys = wanted.getAsJsonArray("keys");
            message.setKeys(keys.asList().stream().map(JsonElement::getAsString).toArray(String[]::new));
        }
        if (wanted.has("message_group")) {
            message.setMessageGroup(text(wanted, "message_group"));
        }
        if (wanted.has("deliver_ms")) {
            message.setDeliveryTimestamp(wanted.get("deliver_ms").getAsLong());
        }
        if (wanted.has("properties")) {
            wanted.getAsJsonObject("properties").asMap()
                .forEach((key, value) -> message.addProperty(key, value.getAsString()));
        }
        return message.build();
    }

    private static Map<String, Object> described(MessageView message) {
        byte[] body = new byte[message.getBody().remaining()];
        message.getBody().get(body);
        Map<String, Object> found = new HashMap<>();
        found.put("id", message.getMessageId().toString());
        found.put("topic", message.getTopic());
        found.put("size", body.length);
        found.put("tag", message.getTag().orElse(null));
        found.put("keys", new TreeSet<>(message.getKeys()));
        found.put("properties", message.getProperties());
        found.put("message_group", message.getMessageGroup().orElse(null));
        found.put("attempt", message.getDeliveryAttempt());
        found.put("born_ms", message.getBornTimestamp());
        if (body.length <= 1000) {
            found.put("body", new String(body, StandardCharsets.UTF_8));
        } else {
            found.put("pattern", java.util.Arrays.equals(body, pattern(body.length)));
        }
        return found;
    }

    private SimpleConsumer simple(String name) {
        return (SimpleConsumer) clients.get(name);
    }

    private static byte[] pattern(int size) {
        byte[] body = new byte[size];
        for (int i = 0; i < size; i++) {
            body[i] = (byte) (i % 251);
        }
        return body;
    }

    private static Duration invisible(JsonObject command) {
        return Duration.ofMillis(number(command, "invisible_ms"));
    }

    static String text(JsonObject object, String name) {
        return object.has(name) ? object.get(name).getAsString() : "";
    }

    static int number(JsonObject object, String name) {
        return object.get(name).getAsInt();
    }
}
