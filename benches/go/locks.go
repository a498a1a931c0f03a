package main

import (
	"sync"
	"time"
)

const (
	lockTasks  = 8
	locksEach  = 200_000
	writeEvery = 10
)

// timedLocks runs the loop in every task. The loop is written out by the caller: a call through a
// function value for every lock would be measured too.
func timedLocks(n int, loop func(n int)) float64 {
	var group sync.WaitGroup
	start := time.Now()
	group.Add(lockTasks)
	for range lockTasks {
		go func() {
			defer group.Done()
			loop(n)
		}()
	}
	group.Wait()
	return nsEach(time.Since(start), lockTasks*n)
}

func mutex() []reading {
	round := func(n int) float64 {
		var lock sync.Mutex
		count := 0
		ns := timedLocks(n, func(n int) {
			for range n {
				lock.Lock()
				count++
				lock.Unlock()
			}
		})
		if count != lockTasks*n {
			panic("mutex: lost")
		}
		return ns
	}
	round(locksEach / 10)
	return []reading{value("mutex", "ns/lock", round(locksEach))}
}

func rwlock() []reading {
	round := func(n int) float64 {
		var lock sync.RWMutex
		count := 0
		ns := timedLocks(n, func(n int) {
			for i := range n {
				if i%writeEvery == 0 {
					lock.Lock()
					count++
					lock.Unlock()
				} else {
					lock.RLock()
					if count < 0 {
						panic("rwlock: lost")
					}
					lock.RUnlock()
				}
			}
		})
		if writes := (n + writeEvery - 1) / writeEvery; count != lockTasks*writes {
			panic("rwlock: lost")
		}
		return ns
	}
	round(locksEach / 10)
	return []reading{value("rwlock", "ns/lock", round(locksEach))}
}
