import java.util.Locale;

/** Drains a backlog again and again: whole passes for the warm-up, then whole passes for at least the measured time. */
final class Passes {
    private final Meter meter;
    private final long expected;
    private final long warm;
    private final double seconds;
    private long quiet = System.nanoTime();
    private long began;
    private long inPass;
    private long lastSeen;
    private long count;
    private int passes;
    private boolean finished;

    Passes(Meter meter, long expected) {
        this.meter = meter;
        this.expected = expected;
        this.warm = System.nanoTime() + (long) (Double.parseDouble(meter.text("warm_up_s", "5")) * 1e9);
        this.seconds = Double.parseDouble(meter.text("seconds", "10"));
    }

    /** Whether to go on; gives up when nothing has come for ten seconds. */
    boolean more() {
        if (!finished && System.nanoTime() - quiet > 10_000_000_000L) {
            Meter.say("@end");
            meter.fail(new IllegalStateException("nothing came for ten seconds, " + inPass + " of " + expected));
            meter.result(count, (System.nanoTime() - began) / 1e9, "");
            finished = true;
        }
        return !finished;
    }

    void take() {
        inPass++;
        count++;
    }

    /** Call between polls: true when a pass has just ended and the consumer must go back to the beginning. */
    boolean complete() {
        long now = System.nanoTime();
        if (inPass < expected) {
            if (inPass > lastSeen) {
                quiet = now;
            }
            lastSeen = inPass;
            return false;
        }
        quiet = now;
        inPass = 0;
        lastSeen = 0;
        passes++;
        if (began == 0 && now >= warm) {
            Meter.say("@begin");
            began = System.nanoTime();
            count = 0;
            passes = 0;
        } else if (began != 0 && (now - began) / 1e9 >= seconds) {
            Meter.say("@end");
            meter.result(count, (now - began) / 1e9, String.format(Locale.ROOT, ",\"passes\":%d", passes));
            finished = true;
        }
        return !finished;
    }
}
