import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.LongAdder;

/**
 * What both clients share: key=value arguments, bodies, a latency histogram and the lines (@begin, @end, @result) by
 * which bench.peers knows the measured window.
 */
final class Meter {
    private final Map<String, String> arguments = new HashMap<>();
    final LongAdder messages = new LongAdder();
    final LongAdder errors = new LongAdder();
    final Histogram latency = new Histogram();
    volatile boolean measuring;
    volatile boolean stopping;
    volatile String firstError = "";

    Meter(String[] args) {
        for (String argument : args) {
            int equals = argument.indexOf('=');
            if (equals > 0) {
                arguments.put(argument.substring(0, equals), argument.substring(equals + 1));
            }
        }
    }

    String text(String key, String otherwise) {
        return arguments.getOrDefault(key, otherwise);
    }

    int number(String key, int otherwise) {
        String value = arguments.get(key);
        return value == null ? otherwise : Integer.parseInt(value);
    }

    /** 1,000 bodies that compress to half: random first half, zero second half. */
    static byte[][] payloads(int size) {
        byte[][] pool = new byte[1000][];
        java.util.Random random = new java.util.Random(7);
        for (int i = 0; i < pool.length; i++) {
            byte[] body = new byte[size];
            byte[] half = new byte[size / 2];
            random.nextBytes(half);
            System.arraycopy(half, 0, body, 0, half.length);
            pool[i] = body;
        }
        return pool;
    }

    void fail(Throwable error) {
        errors.increment();
        if (firstError.isEmpty()) {
            firstError = String.valueOf(error).replace('"', '\'').replace('\n', ' ').replace('\\', '/');
        }
    }

    void acknowledged(long count, long sentAtNanos) {
        messages.add(count);
        if (measuring) {
            latency.record(System.nanoTime() - sentAtNanos);
        }
    }

    static void say(String line) {
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    /** Sleeps through warm-up and the measured seconds while the load runs, then prints the result. */
    void window() throws InterruptedException {
        long warm = (long) (Double.parseDouble(text("warm_up_s", "5")) * 1000);
        long measured = (long) (Double.parseDouble(text("seconds", "10")) * 1000);
        Thread.sleep(warm);
        long before = messages.sum();
        say("@begin");
        measuring = true;
        long began = System.nanoTime();
        Thread.sleep(measured);
        long after = messages.sum();
        long ended = System.nanoTime();
        measuring = false;
        say("@end");
        result(after - before, (ended - began) / 1e9, "");
    }

    void result(long count, double seconds, String extra) {
        String percentiles = latency.count() == 0 ? "" : String.format(Locale.ROOT,
            ",\"p50_ms\":%.4f,\"p99_ms\":%.4f", latency.at(0.5), latency.at(0.99));
        say(String.format(Locale.ROOT,
            "@result {\"messages\":%d,\"seconds\":%.4f,\"errors\":%d,\"first_error\":\"%s\"%s%s}",
            count, seconds, errors.sum(), firstError, percentiles, extra));
    }

    /** Log-linear histogram of nanoseconds: 64 steps per doubling (under 1.6 % error), lock-free. */
    static final class Histogram {
        private final AtomicLongArray cells = new AtomicLongArray(64 * 58);

        void record(long nanos) {
            cells.incrementAndGet(cell(Math.max(nanos, 0)));
        }

        private static int cell(long nanos) {
            if (nanos < 64) {
                return (int) nanos;
            }
            int shift = 57 - Long.numberOfLeadingZeros(nanos);
            return (shift + 1) * 64 + (int) ((nanos >>> shift) - 64);
        }

        private static double upper(int cell) {
            if (cell < 64) {
                return cell;
            }
            return (double) ((long) (cell % 64 + 65) << (cell / 64 - 1));
        }

        long count() {
            long sum = 0;
            for (int i = 0; i < cells.length(); i++) {
                sum += cells.get(i);
            }
            return sum;
        }

        /** Milliseconds below which the given share of the samples lies. */
        double at(double share) {
            long rank = Math.max(1, (long) Math.ceil(count() * share));
            long seen = 0;
            for (int i = 0; i < cells.length(); i++) {
                seen += cells.get(i);
                if (seen >= rank) {
                    return upper(i) / 1e6;
                }
            }
            return 0;
        }
    }
}
