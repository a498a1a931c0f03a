package main

import (
	"sync"
	"time"
)

const (
	scaleSpawns      = 1_000_000
	scaleWakes       = 200_000
	scaleTimers      = 100_000
	scaleSpawnRounds = 10_000
	scaleWakeRounds  = 2_000
	scaleTimerRounds = 20
	scaleSettle      = 20 * time.Microsecond
)

func rounds(operations, most, n int) int {
	return min(max(operations/n, 1), most)
}

// mean runs the round once to warm up and then so many times.
func mean(rounds int, round func() float64) float64 {
	round()
	sum := 0.0
	for range rounds {
		sum += round()
	}
	return sum / float64(rounds)
}

func scaleSpawn(n int) []reading {
	ns := mean(rounds(scaleSpawns, scaleSpawnRounds, n), func() float64 { return spawnRound(n) })
	return []reading{value("scale_spawn", "ns/task", ns)}
}

func scaleWake(n int) []reading {
	ns := mean(rounds(scaleWakes, scaleWakeRounds, n), func() float64 {
		_, _, wakeNs := parkedRound(n, scaleSettle)
		return wakeNs
	})
	return []reading{value("scale_wake", "ns/task", ns)}
}

// scaleTimer lets nobody wake before all sleep: the shortest nap is longer than it takes to
// start n goroutines.
func scaleTimer(n int) []reading {
	shortest := 10*time.Millisecond + 3*time.Microsecond*time.Duration(n)
	ns := mean(rounds(scaleTimers, scaleTimerRounds, n), func() float64 {
		var group sync.WaitGroup
		before := cpuTime()
		group.Add(n)
		for index := range n {
			go func() {
				defer group.Done()
				share := float64(index*7919%10_007) / 10_007
				time.Sleep(shortest + time.Duration(float64(shortest)*share))
			}()
		}
		group.Wait()
		return nsEach(cpuTime()-before, n)
	})
	return []reading{value("scale_timer", "ns/task", ns)}
}
