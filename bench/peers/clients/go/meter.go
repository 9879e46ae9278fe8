// Command peers loads NATS JetStream, Redis Streams and Penstock. It takes key=value arguments and prints the lines
// (@begin, @end, @result) by which bench.peers knows the measured window.
package main

import (
	"bufio"
	"fmt"
	"math"
	"math/bits"
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var arguments = map[string]string{}

func text(key, otherwise string) string {
	if value, ok := arguments[key]; ok {
		return value
	}
	return otherwise
}

func number(key string, otherwise int) int {
	value, err := strconv.Atoi(text(key, strconv.Itoa(otherwise)))
	check(err)
	return value
}

func duration(key string, otherwise float64) time.Duration {
	value, err := strconv.ParseFloat(text(key, strconv.FormatFloat(otherwise, 'f', -1, 64)), 64)
	check(err)
	return time.Duration(value * 1e9)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var printing sync.Mutex

func say(format string, values ...any) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Printf(format+"\n", values...)
}

func topic(number int) string { return "bench-" + strconv.Itoa(number) }

// payloads returns 1,000 bodies that compress to half: random first half, zero second half.
func payloads(sizeBytes int) [][]byte {
	source := rand.New(rand.NewSource(7))
	bodies := make([][]byte, 1000)
	for i := range bodies {
		bodies[i] = make([]byte, sizeBytes)
		source.Read(bodies[i][:sizeBytes/2])
	}
	return bodies
}

// histogram is log-linear over nanoseconds, 64 steps per doubling.
type histogram struct{ cells [64 * 58]int64 }

func (h *histogram) record(took time.Duration) {
	nanos := uint64(max(took, 0))
	cell := nanos
	if nanos >= 64 {
		shift := 57 - bits.LeadingZeros64(nanos)
		cell = uint64(shift+1)*64 + (nanos >> shift) - 64
	}
	atomic.AddInt64(&h.cells[cell], 1)
}

func (h *histogram) count() (sum int64) {
	for i := range h.cells {
		sum += h.cells[i]
	}
	return
}

// at returns the milliseconds below which the given share of the samples lies.
func (h *histogram) at(share float64) float64 {
	rank := int64(math.Max(1, math.Ceil(float64(h.count())*share)))
	var seen int64
	for i := range h.cells {
		if seen += h.cells[i]; seen >= rank {
			if i < 64 {
				return float64(i) / 1e6
			}
			return float64(uint64(i%64+65)<<(i/64-1)) / 1e6
		}
	}
	return 0
}

var (
	messages   atomic.Int64
	errors     atomic.Int64
	measuring  atomic.Bool
	latency    histogram
	firstError atomic.Value
)

func fail(err error) {
	if errors.Add(1) == 1 {
		firstError.Store(strings.NewReplacer(`"`, "'", "\n", " ", `\`, "/").Replace(err.Error()))
	}
}

func acknowledged(count int, sent time.Time) {
	messages.Add(int64(count))
	if measuring.Load() {
		latency.record(time.Since(sent))
	}
}

func result(count int64, seconds float64, extra string) {
	percentiles := ""
	if latency.count() > 0 {
		percentiles = fmt.Sprintf(`,"p50_ms":%.4f,"p99_ms":%.4f`, latency.at(0.5), latency.at(0.99))
	}
	first, _ := firstError.Load().(string)
	say(`@result {"messages":%d,"seconds":%.4f,"errors":%d,"first_error":"%s"%s%s}`,
		count, seconds, errors.Load(), first, percentiles, extra)
}

// resultOfAll prints what a fill has stored since it began.
func resultOfAll(began time.Time) {
	result(messages.Load(), time.Since(began).Seconds(), "")
}

// window sleeps through warm-up and the measured seconds while the load runs, then prints the result.
func window(extra func() string) {
	time.Sleep(duration("warm_up_s", 3))
	before := messages.Load()
	say("@begin")
	measuring.Store(true)
	began := time.Now()
	time.Sleep(duration("seconds", 10))
	count := messages.Load() - before
	took := time.Since(began).Seconds()
	measuring.Store(false)
	say("@end")
	result(count, took, extra())
}

func nothing() string { return "" }

// passes drains a backlog again and again: whole passes for the warm-up, then whole passes for at least the measured
// seconds. A pass returns how many messages it has read.
func passes(pass func() int64) {
	backlog := int64(number("messages", 1000000))
	warmUp, measured := duration("warm_up_s", 5), duration("seconds", 10)
	var count, missing int64
	once := func() {
		read := pass()
		count += read
		missing += backlog - read
	}
	began := time.Now()
	for once(); time.Since(began) < warmUp; once() {
	}
	say("@begin")
	began, count = time.Now(), 0
	for once(); time.Since(began) < measured; once() {
	}
	took := time.Since(began).Seconds()
	say("@end")
	result(count, took, fmt.Sprintf(`,"missing":%d`, missing))
}

// openLoop calls send at fixed points of time, whatever becomes of what it has sent.
func openLoop(rate int, send func(due time.Time)) {
	go func() {
		// The runtime's own timers may fire a millisecond late; the system call does not.
		runtime.LockOSThread()
		start := time.Now()
		interval := time.Second / time.Duration(rate)
		for i := 0; ; i++ {
			due := start.Add(time.Duration(i) * interval)
			if left := time.Until(due); left > 0 {
				pause := syscall.NsecToTimespec(left.Nanoseconds())
				_ = syscall.Nanosleep(&pause, nil)
			}
			send(due)
		}
	}()
}

// waitForRestart returns when the server has been stopped and is being started again.
func waitForRestart() {
	say("@ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

func acknowledgedAgain() { say("@acknowledged %.4f", float64(time.Now().UnixMicro())/1e6) }

func main() {
	for _, argument := range os.Args[1:] {
		if key, value, ok := strings.Cut(argument, "="); ok {
			arguments[key] = value
		}
	}
	operations := map[string]func(){
		"nats create": natsCreate, "nats produce": natsProduce, "nats consume": natsConsume,
		"nats latency": natsLatency, "nats restart": natsRestart,
		"redis produce": redisProduce, "redis consume": redisConsume, "redis latency": redisLatency,
		"redis restart":    redisRestart,
		"penstock produce": penstockProduce, "penstock consume": penstockConsume,
		"penstock latency": penstockLatency, "penstock restart": penstockRestart,
	}
	operation, ok := operations[text("peer", "")+" "+text("operation", "")]
	if !ok {
		check(fmt.Errorf("unknown peer and operation"))
	}
	operation()
	os.Exit(0)
}
