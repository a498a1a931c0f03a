package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	timerSleepers = 100_000
	longestNap    = 1000 * time.Millisecond
	parkedSettle  = 50 * time.Millisecond
	idleParked    = 100
	idleLength    = 5 * time.Second
	idleSettle    = 500 * time.Millisecond
)

func timers() []reading {
	round := func(n int) (over, cpu time.Duration) {
		var group sync.WaitGroup
		start, cpuBefore := time.Now(), cpuTime()
		group.Add(n)
		for index := range n {
			go func() {
				defer group.Done()
				time.Sleep(time.Duration(1+index*7919%1000) * time.Millisecond)
			}()
		}
		group.Wait()
		return max(time.Since(start)-longestNap, 0), cpuTime() - cpuBefore
	}
	round(timerSleepers / 100)
	over, cpu := round(timerSleepers)
	return []reading{value("timers_over", "ms", ms(over)), value("timers_cpu", "ms", ms(cpu))}
}

func parkedRound(n int, settle time.Duration) (rss, spawnNs, wakeNs float64) {
	gate := make(chan struct{})
	var started atomic.Int64
	var group sync.WaitGroup
	rssBefore := residentBytes()
	start := time.Now()
	group.Add(n)
	for range n {
		go func() {
			started.Add(1)
			<-gate
			group.Done()
		}()
	}
	for started.Load() != int64(n) {
		runtime.Gosched()
	}
	spawnNs = nsEach(time.Since(start), n)
	for settled := time.Now().Add(settle); time.Now().Before(settled); {
		runtime.Gosched()
	}
	rss = (float64(residentBytes()) - float64(rssBefore)) / float64(n)
	start = time.Now()
	close(gate)
	group.Wait()
	return rss, spawnNs, nsEach(time.Since(start), n)
}

func parked(name string, n int) []reading {
	rss, spawnNs, wakeNs := parkedRound(n, parkedSettle)
	return []reading{
		value(name+"_rss", "B/task", rss),
		value(name+"_spawn", "ns/task", spawnNs),
		value(name+"_wake", "ns/task", wakeNs),
	}
}

func idleCPU() []reading {
	gate := make(chan struct{})
	for range idleParked {
		go func() { <-gate }()
	}
	time.Sleep(idleSettle)
	before := cpuTime()
	time.Sleep(idleLength)
	used := cpuTime() - before
	close(gate)
	return []reading{value("idle_cpu", "ms", ms(used))}
}
