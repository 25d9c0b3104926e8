// Two scalers are restarted in turn, several times, under a client that asks as KEDA does: no call may fail.
//
// In a cluster a pod leaves DNS when it is told to stop. Here both addresses stay listed, so that nothing but the
// server's own GOAWAY moves the client. The second is stopped when the first is ready and the client has come back to it:
// what minReadySeconds is for.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"
)

func main() {
	scaler := flag.String("scaler", "", "the program")
	rounds := flag.Int("rounds", 5, "restarts of each server")
	rate := flag.Int("rate", 500, "unary calls a second")
	streams := flag.Int("streams", 200, "open streams")
	flag.Parse()
	ok, err := prove(*scaler, *rounds, *rate, *streams)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rolling restart:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func prove(program string, rounds, rate, streams int) (bool, error) {
	folder, err := os.MkdirTemp("", "rolling-restart-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(folder)
	page, err := vllmPage()
	if err != nil {
		return false, err
	}
	grpcPort, err := freePort()
	if err != nil {
		return false, err
	}
	healthPort, err := freePort()
	if err != nil {
		return false, err
	}
	var servers []*server
	for _, host := range []string{"127.0.0.1", "127.0.0.2"} {
		s, err := newServer(program, folder, host, grpcPort, healthPort, page)
		if err != nil {
			return false, err
		}
		defer s.kill()
		if err := within60(s.start); err != nil {
			return false, err
		}
		servers = append(servers, s)
	}

	client, err := dial([]string{servers[0].grpc, servers[1].grpc})
	if err != nil {
		return false, err
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	var calling, watching sync.WaitGroup
	callsCtx, endCalls := context.WithCancel(ctx)
	defer endCalls()
	calling.Go(func() { client.call(callsCtx, time.Second/time.Duration(rate)) })
	for range streams {
		watching.Go(func() { client.watch(ctx) })
	}
	began := time.Now()
	var slowestStop, slowestReturn time.Duration
	for round := range rounds {
		for _, s := range servers {
			for _, up := range servers {
				back, err := client.answeredBy(up.grpc, time.Now())
				if err != nil {
					return false, err
				}
				slowestReturn = max(slowestReturn, back)
			}
			// Long enough for streams that ended to be open again.
			time.Sleep(reopenAfter + time.Second)
			took, err := s.stop()
			if err != nil {
				return false, fmt.Errorf("round %d: %s left with %w", round+1, s.grpc, err)
			}
			slowestStop = max(slowestStop, took)
			if err := within60(s.start); err != nil {
				return false, err
			}
		}
	}
	for _, up := range servers {
		if _, err := client.answeredBy(up.grpc, time.Now()); err != nil {
			return false, err
		}
	}
	elapsed := time.Since(began)
	endCalls()
	answered := make(chan struct{})
	go func() { calling.Wait(); close(answered) }()
	select {
	case <-answered:
	case <-time.After(patience):
		return false, fmt.Errorf("calls are still unanswered %s after the last one was made", patience)
	}
	end()
	watching.Wait()
	return client.report(rounds, rate, streams, elapsed, slowestStop, slowestReturn), nil
}

func within60(start func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return start(ctx)
}
