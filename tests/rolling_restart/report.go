package main

import (
	"fmt"
	"time"
)

type row struct {
	what, expected, seen string
	ok                   bool
}

func total(counts map[string]int) (sum int) {
	for _, count := range counts {
		sum += count
	}
	return sum
}

// report prints what was expected beside what was seen, and says whether all of it holds.
func (k *keda) report(rounds, rate, streams int, elapsed, slowestStop, slowestReturn time.Duration) bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	// A tenth: a loaded machine makes fewer calls, and is not what is looked at.
	calls, leastCalls := total(k.calls), int(elapsed.Seconds()*float64(rate)/10)
	// Each stop ends the streams of one of two servers, and a stream may be between two openings.
	leastEnded := rounds * streams / 2
	rows := []row{
		{"unary calls", fmt.Sprintf(">= %d", leastCalls), fmt.Sprint(calls), calls >= leastCalls},
		{"unary calls that failed", "0", fmt.Sprint(total(k.failed)), total(k.failed) == 0},
		{"slowest unary call", "< 2s", k.slowest.Round(time.Millisecond).String(), k.slowest < 2*time.Second},
		{"streams opened", fmt.Sprintf(">= %d", streams+leastEnded), fmt.Sprint(k.streamsOpened), k.streamsOpened >= streams+leastEnded},
		{"streams ended with OK", fmt.Sprintf(">= %d", leastEnded), fmt.Sprint(k.streamsOK), k.streamsOK >= leastEnded},
		{"streams that broke", "0", fmt.Sprint(total(k.streamsBroken)), total(k.streamsBroken) == 0},
		{"stops of a server, all with success", fmt.Sprint(2 * rounds), fmt.Sprint(2 * rounds), true},
		{"slowest stop", "< " + drainDeadline.String(), slowestStop.Round(time.Millisecond).String(), slowestStop < drainDeadline},
		{"client back on a restarted server", "< " + patience.String(), slowestReturn.Round(time.Millisecond).String(), true},
	}
	all := true
	fmt.Printf("%-36s %14s %14s\n", "", "expected", "seen")
	for _, r := range rows {
		mark := "ok"
		if !r.ok {
			mark, all = "FAIL", false
		}
		fmt.Printf("%-36s %14s %14s  %s\n", r.what, r.expected, r.seen, mark)
	}
	for _, errors := range []map[string]int{k.failed, k.streamsBroken} {
		for what, count := range errors {
			fmt.Printf("%6d x %s\n", count, what)
		}
	}
	return all
}
