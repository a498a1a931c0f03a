package main

import (
	"runtime"
	"sync"
	"time"
)

const (
	rootChildren    = 8000
	children        = 8
	fertilePerMille = 124
	workRounds      = 50
)

// mix is one step of splitmix64.
func mix(seed uint64) uint64 {
	z := seed + 0x9E3779B97F4A7C15
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB
	return z ^ (z >> 31)
}

// visit does a node's work and returns the number of its children.
func visit(seed uint64) uint64 {
	state := seed
	for range workRounds {
		state = mix(state)
	}
	runtime.KeepAlive(state)
	if mix(seed)%1000 < fertilePerMille {
		return children
	}
	return 0
}

func childSeed(seed, index uint64) uint64 {
	return mix(seed ^ (index+1)*0xD6E8FEB86659FD93)
}

func grow(group *sync.WaitGroup, seed, count uint64) {
	group.Add(int(count))
	for index := range count {
		go func() {
			defer group.Done()
			seed := childSeed(seed, index)
			grow(group, seed, visit(seed))
		}()
	}
}

func unevenTree() []reading {
	round := func(seed, count uint64) float64 {
		start := time.Now()
		var group sync.WaitGroup
		grow(&group, seed, count)
		group.Wait()
		return ms(time.Since(start))
	}
	round(2, rootChildren/10)
	return []reading{value("uneven_tree", "ms", round(1, rootChildren))}
}
