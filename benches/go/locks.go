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

func timedLocks(n int, work func(i int)) float64 {
	var group sync.WaitGroup
	start := time.Now()
	for range lockTasks {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range n {
				work(i)
			}
		}()
	}
	group.Wait()
	return nsEach(time.Since(start), lockTasks*n)
}

func mutex() []reading {
	round := func(n int) float64 {
		var lock sync.Mutex
		count := 0
		ns := timedLocks(n, func(int) {
			lock.Lock()
			count++
			lock.Unlock()
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
		ns := timedLocks(n, func(i int) {
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
		})
		return ns
	}
	round(locksEach / 10)
	return []reading{value("rwlock", "ns/lock", round(locksEach))}
}
