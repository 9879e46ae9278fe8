package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// command encodes one request of the Redis protocol.
func command(parts ...[]byte) []byte {
	out := fmt.Appendf(nil, "*%d\r\n", len(parts))
	for _, part := range parts {
		out = fmt.Appendf(out, "$%d\r\n", len(part))
		out = append(append(out, part...), '\r', '\n')
	}
	return out
}

func words(parts ...string) []byte {
	out := make([][]byte, len(parts))
	for i, part := range parts {
		out[i] = []byte(part)
	}
	return command(out...)
}

func redisConnect() (net.Conn, *bufio.Reader) {
	connection, err := net.Dial("tcp", text("address", ""))
	check(err)
	return connection, bufio.NewReaderSize(connection, 1<<20)
}

// bulk reads one bulk string (or the line of a simple one) into the buffer.
func bulk(reader *bufio.Reader, buffer []byte) ([]byte, error) {
	line, err := reader.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	switch line[0] {
	case '$':
		length, err := strconv.Atoi(string(line[1 : len(line)-2]))
		if err != nil || length < 0 {
			return nil, err
		}
		if cap(buffer) < length+2 {
			buffer = make([]byte, length+2)
		}
		buffer = buffer[:length+2]
		_, err = io.ReadFull(reader, buffer)
		return buffer[:length], err
	case '-':
		return nil, fmt.Errorf("%s", line[1:len(line)-2])
	default:
		return line, nil
	}
}

func arrayLength(reader *bufio.Reader) (int, error) {
	line, err := reader.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != '*' {
		return 0, fmt.Errorf("%s", line)
	}
	return strconv.Atoi(string(line[1 : len(line)-2]))
}

// entries reads one XREAD/XREADGROUP reply and hands on each entry's id and value; it returns their number.
func entries(reader *bufio.Reader, each func(id, value []byte)) (int, error) {
	streams, err := arrayLength(reader)
	if err != nil || streams <= 0 {
		return 0, err
	}
	var key, id, name, value [64]byte
	body := value[:]
	if _, err = arrayLength(reader); err != nil {
		return 0, err
	}
	if _, err = bulk(reader, key[:]); err != nil {
		return 0, err
	}
	count, err := arrayLength(reader)
	if err != nil {
		return 0, err
	}
	for range count {
		if _, err = arrayLength(reader); err != nil {
			return 0, err
		}
		entry, err := bulk(reader, id[:])
		if err != nil {
			return 0, err
		}
		if _, err = arrayLength(reader); err != nil {
			return 0, err
		}
		if _, err = bulk(reader, name[:]); err != nil {
			return 0, err
		}
		if body, err = bulk(reader, body[:cap(body)]); err != nil {
			return 0, err
		}
		each(entry, body)
	}
	return count, nil
}

// redisProduce sends pipelines of batch XADDs on one connection, with in_flight pipelines unanswered. The commands are
// encoded before they are sent.
func redisProduce() {
	batch, topics, limit := number("batch", 64), number("topics", 1), number("messages", 0)
	bodies := payloads(number("size_bytes", 1024))
	pipelines := make([][]byte, max(8, min(topics*8, 1024)))
	for i := range pipelines {
		for j := range batch {
			pipelines[i] = append(pipelines[i], command([]byte("XADD"), []byte(topic(i%topics)), []byte("*"), []byte("d"),
				bodies[(i*batch+j)%len(bodies)])...)
		}
	}
	connection, reader := redisConnect()
	began := time.Now()
	sentAt := make(chan time.Time, number("in_flight", 64))
	go func() {
		defer close(sentAt)
		for i := 0; limit == 0 || i*batch < limit; i++ {
			sentAt <- time.Now()
			if _, err := connection.Write(pipelines[i%len(pipelines)]); err != nil {
				fail(err)
				return
			}
		}
	}()
	finished := make(chan struct{})
	go func() {
		buffer := make([]byte, 64)
		for sent := range sentAt {
			good := 0
			for range batch {
				if _, err := bulk(reader, buffer); err != nil {
					fail(err)
					continue
				}
				good++
			}
			acknowledged(good, sent)
		}
		close(finished)
	}()
	if limit > 0 {
		<-finished
		resultOfAll(began)
		return
	}
	window(nothing)
}

// redisConsume reads one stream by XREADGROUP NOACK, 1,024 entries a request, eight requests unanswered; a new group
// each pass.
func redisConsume() {
	connection, reader := redisConnect()
	backlog, group := int64(number("messages", 1000000)), 0
	passes(func() int64 {
		group++
		name := "bench" + strconv.Itoa(group)
		_, err := connection.Write(words("XGROUP", "CREATE", topic(0), name, "0"))
		check(err)
		_, err = bulk(reader, nil)
		check(err)
		request := words("XREADGROUP", "GROUP", name, "one", "COUNT", "1024", "NOACK", "STREAMS", topic(0), ">")
		var count int64
		unanswered := 0
		for range 8 {
			_, err = connection.Write(request)
			check(err)
			unanswered++
		}
		for unanswered > 0 {
			_, err = entries(reader, func(_, value []byte) {
				if len(value) > 0 {
					count++
				}
			})
			check(err)
			if unanswered--; count < backlog {
				_, err = connection.Write(request)
				check(err)
				unanswered++
			}
		}
		return count
	})
}

func redisLatency() {
	writing, replies := redisConnect()
	reading, reader := redisConnect()
	started := time.Now()
	go func() {
		buffer := make([]byte, 64)
		for {
			if _, err := bulk(replies, buffer); err != nil {
				fail(err)
				return
			}
		}
	}()
	go func() {
		last := []byte("0")
		for {
			_, err := reading.Write(command([]byte("XREAD"), []byte("COUNT"), []byte("100"), []byte("BLOCK"), []byte("0"),
				[]byte("STREAMS"), []byte(topic(0)), last))
			check(err)
			_, err = entries(reader, func(id, value []byte) {
				last = append(last[:0], id...)
				messages.Add(1)
				if measuring.Load() {
					latency.record(time.Since(started) - time.Duration(binary.LittleEndian.Uint64(value)))
				}
			})
			check(err)
		}
	}()
	sizeBytes := number("size_bytes", 1024)
	openLoop(number("rate", 1000), func(due time.Time) {
		body := make([]byte, sizeBytes)
		binary.LittleEndian.PutUint64(body, uint64(due.Sub(started)))
		if _, err := writing.Write(command([]byte("XADD"), []byte(topic(0)), []byte("*"), []byte("d"), body)); err != nil {
			fail(err)
		}
	})
	window(nothing)
}

func redisRestart() {
	body := make([]byte, 1024)
	add := func() error {
		connection, err := net.DialTimeout("tcp", text("address", ""), time.Second)
		if err != nil {
			return err
		}
		defer connection.Close()
		if _, err = connection.Write(command([]byte("XADD"), []byte(topic(0)), []byte("*"), []byte("d"), body)); err != nil {
			return err
		}
		_, err = bulk(bufio.NewReader(connection), make([]byte, 64))
		return err
	}
	check(add())
	waitForRestart()
	for add() != nil {
		time.Sleep(5 * time.Millisecond)
	}
	acknowledgedAgain()
}
