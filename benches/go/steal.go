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
	rareMiss    = 20
)

// behind is what is spawned right behind the measured goroutine: the newest goroutine is its own
// P's for a while.
type behind int

const (
	nothing behind = iota
	another
)

// hopeless tells whether to give up: many goroutines that nobody came for, and no exceptions.
func hopeless(missed, hit int) bool {
	return missed >= maxMisses && missed*rareMiss > missed+hit
}

func steal(name string, pause time.Duration, samples int, second behind) []reading {
	epoch := time.Now()
	var ranAt atomic.Int64
	var behindRan atomic.Bool
	behindRan.Store(true)
	round := func(samples int) (latencies []time.Duration, missed int) {
		for len(latencies)+missed < samples && !hopeless(missed, len(latencies)) {
			for until := time.Since(epoch) + pause; time.Since(epoch) < until; {
			}
			ranAt.Store(0)
			start := time.Since(epoch)
			go func() { ranAt.Store(int64(time.Since(epoch))) }()
			if second == another {
				behindRan.Store(false)
				go func() { behindRan.Store(true) }()
			}
			for ranAt.Load() == 0 && time.Since(epoch)-start < patience {
			}
			if at := ranAt.Load(); at != 0 {
				latencies = append(latencies, time.Duration(at)-start)
			} else {
				missed++
			}
			// A sample begins with empty queues.
			for ranAt.Load() == 0 || !behindRan.Load() {
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
	if hopeless(missed, len(latencies)) || len(latencies) == 0 {
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
