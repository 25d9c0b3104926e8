package main

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// raw hands messages to gRPC as the bytes that they are: the few fields of KEDA's proto need no generated code.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(message any) ([]byte, error) { return message.([]byte), nil }

func (raw) Unmarshal(bytes []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), bytes...)
	return nil
}

func field(to []byte, number protowire.Number, bytes []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), bytes)
}

// scaledObjectRef is externalscaler.ScaledObjectRef: name 1, namespace 2, scalerMetadata 3 (map entries: key 1, value 2).
func scaledObjectRef(name, namespace string, metadata map[string]string) []byte {
	message := field(field(nil, 1, []byte(name)), 2, []byte(namespace))
	for key, value := range metadata {
		message = field(message, 3, field(field(nil, 1, []byte(key)), 2, []byte(value)))
	}
	return message
}

// getMetricsRequest is externalscaler.GetMetricsRequest: scaledObjectRef 1, metricName 2.
func getMetricsRequest(ref []byte, metric string) []byte {
	return field(field(nil, 1, ref), 2, []byte(metric))
}

// within is the value of the first field of this number: a message's bytes, or a number.
func within(message []byte, number protowire.Number) ([]byte, uint64, error) {
	for len(message) > 0 {
		at, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil, 0, protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(at, kind, message[tag:])
		if size < 0 {
			return nil, 0, protowire.ParseError(size)
		}
		value := message[tag : tag+size]
		message = message[tag+size:]
		if at != number {
			continue
		}
		switch kind {
		case protowire.BytesType:
			bytes, _ := protowire.ConsumeBytes(value)
			return bytes, 0, nil
		case protowire.VarintType:
			n, _ := protowire.ConsumeVarint(value)
			return nil, n, nil
		}
	}
	return nil, 0, fmt.Errorf("no field %d", number)
}

// metricValue is GetMetricsResponse.metricValues[0].metricValue: 1, then 2.
func metricValue(response []byte) (uint64, error) {
	value, _, err := within(response, 1)
	if err != nil {
		return 0, err
	}
	_, number, err := within(value, 2)
	return number, err
}

// isActive is IsActiveResponse.result: 1.
func isActive(response []byte) bool {
	_, result, err := within(response, 1)
	return err == nil && result == 1
}
