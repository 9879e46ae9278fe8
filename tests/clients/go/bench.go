package main

import (
	"context"
	"encoding/binary"
	"sort"
	"sync/atomic"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

func benchProducer(c command) (rmq.Producer, error) {
	producer, err := rmq.NewProducer(configuration(""), rmq.WithTopics(c.Topic))
	if err != nil {
		return nil, err
	}
	return producer, producer.Start()
}

func benchConsumer(c command, consume func(*rmq.MessageView) rmq.ConsumerResult) (rmq.PushConsumer, error) {
	consumer, err := rmq.NewPushConsumer(configuration(c.Group), rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(subscriptions(c)),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}),
		rmq.WithPushConsumptionThreadCount(20), rmq.WithPushMaxCacheMessageCount(4096))
	if err != nil {
		return nil, err
	}
	return consumer, consumer.Start()
}

// benchSend keeps in_flight sends open, each in a goroutine of its own.
func benchSend(c command) (object, error) {
	producer, err := benchProducer(c)
	if err != nil {
		return nil, err
	}
	warm := time.Now().Add(time.Duration(c.WarmMs) * time.Millisecond)
	end := warm.Add(time.Duration(c.RunMs) * time.Millisecond)
	var sent, failed atomic.Int64
	done := make(chan struct{})
	for range c.InFlight {
		go func() {
			defer func() { done <- struct{}{} }()
			body := make([]byte, c.Size)
			for time.Now().Before(end) {
				_, err := producer.Send(context.Background(), &rmq.Message{Topic: c.Topic, Body: body})
				now := time.Now()
				if err != nil {
					failed.Add(1)
				} else if now.After(warm) && now.Before(end) {
					sent.Add(1)
				}
			}
		}()
	}
	for range c.InFlight {
		<-done
	}
	return object{"count": sent.Load(), "seconds": end.Sub(warm).Seconds(), "errors": failed.Load()}, producer.GracefulStop()
}

func benchPush(c command) (object, error) {
	var calls atomic.Int64
	skipped := int64(c.Count / 5)
	first, last := make(chan time.Time, 1), make(chan time.Time, 1)
	consumer, err := benchConsumer(c, func(*rmq.MessageView) rmq.ConsumerResult {
		switch calls.Add(1) {
		case skipped:
			first <- time.Now()
		case int64(c.Count):
			last <- time.Now()
		}
		return rmq.SUCCESS
	})
	if err != nil {
		return nil, err
	}
	began := <-first
	seconds := (<-last).Sub(began).Seconds()
	go consumer.GracefulStop() // it waits for its polls
	return object{"count": int64(c.Count) - skipped, "seconds": seconds, "errors": 0}, nil
}

func benchLatency(c command) (object, error) {
	skipped := 3 * c.Rate
	times := make([]int64, skipped+c.Count)
	began := time.Now()
	var calls atomic.Int64
	consumer, err := benchConsumer(c, func(message *rmq.MessageView) rmq.ConsumerResult {
		body := message.GetBody()
		due := time.Duration(binary.BigEndian.Uint64(body[4:]))
		times[binary.BigEndian.Uint32(body)] = int64(time.Since(began) - due)
		calls.Add(1)
		return rmq.SUCCESS
	})
	if err != nil {
		return nil, err
	}
	producer, err := benchProducer(c)
	if err != nil {
		return nil, err
	}
	time.Sleep(2 * time.Second)
	due := time.Since(began)
	for i := range times {
		due += time.Second / time.Duration(c.Rate)
		time.Sleep(due - time.Since(began))
		body := make([]byte, c.Size)
		binary.BigEndian.PutUint32(body, uint32(i))
		binary.BigEndian.PutUint64(body[4:], uint64(due))
		producer.SendAsync(context.Background(), &rmq.Message{Topic: c.Topic, Body: body},
			func(context.Context, []*rmq.SendReceipt, error) {})
	}
	for end := time.Now().Add(30 * time.Second); calls.Load() < int64(len(times)) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	producer.GracefulStop()
	go consumer.GracefulStop()
	measured := times[skipped:]
	sort.Slice(measured, func(i, j int) bool { return measured[i] < measured[j] })
	at := func(share float64) float64 { return float64(measured[int(share*float64(len(measured)))]) / 1e6 }
	return object{
		"count": calls.Load() - int64(skipped), "seconds": float64(c.Count) / float64(c.Rate),
		"errors": int64(len(times)) - calls.Load(), "p50_ms": at(0.5), "p99_ms": at(0.99),
	}, nil
}
