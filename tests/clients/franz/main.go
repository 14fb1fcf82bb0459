// The Go client franz-go, driven by JSON lines as programs.py sends them.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Bytes are base64 in JSON; a nil slice is null.
type header [2][]byte

type record struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
}

type command struct {
	Do          string   `json:"do"`
	Topic       string   `json:"topic"`
	Partition   int32    `json:"partition"`
	Codec       string   `json:"codec"`
	Transaction string   `json:"transaction"`
	Records     []record `json:"records"`
	Commit      bool     `json:"commit"`
	Topics      []string `json:"topics"`
}

// A batch as it lies on the broker.
type batch struct {
	Codec   string `json:"codec"`
	Records int    `json:"records"`
}

type answer struct {
	Records []record `json:"records"`
	Batches []batch  `json:"batches"`
	Error   string   `json:"error,omitempty"`
}

type client struct {
	bootstrap    string
	transactions map[string]*kgo.Client
}

// As the format of batches numbers them.
var names = []string{"none", "gzip", "snappy", "lz4", "zstd"}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	c := client{bootstrap: os.Args[1], transactions: map[string]*kgo.Client{}}
	lines, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		told, err := c.run(context.Background(), line)
		if err != nil {
			told.Error = err.Error()
		}
		if err := out.Encode(told); err != nil {
			panic(err)
		}
	}
}

func (c *client) run(ctx context.Context, line []byte) (answer, error) {
	var wanted command
	if err := json.Unmarshal(line, &wanted); err != nil {
		return answer{}, err
	}
	switch wanted.Do {
	case "produce":
		return answer{}, c.produce(ctx, wanted)
	case "end":
		return answer{}, c.end(ctx, wanted)
	case "read":
		return c.read(ctx, wanted.Topics)
	}
	return answer{}, fmt.Errorf("unknown: %s", wanted.Do)
}

func (c *client) produce(ctx context.Context, wanted command) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.bootstrap),
		kgo.ProducerBatchCompression(codecs[wanted.Codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(time.Second), // Flush ends it
		kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}
	if wanted.Transaction != "" {
		options = append(options, kgo.TransactionalID(wanted.Transaction),
			kgo.TransactionTimeout(5*time.Minute))
	}
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	if wanted.Transaction == "" {
		defer producer.Close()
	} else {
		c.transactions[wanted.Transaction] = producer
		if err := producer.BeginTransaction(); err != nil {
			return err
		}
	}
	return send(ctx, producer, wanted)
}

func send(ctx context.Context, producer *kgo.Client, wanted command) error {
	var first kgo.FirstErrPromise
	for _, one := range wanted.Records {
		made := &kgo.Record{
			Topic: wanted.Topic, Partition: wanted.Partition, Key: one.Key, Value: one.Value,
		}
		for _, h := range one.Headers {
			made.Headers = append(made.Headers, kgo.RecordHeader{Key: string(h[0]), Value: h[1]})
		}
		producer.Produce(ctx, made, first.Promise())
	}
	if err := producer.Flush(ctx); err != nil {
		return err
	}
	return first.Err()
}

func (c *client) end(ctx context.Context, wanted command) error {
	producer := c.transactions[wanted.Transaction]
	delete(c.transactions, wanted.Transaction)
	defer producer.Close()
	return producer.EndTransaction(ctx, kgo.TransactionEndTry(wanted.Commit))
}

func (c *client) read(ctx context.Context, topics []string) (answer, error) {
	seen := &batches{}
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(c.bootstrap),
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // the last of a partition may be one
		kgo.WithHooks(seen),
	)
	if err != nil {
		return answer{}, err
	}
	defer consumer.Close()
	ends, err := kadm.NewClient(consumer).ListCommittedOffsets(ctx, topics...)
	if err != nil {
		return answer{}, err
	}
	told := answer{Records: []record{}}
	left := map[string]map[int32]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		if end.Offset > 0 {
			if left[end.Topic] == nil {
				left[end.Topic] = map[int32]int64{}
			}
			left[end.Topic][end.Partition] = end.Offset
		}
	})
	for unread(left) {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return told, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				told.Records = append(told.Records, tell(r))
			}
			if r.Offset+1 >= left[r.Topic][r.Partition] {
				delete(left[r.Topic], r.Partition)
			}
		})
	}
	told.Batches = seen.all()
	return told, nil
}

func unread(left map[string]map[int32]int64) bool {
	for _, partitions := range left {
		if len(partitions) > 0 {
			return true
		}
	}
	return false
}

func tell(r *kgo.Record) record {
	told := record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value,
		Headers: []header{},
	}
	for _, h := range r.Headers {
		told.Headers = append(told.Headers, header{[]byte(h.Key), h.Value})
	}
	return told
}

type batches struct {
	lock sync.Mutex
	list []batch
}

// OnFetchBatchRead is called by kgo for each batch.
func (b *batches) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.list = append(b.list, batch{Codec: names[m.CompressionType], Records: m.NumRecords})
}

func (b *batches) all() []batch {
	b.lock.Lock()
	defer b.lock.Unlock()
	return append([]batch{}, b.list...)
}
