package main

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	hotPause    = 15 * time.Microsecond
	hotSamples  = 20_000
	idlePause   = 2 * time.Millisecond
	idleSamples = 400
	patience    = 20 * time.Millisecond
	maxMisses   = 50
)

func steal(name string, pause time.Duration, samples int) []reading {
	epoch := time.Now()
	var ranAt atomic.Int64
	round := func(samples int) (latencies []time.Duration, missed int) {
		for len(latencies)+missed < samples && missed < maxMisses {
			for until := time.Since(epoch) + pause; time.Since(epoch) < until; {
			}
			ranAt.Store(0)
			start := time.Since(epoch)
			go func() { ranAt.Store(int64(time.Since(epoch))) }()
			// The newest goroutine is its own P's for a while.
			go func() {}()
			for ranAt.Load() == 0 && time.Since(epoch)-start < patience {
			}
			if at := ranAt.Load(); at != 0 {
				latencies = append(latencies, time.Duration(at)-start)
				continue
			}
			missed++
			for ranAt.Load() == 0 {
				runtime.Gosched()
			}
		}
		return latencies, missed
	}
	rows := func(row func(suffix string, q float64) reading) []reading {
		return []reading{row("_p50", 0.5), row("_p99", 0.99)}
	}
	if runtime.GOMAXPROCS(0) < 2 {
		return rows(func(suffix string, _ float64) reading {
			return cannot(name+suffix, "us", "needs two procs")
		})
	}
	round(samples / 10)
	latencies, missed := round(samples)
	note := ""
	if missed > 0 {
		note = fmt.Sprintf("nobody took the task within %d ms in %d of %d samples",
			patience.Milliseconds(), missed, missed+len(latencies))
	}
	if missed >= maxMisses || len(latencies) == 0 {
		return rows(func(suffix string, _ float64) reading {
			return cannot(name+suffix, "us", note)
		})
	}
	return rows(func(suffix string, q float64) reading {
		r := value(name+suffix, "us", float64(quantile(latencies, q).Nanoseconds())/1e3)
		r.Note = note
		return r
	})
}
