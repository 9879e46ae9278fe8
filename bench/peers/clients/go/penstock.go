package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

// raw hands messages to gRPC as they are: requests are framed and answers read by hand below.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(message any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(message.([]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, message any) error {
	into := message.(*[]byte)
	if cap(*into) < data.Len() {
		*into = make([]byte, data.Len())
	}
	*into = (*into)[:data.Len()]
	data.CopyTo(*into)
	return nil
}

func penstockConnect(service string) *grpc.ClientConn {
	const window, message = 16 << 20, 64 << 20
	connection, err := grpc.NewClient("passthrough:///"+text(service, ""),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithReadBufferSize(1<<20), grpc.WithWriteBufferSize(1<<20),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second,
			Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(message), grpc.MaxCallSendMsgSize(message)))
	check(err)
	return connection
}

// A record as a client encodes it (docs/format.md): what the writer fills in is zero.
const queueOffsetAt, bodyLengthAt, recordBodyAt, trailer = 20, 84, 88, "__CRC32#\x010000000000\x02"

func appendRecord(out []byte, topic string, queue int, body []byte) []byte {
	size := recordBodyAt + len(body) + 1 + len(topic) + 2 + len(trailer)
	head := [recordBodyAt]byte{}
	binary.BigEndian.PutUint32(head[0:], uint32(size))
	binary.BigEndian.PutUint32(head[4:], 0xdaa320a7)
	binary.BigEndian.PutUint32(head[8:], crc32.ChecksumIEEE(body)&0x7fffffff)
	binary.BigEndian.PutUint32(head[12:], uint32(queue))
	binary.BigEndian.PutUint64(head[40:], uint64(time.Now().UnixMilli()))
	binary.BigEndian.PutUint32(head[bodyLengthAt:], uint32(len(body)))
	out = append(out, head[:]...)
	out = append(out, body...)
	out = append(out, byte(len(topic)))
	out = append(out, topic...)
	out = binary.BigEndian.AppendUint16(out, uint16(len(trailer)))
	return append(out, trailer...)
}

// appendBatch frames batch messages as one ProduceBatchRequest, encoding each.
func appendBatch(out []byte, bodies [][]byte, from, batch int, topic string) []byte {
	size := 0
	for i := range batch {
		size += recordBodyAt + len(bodies[(from+i)%len(bodies)]) + 1 + len(topic) + 2 + len(trailer)
	}
	out = binary.AppendUvarint(append(out, 1<<3|2), uint64(size))
	for i := range batch {
		out = appendRecord(out, topic, 0, bodies[(from+i)%len(bodies)])
	}
	return out
}

// fields hands on each field of a protobuf message: its number and its value, as a number or as bytes.
func fields(message []byte, each func(number int, value uint64, data []byte)) {
	for len(message) > 0 {
		key, n := binary.Uvarint(message)
		message = message[n:]
		value, n := binary.Uvarint(message)
		message = message[n:]
		if key&7 == 2 {
			each(int(key>>3), value, message[:value])
			message = message[value:]
		} else {
			each(int(key>>3), value, nil)
		}
	}
}

// outcomes receives a stream's answers: for each frame, how many records were stored, or why not and when to try again.
func outcomes(stream grpc.ClientStream) func() (int, time.Duration, string) {
	answer, waiting := []byte{}, [][]byte{}
	return func() (int, time.Duration, string) {
		for len(waiting) == 0 {
			check(stream.RecvMsg(&answer))
			fields(answer, func(_ int, _ uint64, data []byte) { waiting = append(waiting, data) })
		}
		first := waiting[0]
		waiting = waiting[1:]
		return stored(first)
	}
}

// stored reads a FrameOutcome.
func stored(answer []byte) (count int, retry time.Duration, problem string) {
	fields(answer, func(outcome int, _ uint64, data []byte) {
		fields(data, func(number int, value uint64, text []byte) {
			switch {
			case outcome == 1 && number == 3:
				count = int(value)
			case outcome == 2 && number == 2:
				problem = string(text)
			case outcome == 2 && number == 3:
				retry = time.Duration(value) * time.Millisecond
			}
		})
	})
	return
}

type penstockFrame struct {
	data []byte
	sent time.Time
}

// penstockProduce keeps in_flight frames of batch messages unanswered on one stream; a frame that the writer refuses for
// the moment is sent again after the delay that it names. Each message is encoded when it is sent. One message a request is a
// unary call; with shape=stream it is a frame, too.
func penstockProduce() {
	batch, topics, inFlight, limit := number("batch", 64), number("topics", 1), number("in_flight", 64), number("messages", 0)
	bodies := payloads(number("size_bytes", 1024))
	if batch == 1 && limit == 0 && text("shape", "calls") == "calls" {
		penstockUnary(bodies, topics, inFlight)
		return
	}
	stream := penstockStream()
	free, unanswered := make(chan *penstockFrame, inFlight), make(chan *penstockFrame, inFlight)
	again := make(chan *penstockFrame, inFlight)
	for range inFlight {
		free <- &penstockFrame{}
	}
	var refused, done int
	finished := make(chan struct{})
	go func() {
		next := outcomes(stream)
		for frame := range unanswered {
			count, retry, problem := next()
			switch {
			case count == batch:
				acknowledged(batch, frame.sent)
				free <- frame
				if done += batch; limit > 0 && done >= limit {
					close(finished)
					return
				}
			case retry > 0:
				refused++
				time.AfterFunc(retry, func() { again <- frame })
			default:
				fail(fmt.Errorf("%d records stored: %s", count, problem))
				free <- frame
			}
		}
	}()
	began := time.Now()
	go func() {
		send := func(frame *penstockFrame) {
			unanswered <- frame
			check(stream.SendMsg(frame.data))
		}
		for i := 0; limit == 0 || i*batch < limit; {
			select {
			case frame := <-again:
				send(frame)
			case frame := <-free:
				frame.data = appendBatch(frame.data[:0], bodies, i*batch, batch, topic(i%topics))
				frame.sent = time.Now()
				send(frame)
				i++
			}
		}
		for frame := range again {
			send(frame)
		}
	}()
	if limit > 0 {
		<-finished
		resultOfAll(began)
		return
	}
	window(func() string { return fmt.Sprintf(`,"refused":%d`, refused) })
}

