// A map and a reduce over a standing cluster of mrflight, over Arrow Flight and nothing else.
//
// Usage: words METADATA, for example 127.0.0.1:5005
//
// Words are sent to the partition of their first letter, and counted there.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const partitions = 3

var (
	lines  = []string{"a tale of two cities", "the tale of a tub", "two on a tower"}
	schema = arrow.NewSchema([]arrow.Field{{Name: "word", Type: arrow.BinaryTypes.String}}, nil)
)

type target struct {
	Location   string `json:"location"`
	Descriptor string `json:"descriptor"`
}

type commit struct {
	ID        string `json:"id"`
	MapID     int    `json:"map_id"`
	Attempt   int    `json:"attempt"`
	Schema    []byte `json:"schema"` // base64 in JSON, as the contract has it
	Rows      []int  `json:"rows"`
	SizeBytes []int  `json:"size_bytes"`
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: words METADATA")
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, location string) error {
	metadata, err := dial(location)
	if err != nil {
		return err
	}
	defer metadata.Close()
	var created struct{ Partitions []target }
	request := map[string]any{"id": "words", "reducers": partitions}
	if err := call(ctx, metadata, "put_shuffle", request, &created); err != nil {
		return err
	}
	for mapID, line := range lines {
		if err := runMap(ctx, metadata, mapID, line, created.Partitions); err != nil {
			return fmt.Errorf("map %d: %w", mapID, err)
		}
	}
	info, err := metadata.GetFlightInfo(ctx, &flight.FlightDescriptor{
		Type: flight.DescriptorPATH, Path: []string{"words"},
	})
	if err != nil {
		return err
	}
	for _, endpoint := range info.Endpoint {
		if err := countWords(ctx, endpoint); err != nil {
			return err
		}
	}
	return drop(ctx, metadata)
}

// dial connects to a location such as grpc+tcp://127.0.0.1:5005.
func dial(location string) (flight.Client, error) {
	address := strings.TrimPrefix(location, "grpc+tcp://")
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	return flight.NewClientWithMiddleware(address, nil, nil, plain)
}

// call sends an action, whose request and answer are JSON.
func call(ctx context.Context, client flight.Client, action string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	stream, err := client.DoAction(ctx, &flight.Action{Type: action, Body: body})
	if err != nil {
		return err
	}
	result, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return json.Unmarshal(result.Body, answer)
}

// runMap puts the words of a line where they belong, and commits them as one attempt of a map.
func runMap(ctx context.Context, metadata flight.Client, mapID int, line string, targets []target) error {
	words := make([][]string, len(targets))
	for _, word := range strings.Fields(line) {
		partition := int(word[0]) % len(targets)
		words[partition] = append(words[partition], word)
	}
	done := commit{ID: "words", MapID: mapID, Schema: flight.SerializeSchema(schema, memory.DefaultAllocator)}
	for partition, rows := range words {
		if len(rows) > 0 {
			if err := put(ctx, targets[partition], mapID, rows); err != nil {
				return err
			}
		}
		done.Rows = append(done.Rows, len(rows))
		done.SizeBytes = append(done.SizeBytes, len(strings.Join(rows, "")))
	}
	var answer map[string]any
	return call(ctx, metadata, "commit_map", done, &answer)
}

// put sends rows to a partition, and returns when they are stored.
func put(ctx context.Context, to target, mapID int, rows []string) error {
	data, err := dial(to.Location)
	if err != nil {
		return err
	}
	defer data.Close()
	stream, err := data.DoPut(ctx)
	if err != nil {
		return err
	}
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer builder.Release()
	builder.Field(0).(*array.StringBuilder).AppendValues(rows, nil)
	batch := builder.NewRecord()
	defer batch.Release()
	writer := flight.NewRecordWriter(stream, ipc.WithSchema(schema))
	writer.SetFlightDescriptor(&flight.FlightDescriptor{
		Type: flight.DescriptorPATH, Path: []string{to.Descriptor, strconv.Itoa(mapID), "0"},
	})
	if err := writer.Write(batch); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for { // the rows are stored when the server has ended its answer
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// countWords reads the partition of an endpoint, and prints how often it has each word.
func countWords(ctx context.Context, endpoint *flight.FlightEndpoint) error {
	data, err := dial(endpoint.Location[0].Uri)
	if err != nil {
		return err
	}
	defer data.Close()
	stream, err := data.DoGet(ctx, endpoint.Ticket)
	if err != nil {
		return err
	}
	reader, err := flight.NewRecordReader(stream)
	if err != nil {
		return err
	}
	defer reader.Release()
	counts := map[string]int{}
	for reader.Next() {
		words := reader.Record().Column(0).(*array.String)
		for row := range words.Len() {
			counts[strings.Clone(words.Value(row))]++
		}
	}
	if err := reader.Err(); err != nil {
		return err
	}
	names := make([]string, 0, len(counts))
	for word := range counts {
		names = append(names, word)
	}
	slices.Sort(names)
	for _, word := range names {
		fmt.Println(word, counts[word])
	}
	return nil
}

// drop ends the shuffle, first at the metadata server and then where its rows are.
func drop(ctx context.Context, metadata flight.Client) error {
	request := map[string]any{"id": "words"}
	var holders struct{ Locations []string }
	if err := call(ctx, metadata, "drop_shuffle", request, &holders); err != nil {
		return err
	}
	for _, location := range holders.Locations {
		data, err := dial(location)
		if err != nil {
			return err
		}
		var answer map[string]any
		err = call(ctx, data, "drop_shuffle", request, &answer)
		data.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
