package main

import (
	"runtime"
	"sync"
	"time"
)

const (
	spawnTasks   = 1_000_000
	skynetLeaves = 1_000_000
	fibN         = 27
	yieldsEach   = 1_000_000
	tasksPerProc = 2
)

func spawnRound(n int) float64 {
	var group sync.WaitGroup
	start := time.Now()
	group.Add(n)
	for range n {
		go group.Done()
	}
	group.Wait()
	return nsEach(time.Since(start), n)
}

func spawnJoin() []reading {
	spawnRound(spawnTasks / 10)
	return []reading{value("spawn_join", "ns/spawn", spawnRound(spawnTasks))}
}

func skynetNode(first, leaves uint64, up chan<- uint64) {
	if leaves == 1 {
		up <- first
		return
	}
	sums := make(chan uint64, 10)
	share := leaves / 10
	for i := range uint64(10) {
		go skynetNode(first+i*share, share, sums)
	}
	var sum uint64
	for range 10 {
		sum += <-sums
	}
	up <- sum
}

func skynet() []reading {
	round := func(leaves uint64) time.Duration {
		start := time.Now()
		up := make(chan uint64)
		go skynetNode(0, leaves, up)
		if sum := <-up; sum != leaves*(leaves-1)/2 {
			panic("skynet: wrong sum")
		}
		return time.Since(start)
	}
	round(skynetLeaves / 100)
	return []reading{value("skynet", "ms", ms(round(skynetLeaves)))}
}

func fib(n int) int {
	a, b := 0, 1
	for range n {
		a, b = b, a+b
	}
	return a
}

func fibFork(n int) int {
	if n < 2 {
		return n
	}
	left := make(chan int, 1)
	go func() { left <- fibFork(n - 1) }()
	right := fibFork(n - 2)
	return <-left + right
}

func fibJoin() []reading {
	fibFork(fibN - 7)
	start := time.Now()
	if fibFork(fibN) != fib(fibN) {
		panic("fib_join: wrong result")
	}
	forks := fib(fibN+1) - 1
	return []reading{value("fib_join", "ns/fork", nsEach(time.Since(start), forks))}
}

func yield() []reading {
	tasks := tasksPerProc * runtime.GOMAXPROCS(0)
	round := func(yields int) float64 {
		var group sync.WaitGroup
		start := time.Now()
		for range tasks {
			group.Add(1)
			go func() {
				defer group.Done()
				for range yields {
					runtime.Gosched()
				}
			}()
		}
		group.Wait()
		return nsEach(time.Since(start), tasks*yields)
	}
	round(yieldsEach / 10)
	return []reading{value("yield", "ns/yield", round(yieldsEach))}
}
