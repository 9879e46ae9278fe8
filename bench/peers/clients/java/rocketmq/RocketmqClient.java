import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Load on a RocketMQ broker through the Java remoting client. */
final class RocketmqClient {
    private static final String BROKER = "bench-broker";

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
        System.setProperty("rocketmq.serialize.type", "ROCKETMQ");
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

    private static DefaultMQProducer producer(Meter meter) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench-producer");
        producer.setNamesrvAddr(meter.text("namesrv", "127.0.0.1:9876"));
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setSendMsgTimeout(10_000);
        producer.setVipChannelEnabled(false);
        producer.start();
        return producer;
    }

    private static MessageQueue[] queues(int topics) {
        MessageQueue[] queues = new MessageQueue[topics];
        for (int i = 0; i < topics; i++) {
            queues[i] = new MessageQueue("bench-" + i, BROKER, 0);
        }
        return queues;
    }

    /** A topic is known to the broker first and to the name server a moment later. */
    private static void waitForRoute(DefaultMQProducer producer, String topic) throws Exception {
        for (int tries = 0; ; tries++) {
            try {
                producer.fetchPublishMessageQueues(topic);
                return;
            } catch (Exception error) {
                if (tries == 200) {
                    throw error;
                }
                Thread.sleep(50);
            }
        }
    }

    private static void create(Meter meter) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(meter.text("namesrv", ""));
        admin.start();
        long began = System.nanoTime();
        int topics = meter.number("topics", 1);
        List<TopicConfig> wanted = new ArrayList<>();
        for (int i = 0; i < topics; i++) {
            wanted.add(new TopicConfig("bench-" + i, 1, 1));
            if (wanted.size() == 500 || i == topics - 1) {
                admin.createAndUpdateTopicConfigList(meter.text("broker", ""), wanted);
                wanted.clear();
            }
        }
        meter.result(topics, (System.nanoTime() - began) / 1e9, "");
    }

    private static void produce(Meter meter) throws Exception {
        int size = meter.number("size_bytes", 1024);
        int batch = meter.number("batch", 64);
        int topics = meter.number("topics", 1);
        long limit = meter.number("messages", 0);
        Semaphore window = new Semaphore(meter.number("in_flight", 64));
        byte[][] bodies = Meter.payloads(size);
        MessageQueue[] queues = queues(topics);
        DefaultMQProducer producer = producer(meter);
        waitForRoute(producer, queues[topics - 1].getTopic());
        long began = System.nanoTime();
        Thread thread = new Thread(() -> {
            int turn = 0;
            int body = 0;
            for (long sent = 0; !meter.stopping && (limit == 0 || sent < limit); sent += batch) {
                window.acquireUninterruptibly();
                MessageQueue queue = queues[turn];
                turn = (turn + 1) % topics;
                SendCallback answered = counting(meter, window, batch);
                try {
                    if (batch == 1) {
                        producer.send(new Message(queue.getTopic(), bodies[body++ % bodies.length]), queue, answered);
                    } else {
                        List<Message> messages = new ArrayList<>(batch);
                        for (int i = 0; i < batch; i++) {
                            messages.add(new Message(queue.getTopic(), bodies[body++ % bodies.length]));
                        }
                        producer.send(messages, queue, answered);
                    }
                    body %= bodies.length;
                } catch (Exception error) {
                    window.release();
                    meter.fail(error);
                }
            }
        });
        thread.start();
        if (limit > 0) {
            thread.join();
            window.acquireUninterruptibly(meter.number("in_flight", 64));
            meter.result(meter.messages.sum(), (System.nanoTime() - began) / 1e9, "");
        } else {
            meter.window();
        }
    }

    private static SendCallback counting(Meter meter, Semaphore window, int batch) {
        long began = System.nanoTime();
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    meter.acknowledged(batch, began);
                } else {
                    meter.fail(new IllegalStateException("" + result.getSendStatus()));
                }
                window.release();
            }

            @Override
            public void onException(Throwable error) {
                meter.fail(error);
                window.release();
            }
        };
    }

    private static void consume(Meter meter) throws Exception {
        long expected = meter.number("messages", 1_000_000);
        int topics = meter.number("topics", 1);
        int batch = meter.number("batch", 64);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("bench-consumer");
        consumer.setNamesrvAddr(meter.text("namesrv", ""));
        consumer.setAutoCommit(false);
        consumer.setVipChannelEnabled(false);
        consumer.setPullBatchSize(batch);
        consumer.setPullThresholdForAll(1_000_000);
        consumer.setPullThresholdForQueue(200_000);
        consumer.setPullThresholdSizeForQueue(512);
        consumer.start();
        List<MessageQueue> assigned = new ArrayList<>(consumer.fetchMessageQueues("bench-0"));
        consumer.assign(assigned);
        for (MessageQueue queue : assigned) {
            consumer.seekToBegin(queue);
        }
        Passes passes = new Passes(meter, expected);
        while (passes.more()) {
            for (MessageExt message : consumer.poll(1000)) {
                passes.take();
            }
            if (passes.complete()) {
                for (MessageQueue queue : assigned) {
                    consumer.seekToBegin(queue);
                }
            }
        }
    }

    private static void latency(Meter meter) throws Exception {
        int size = meter.number("size_bytes", 1024);
        int rate = meter.number("rate", 1000);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench-latency");
        consumer.setNamesrvAddr(meter.text("namesrv", ""));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setVipChannelEnabled(false);
        consumer.subscribe("bench-0", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            for (MessageExt message : messages) {
                meter.messages.increment();
                if (meter.measuring) {
                    meter.latency.record(now - ByteBuffer.wrap(message.getBody()).getLong());
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQProducer producer = producer(meter);
        MessageQueue queue = queues(1)[0];
        // A consumer that starts before its topic is routed looks again only 20 seconds later.
        waitForRoute(producer, queue.getTopic());
        consumer.start();
        Thread sender = new Thread(() -> {
            // Eight times the rate until three seconds before the window, so that the compiler has seen enough calls.
            long due = System.nanoTime();
            long slow = due + (long) ((Double.parseDouble(meter.text("warm_up_s", "5")) - 3) * 1e9);
            while (!meter.stopping) {
                due += 1_000_000_000L / (due < slow ? 8 * rate : rate);
                Pace.until(due);
                ByteBuffer body = ByteBuffer.allocate(size);
                body.putLong(due);
                try {
                    producer.send(new Message("bench-0", body.array()), queue, new SendCallback() {
                        @Override
                        public void onSuccess(SendResult result) {
                        }

                        @Override
                        public void onException(Throwable error) {
                            meter.fail(error);
                        }
                    });
                } catch (Exception error) {
                    meter.fail(error);
                }
            }
        });
        sender.setPriority(Thread.MAX_PRIORITY);
        sender.start();
        meter.window();
    }

    /** Sends one message again and again until one is acknowledged; prints the wall clock of that moment. */
    private static void restart(Meter meter) throws Exception {
        DefaultMQProducer producer = producer(meter);
        MessageQueue queue = queues(1)[0];
        waitForRoute(producer, queue.getTopic());
        Message message = new Message("bench-0", new byte[1024]);
        producer.send(message, queue);
        Meter.say("@ready");
        System.in.read();
        while (true) {
            try {
                if (producer.send(new Message("bench-0", new byte[1024]), queue, 1000).getSendStatus() == SendStatus.SEND_OK) {
                    break;
                }
            } catch (Exception error) {
                Thread.sleep(5);
            }
        }
        Meter.say(String.format(Locale.ROOT, "@acknowledged %.4f", System.currentTimeMillis() / 1e3));
    }
}
