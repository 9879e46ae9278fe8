package main

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func natsConnect() (*nats.Conn, jetstream.JetStream) {
	connection, err := nats.Connect("nats://"+text("address", ""), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
	check(err)
	streams, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(1<<20),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { fail(err) }))
	check(err)
	return connection, streams
}

// natsCreate makes one stream a topic.
func natsCreate() {
	_, streams := natsConnect()
	topics := number("topics", 1)
	began := time.Now()
	for i := range topics {
		_, err := streams.CreateStream(context.Background(), jetstream.StreamConfig{Name: topic(i),
			Subjects: []string{topic(i)}, Storage: jetstream.FileStorage, Replicas: 1})
		check(err)
	}
	result(int64(topics), time.Since(began).Seconds(), "")
}

// natsProduce keeps batch x in_flight messages unanswered: JetStream acknowledges each of them.
func natsProduce() {
	_, streams := natsConnect()
	batch, topics, limit := number("batch", 64), number("topics", 1), number("messages", 0)
	bodies := payloads(number("size_bytes", 1024))
	began := time.Now()
	type sending struct {
		future jetstream.PubAckFuture
		sent   time.Time
	}
	unanswered := make(chan sending, batch*number("in_flight", 64))
	go func() {
		defer close(unanswered)
		for i := 0; limit == 0 || i < limit; i++ {
			sent := time.Now()
			future, err := streams.PublishAsync(topic(i/batch%topics), bodies[i%len(bodies)])
			if err != nil {
				fail(err)
				continue
			}
			unanswered <- sending{future, sent}
		}
	}()
	var done sync.WaitGroup
	done.Go(func() {
		for each := range unanswered {
			select {
			case <-each.future.Ok():
				acknowledged(1, each.sent)
			case <-each.future.Err():
			}
		}
	})
	if limit > 0 {
		done.Wait()
		resultOfAll(began)
		return
	}
	window(nothing)
}

// natsConsume reads by an ordered consumer, a new one each pass.
func natsConsume() {
	_, streams := natsConnect()
	backlog := int64(number("messages", 1000000))
	passes(func() int64 {
		consumer, err := streams.OrderedConsumer(context.Background(), topic(0), jetstream.OrderedConsumerConfig{})
		check(err)
		var count int64
		finished := make(chan struct{})
		reading, err := consumer.Consume(func(message jetstream.Msg) {
			if len(message.Data()) > 0 {
				count++
			}
			if count == backlog {
				close(finished)
			}
		}, jetstream.PullMaxMessages(4096))
		check(err)
		<-finished
		reading.Stop()
		return backlog
	})
}

func natsLatency() {
	_, streams := natsConnect()
	_, reading := natsConnect()
	consumer, err := reading.OrderedConsumer(context.Background(), topic(0), jetstream.OrderedConsumerConfig{})
	check(err)
	started := time.Now()
	_, err = consumer.Consume(func(message jetstream.Msg) {
		messages.Add(1)
		if measuring.Load() {
			due := time.Duration(binary.LittleEndian.Uint64(message.Data()))
			latency.record(time.Since(started) - due)
		}
	})
	check(err)
	sizeBytes := number("size_bytes", 1024)
	openLoop(number("rate", 1000), func(due time.Time) {
		body := make([]byte, sizeBytes)
		binary.LittleEndian.PutUint64(body, uint64(due.Sub(started)))
		if _, err := streams.PublishAsync(topic(0), body); err != nil {
			fail(err)
		}
	})
	window(nothing)
}

func natsRestart() {
	_, streams := natsConnect()
	publish := func() error {
		limited, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		_, err := streams.Publish(limited, topic(0), make([]byte, 1024))
		return err
	}
	check(publish())
	waitForRestart()
	for publish() != nil {
		time.Sleep(5 * time.Millisecond)
	}
	acknowledgedAgain()
}