func penstockStream() grpc.ClientStream {
	stream, err := penstockConnect("writer").NewStream(context.Background(),
		&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/penstock.v1.Writer/ProduceStream")
	check(err)
	return stream
}

func protoBytes(out []byte, number int, value []byte) []byte {
	return append(binary.AppendUvarint(append(out, byte(number<<3|2)), uint64(len(value))), value...)
}

func protoNumber(out []byte, number int, value int) []byte {
	return binary.AppendUvarint(append(out, byte(number<<3)), uint64(value))
}

// produceRequest is a ProduceRequest of one structured message.
func produceRequest(topic string, body []byte) []byte {
	return protoBytes(nil, 1, protoBytes(protoBytes(nil, 1, []byte(topic)), 2, body))
}

// penstockUnary keeps in_flight calls of one structured message unanswered.
func penstockUnary(bodies [][]byte, topics, inFlight int) {
	connection := penstockConnect("writer")
	for first := range inFlight {
		go func() {
			answer := []byte{}
			for i := first; ; i += inFlight {
				sent := time.Now()
				request := produceRequest(topic(i%topics), bodies[i%len(bodies)])
				if err := connection.Invoke(context.Background(), "/penstock.v1.Writer/Produce", request, &answer); err != nil {
					fail(err)
					time.Sleep(10 * time.Millisecond)
					continue
				}
				acknowledged(1, sent)
			}
		}()
	}
	window(nothing)
}

// pullStream asks for a stream of one queue's records from its beginning and hands on each body; it fails when an
// offset is missing. It ends where the queue does, or never with follow. It returns how many there were.
func pullStream(connection *grpc.ClientConn, follow bool, each func(body []byte)) (count int64) {
	stream, err := connection.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true},
		"/penstock.v1.Reader/PullStream")
	check(err)
	request := protoNumber(protoBytes(nil, 1, []byte(topic(0))), 4, 1<<20)
	if follow {
		request = protoNumber(request, 6, 1)
	}
	check(stream.SendMsg(request))
	check(stream.CloseSend())
	answer := []byte{}
	for {
		err := stream.RecvMsg(&answer)
		if err == io.EOF {
			return
		}
		check(err)
		fields(answer, func(field int, _ uint64, data []byte) {
			switch field {
			case 6:
				fail(fmt.Errorf("a damaged record"))
			case 8:
				for len(data) > 0 {
					if at := int64(binary.BigEndian.Uint64(data[queueOffsetAt:])); at != count {
						fail(fmt.Errorf("offset %d where %d was expected", at, count))
					}
					count++
					length := binary.BigEndian.Uint32(data[bodyLengthAt:])
					each(data[recordBodyAt : recordBodyAt+length])
					data = data[binary.BigEndian.Uint32(data):]
				}
			}
		})
	}
}

func penstockConsume() {
	connection := penstockConnect("reader")
	passes(func() int64 { return pullStream(connection, false, func([]byte) {}) })
}

// penstockLatency sends frames of one message on a stream, and reads by another that follows the queue.
func penstockLatency() {
	stream := penstockStream()
	go func() {
		next := outcomes(stream)
		for {
			if count, _, problem := next(); count != 1 {
				fail(fmt.Errorf("not stored: %s", problem))
			}
		}
	}()
	started := time.Now()
	go pullStream(penstockConnect("reader"), true, func(body []byte) {
		messages.Add(1)
		if measuring.Load() {
			latency.record(time.Since(started) - time.Duration(binary.LittleEndian.Uint64(body)))
		}
	})
	sizeBytes := number("size_bytes", 1024)
	openLoop(number("rate", 1000), func(due time.Time) {
		body := make([]byte, sizeBytes)
		binary.LittleEndian.PutUint64(body, uint64(due.Sub(started)))
		check(stream.SendMsg(appendBatch(nil, [][]byte{body}, 0, 1, topic(0))))
	})
	window(nothing)
}

func penstockRestart() {
	connection, answer := penstockConnect("writer"), []byte{}
	request := produceRequest(topic(0), make([]byte, 1024))
	produce := func() error {
		limited, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return connection.Invoke(limited, "/penstock.v1.Writer/Produce", request, &answer)
	}
	check(produce())
	waitForRestart()
	for produce() != nil {
		time.Sleep(5 * time.Millisecond)
	}
	acknowledgedAgain()
}
