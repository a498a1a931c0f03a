package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	latencySamples = 200_000
	burstMax       = 8
	accepting      = 20 * time.Microsecond
	serving        = 4 * time.Microsecond
)

func workFor(span time.Duration) {
	for from := time.Now(); time.Since(from) < span; {
	}
}

// spawnLatency is the time from the creation of a goroutine until it runs.
func spawnLatency() []reading {
	epoch := time.Now()
	round := func(n int) []time.Duration {
		latencies := make([]atomic.Int64, n)
		var next atomic.Int64
		full := func() bool { return next.Load() >= int64(n) }
		serve := func(created time.Duration) {
			began := time.Since(epoch)
			if place := next.Add(1) - 1; place < int64(n) {
				latencies[place].Store(max(int64(began-created), 1))
			}
			workFor(serving)
		}
		var acceptors sync.WaitGroup
		for range max(runtime.GOMAXPROCS(0)-1, 1) {
			acceptors.Add(1)
			go func() {
				defer acceptors.Done()
				for burst := 1; !full(); burst = burst%burstMax + 1 {
					workFor(accepting)
					for range burst {
						created := time.Since(epoch)
						go serve(created)
					}
					runtime.Gosched()
				}
			}()
		}
		acceptors.Wait()
		all := make([]time.Duration, n)
		for i := range latencies {
			// A place is taken before its latency is written.
			for latencies[i].Load() == 0 {
				runtime.Gosched()
			}
			all[i] = time.Duration(latencies[i].Load())
		}
		return all
	}
	round(latencySamples / 10)
	latencies := round(latencySamples)
	row := func(suffix string, q float64) reading {
		return value("spawn_latency"+suffix, "us", float64(quantile(latencies, q).Nanoseconds())/1e3)
	}
	return []reading{row("_p50", 0.5), row("_p95", 0.95), row("_p99", 0.99), row("_p9999", 0.9999)}
}
