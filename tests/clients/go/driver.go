// Runs the official Go client by commands: one JSON object a line in, one a line out. README.md lists them.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

type outgoing struct {
	Topic        string            `json:"topic"`
	Body         string            `json:"body"`
	Size         int               `json:"size"`
	Tag          string            `json:"tag"`
	Keys         []string          `json:"keys"`
	MessageGroup string            `json:"message_group"`
	DeliverMs    int64             `json:"deliver_ms"`
	Properties   map[string]string `json:"properties"`
}

type command struct {
	ID       int               `json:"id"`
	Do       string            `json:"do"`
	Name     string            `json:"name"`
	Kind     string            `json:"kind"`
	Topic    string            `json:"topic"`
	Group    string            `json:"group"`
	Filter   map[string]string `json:"filter"`
	AwaitMs  int               `json:"await_ms"`
	Messages []outgoing        `json:"messages"`
	Message  outgoing          `json:"message"`
	End      string            `json:"end"`
	Recall   string            `json:"recall_handle"`
	Checks   bool              `json:"checks"`
	Max      int32             `json:"max"`
	Lease    int               `json:"invisible_ms"`
	Ref      int               `json:"ref"`
	InFlight int               `json:"in_flight"`
	Size     int               `json:"size"`
	WarmMs   int               `json:"warm_ms"`
	RunMs    int               `json:"run_ms"`
	Count    int               `json:"count"`
	Rate     int               `json:"rate"`
}

type object = map[string]any

var (
	address string
	said    sync.Mutex
	lock    sync.Mutex
	clients = map[string]any{}
	taken   []*rmq.MessageView
)

func say(value object) {
	line, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	said.Lock()
	defer said.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

func pattern(size int) []byte {
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i % 251)
	}
	return body
}

func configuration(group string) *rmq.Config {
	return &rmq.Config{Endpoint: address, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{
		AccessKey: os.Getenv("DRIVER_ACCESS_KEY"), AccessSecret: os.Getenv("DRIVER_SECRET_KEY"),
	}}
}

func described(message *rmq.MessageView) object {
	body := message.GetBody()
	keys := append([]string{}, message.GetKeys()...)
	sort.Strings(keys)
	found := object{
		"id": message.GetMessageId(), "topic": message.GetTopic(), "size": len(body), "tag": message.GetTag(),
		"keys": keys, "properties": message.GetProperties(), "message_group": message.GetMessageGroup(),
		"attempt": message.GetDeliveryAttempt(), "born_ms": nil,
	}
	if born := message.GetBornTimestamp(); born != nil {
		found["born_ms"] = born.UnixMilli()
	}
	if len(body) <= 1000 {
		found["body"] = string(body)
	} else {
		found["pattern"] = bytes.Equal(body, pattern(len(body)))
	}
	return found
}

func subscriptions(c command) map[string]*rmq.FilterExpression {
	filter := rmq.SUB_ALL
	if sql, ok := c.Filter["sql"]; ok {
		filter = rmq.NewFilterExpressionWithType(sql, rmq.SQL92)
	} else if tag, ok := c.Filter["tag"]; ok {
		filter = rmq.NewFilterExpression(tag)
	}
	return map[string]*rmq.FilterExpression{c.Topic: filter}
}

// listener fails and sleeps as the message's own properties ask for.
func listener(name string) *rmq.FuncMessageListener {
	calls := map[string]int{}
	var counting sync.Mutex
	return &rmq.FuncMessageListener{Consume: func(message *rmq.MessageView) rmq.ConsumerResult {
		id := message.GetMessageId()
		counting.Lock()
		calls[id]++
		call := calls[id]
		counting.Unlock()
		say(object{"event": "call", "name": name, "call": call, "message": described(message)})
		sleep, _ := strconv.Atoi(message.GetProperties()["sleep_ms"])
		time.Sleep(time.Duration(sleep) * time.Millisecond)
		fails, _ := strconv.Atoi(message.GetProperties()["fail_times"])
		good := call > fails
		say(object{"event": "return", "name": name, "call": call, "id": id, "ok": good})
		if good {
			return rmq.SUCCESS
		}
		return rmq.FAILURE
	}}
}

func start(c command) (any, error) {
	switch c.Kind {
	case "producer":
		options := []rmq.ProducerOption{rmq.WithTopics(c.Topic)}
		if c.Checks {
			options = append(options, rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: check}))
		}
		producer, err := rmq.NewProducer(configuration(""), options...)
		if err != nil {
			return nil, err
		}
		return producer, producer.Start()
	case "simple":
		consumer, err := rmq.NewSimpleConsumer(configuration(c.Group),
			rmq.WithSimpleAwaitDuration(time.Duration(c.AwaitMs)*time.Millisecond),
			rmq.WithSimpleSubscriptionExpressions(subscriptions(c)))
		if err != nil {
			return nil, err
		}
		return consumer, consumer.Start()
	default:
		consumer, err := rmq.NewPushConsumer(configuration(c.Group), rmq.WithPushAwaitDuration(5*time.Second),
			rmq.WithPushSubscriptionExpressions(subscriptions(c)), rmq.WithPushMessageListener(listener(c.Name)),
			rmq.WithPushConsumptionThreadCount(20), rmq.WithPushMaxCacheMessageCount(1024))
		if err != nil {
			return nil, err
		}
		return consumer, consumer.Start()
	}
}

