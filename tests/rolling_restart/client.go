package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

const service = "/externalscaler.ExternalScaler/"

// reopenAfter is KEDA's wait after a stream that ended with OK (external_scaler.go, Run).
const reopenAfter = 2 * time.Second

// keda asks as KEDA 2.21's external scaler client does: round robin over all addresses, no deadline, no retry policy, no
// wait-for-ready, no keepalive (pkg/scalers/external_scaler.go, getClientForConnectionPool).
type keda struct {
	connection *grpc.ClientConn
	ref        []byte

	mutex         sync.Mutex
	calls         map[string]int
	failed        map[string]int
	last          map[string]time.Time
	slowest       time.Duration
	streamsOpened int
	streamsOK     int
	streamsBroken map[string]int
	pushes        int
}

func dial(addresses []string) (*keda, error) {
	both := manual.NewBuilderWithScheme("both")
	var listed []resolver.Address
	for _, address := range addresses {
		listed = append(listed, resolver.Address{Addr: address})
	}
	both.InitialState(resolver.State{Addresses: listed})
	connection, err := grpc.NewClient("both:///scaler",
		grpc.WithResolvers(both),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin":{}}]}`),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &keda{
		connection:    connection,
		ref:           scaledObjectRef("chat", "serving", map[string]string{"scalerAddress": "scaler:6000"}),
		calls:         map[string]int{},
		failed:        map[string]int{},
		last:          map[string]time.Time{},
		streamsBroken: map[string]int{},
	}, nil
}

func (k *keda) unary(method string, request []byte, check func([]byte) error) {
	var response []byte
	var from peer.Peer
	began := time.Now()
	err := k.connection.Invoke(context.Background(), service+method, request, &response, grpc.ForceCodec(raw{}), grpc.Peer(&from))
	took := time.Since(began)
	if err == nil {
		err = check(response)
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.calls[method]++
	k.slowest = max(k.slowest, took)
	if err != nil {
		k.failed[method+": "+err.Error()]++
		return
	}
	k.last[from.Addr.String()] = began
}

func (k *keda) getMetrics() {
	k.unary("GetMetrics", getMetricsRequest(k.ref, "required-replicas"), func(response []byte) error {
		value, err := metricValue(response)
		if err == nil && value != 2 {
			err = fmt.Errorf("answered %d", value)
		}
		return err
	})
}

func (k *keda) isActive() {
	k.unary("IsActive", k.ref, func(response []byte) error {
		if !isActive(response) {
			return errors.New("answered inactive")
		}
		return nil
	})
}

// call asks at a steady rate, whatever becomes of the calls before, and returns when all are answered.
func (k *keda) call(ctx context.Context, every time.Duration) {
	var open sync.WaitGroup
	due := time.NewTicker(every)
	defer due.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			open.Wait()
			return
		case <-due.C:
		}
		if n%2 == 0 {
			open.Go(k.getMetrics)
		} else {
			open.Go(k.isActive)
		}
	}
}

// watch holds one stream open, as KEDA does per push trigger.
func (k *keda) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := k.stream(ctx)
		k.mutex.Lock()
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, io.EOF):
			k.streamsOK++
		default:
			k.streamsBroken[err.Error()]++
		}
		k.mutex.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(reopenAfter):
		}
	}
}

func (k *keda) stream(ctx context.Context) error {
	description := &grpc.StreamDesc{ServerStreams: true}
	stream, err := k.connection.NewStream(ctx, description, service+"StreamIsActive", grpc.ForceCodec(raw{}))
	if err != nil {
		return err
	}
	if err := stream.SendMsg(k.ref); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	opened := false
	for {
		var push []byte
		if err := stream.RecvMsg(&push); err != nil {
			return err
		}
		k.mutex.Lock()
		k.pushes++
		if !opened {
			opened = true
			k.streamsOpened++
		}
		k.mutex.Unlock()
	}
}

// answeredBy waits until an address has answered a call that was made after `since`.
func (k *keda) answeredBy(address string, since time.Time) (time.Duration, error) {
	for time.Since(since) < patience {
		k.mutex.Lock()
		last := k.last[address]
		k.mutex.Unlock()
		if last.After(since) {
			return time.Since(since), nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 0, fmt.Errorf("%s is ready and the client did not come back to it in %s", address, patience)
}