func client(name string) any {
	lock.Lock()
	defer lock.Unlock()
	return clients[name]
}

func view(ref int) *rmq.MessageView {
	lock.Lock()
	defer lock.Unlock()
	return taken[ref]
}

func made(wanted outgoing) *rmq.Message {
	message := &rmq.Message{Topic: wanted.Topic, Body: []byte(wanted.Body)}
	if wanted.Size > 0 {
		message.Body = pattern(wanted.Size)
	}
	if wanted.Tag != "" {
		message.SetTag(wanted.Tag)
	}
	message.SetKeys(wanted.Keys...)
	if wanted.MessageGroup != "" {
		message.SetMessageGroup(wanted.MessageGroup)
	}
	if wanted.DeliverMs > 0 {
		message.SetDelayTimestamp(time.UnixMilli(wanted.DeliverMs))
	}
	for key, value := range wanted.Properties {
		message.AddProperty(key, value)
	}
	return message
}

// Decides about an orphaned transaction as the message's own property says.
func check(message *rmq.MessageView) rmq.TransactionResolution {
	if message.GetProperties()["checked"] == "COMMIT" {
		return rmq.COMMIT
	}
	return rmq.ROLLBACK
}

func sendTransaction(c command) (object, error) {
	producer := client(c.Name).(rmq.Producer)
	transaction := producer.BeginTransaction()
	receipts, err := producer.SendWithTransaction(context.Background(), made(c.Message), transaction)
	if err != nil {
		return nil, err
	}
	switch c.End {
	case "commit":
		err = transaction.Commit()
	case "rollback":
		err = transaction.RollBack()
	}
	return object{"ids": []string{receipts[0].MessageID}}, err
}

func send(c command) (object, error) {
	ids, handles := []string{}, []string{}
	for _, wanted := range c.Messages {
		receipts, err := client(c.Name).(rmq.Producer).Send(context.Background(), made(wanted))
		if err != nil {
			return nil, err
		}
		ids = append(ids, receipts[0].MessageID)
		handles = append(handles, receipts[0].RecallHandle)
	}
	return object{"ids": ids, "recall_handles": handles}, nil
}

const messageNotFound = 40401 // this client reports an empty receive as an error

func receive(c command) (object, error) {
	consumer := client(c.Name).(rmq.SimpleConsumer)
	messages, err := consumer.Receive(context.Background(), c.Max, time.Duration(c.Lease)*time.Millisecond)
	if status, ok := rmq.AsErrRpcStatus(err); ok && status.GetCode() == messageNotFound {
		err = nil
	}
	found := []object{}
	for _, message := range messages {
		one := described(message)
		lock.Lock()
		one["ref"] = len(taken)
		taken = append(taken, message)
		lock.Unlock()
		found = append(found, one)
	}
	return object{"messages": found}, err
}

func perform(c command) (object, error) {
	switch c.Do {
	case "start":
		started, err := start(c)
		lock.Lock()
		clients[c.Name] = started
		lock.Unlock()
		return object{}, err
	case "send":
		return send(c)
	case "recall":
		id, err := client(c.Name).(rmq.Producer).Recall(context.Background(), c.Topic, c.Recall)
		return object{"message_id": id}, err
	case "send_transaction":
		return sendTransaction(c)
	case "receive":
		return receive(c)
	case "ack":
		return object{}, client(c.Name).(rmq.SimpleConsumer).Ack(context.Background(), view(c.Ref))
	case "change":
		lease := time.Duration(c.Lease) * time.Millisecond
		return object{}, client(c.Name).(rmq.SimpleConsumer).ChangeInvisibleDuration(view(c.Ref), lease)
	case "stop":
		return object{}, client(c.Name).(interface{ GracefulStop() error }).GracefulStop()
	case "bench_send":
		return benchSend(c)
	case "bench_push":
		return benchPush(c)
	case "bench_latency":
		return benchLatency(c)
	}
	return nil, errors.New("no such command: " + c.Do)
}

func answer(c command) {
	defer func() {
		if fault := recover(); fault != nil {
			say(object{"id": c.ID, "error": fmt.Sprintf("panic: %v", fault)})
		}
	}()
	found, err := perform(c)
	if err != nil {
		failed := object{"id": c.ID, "error": err.Error()}
		if status, ok := rmq.AsErrRpcStatus(err); ok {
			failed["code"] = status.GetCode()
		}
		say(failed)
		return
	}
	found["id"] = c.ID
	say(found)
}

func main() {
	address = os.Args[1]
	rmq.EnableSsl = os.Args[2] == "tls"
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 64<<20)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			panic(err)
		}
		go answer(c)
	}
}
