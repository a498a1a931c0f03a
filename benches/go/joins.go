package main

import (
	"runtime"
	"slices"
	"time"
)

const (
	joinFibN    = 30
	sortN       = 10_000_000
	sortCut     = 1000
	matrixN     = 512
	matrixCut   = 32
	queensN     = 13
	queensAll   = 73_712
	smallDepth  = 10
	smallRounds = 1000
)

const joinNote = "a goroutine per fork: Go has no other fork and join"

func noted(row, unit string, v float64) []reading {
	r := value(row, unit, v)
	r.Note = joinNote
	return []reading{r}
}

// join runs both, b on a goroutine of its own.
func join(a, b func()) {
	done := make(chan struct{}, 1)
	go func() {
		b()
		done <- struct{}{}
	}()
	a()
	<-done
}

func joinFibNode(n int) int {
	if n < 2 {
		return n
	}
	var a, b int
	join(func() { a = joinFibNode(n - 1) }, func() { b = joinFibNode(n - 2) })
	return a + b
}

func joinFib() []reading {
	joinFibNode(joinFibN - 7)
	start := time.Now()
	if joinFibNode(joinFibN) != fib(joinFibN) {
		panic("join_fib: wrong result")
	}
	return noted("join_fib", "ns/fork", nsEach(time.Since(start), fib(joinFibN+1)-1))
}

func randomNumbers() []uint64 {
	numbers := make([]uint64, sortN)
	for i := range numbers {
		numbers[i] = mix(uint64(i))
	}
	return numbers
}

func partition(items []uint64) int {
	last := len(items) - 1
	three := []uint64{items[0], items[last/2], items[last]}
	slices.Sort(three)
	pivot, below := three[1], 0
	for i := range items {
		items[i], items[below] = items[below], items[i]
		if items[below] < pivot {
			below++
		}
	}
	return below
}

func quicksort(items []uint64) {
	if len(items) <= sortCut {
		slices.Sort(items)
		return
	}
	below := partition(items)
	if below == 0 {
		slices.Sort(items)
		return
	}
	join(func() { quicksort(items[:below]) }, func() { quicksort(items[below:]) })
}

func merge(left, right, to []uint64) {
	if len(left) < len(right) {
		left, right = right, left
	}
	if len(to) <= 8*sortCut {
		for i := range to {
			if len(right) == 0 || len(left) != 0 && left[0] <= right[0] {
				to[i], left = left[0], left[1:]
			} else {
				to[i], right = right[0], right[1:]
			}
		}
		return
	}
	half := len(left) / 2
	split, _ := slices.BinarySearch(right, left[half])
	join(
		func() { merge(left[:half], right[:split], to[:half+split]) },
		func() { merge(left[half:], right[split:], to[half+split:]) },
	)
}

func mergesort(items, room []uint64) {
	if len(items) <= sortCut {
		slices.Sort(items)
		return
	}
	half := len(items) / 2
	join(
		func() { mergesort(items[:half], room[:half]) },
		func() { mergesort(items[half:], room[half:]) },
	)
	merge(items[:half], items[half:], room)
	copy(items, room)
}

func timedSort(row string, sort func(items, room []uint64)) []reading {
	numbers, room := randomNumbers(), make([]uint64, sortN)
	for i := range room {
		room[i] = 1
	}
	start := time.Now()
	sort(numbers, room)
	took := time.Since(start)
	if !slices.IsSorted(numbers) {
		panic(row + ": wrong order")
	}
	return noted(row, "ms", ms(took))
}

func joinSort() []reading {
	return timedSort("join_sort", func(items, _ []uint64) { quicksort(items) })
}

func joinMerge() []reading {
	return timedSort("join_merge", mergesort)
}

func multiply(a, b, c []float64) {
	rows := len(c) / matrixN
	if rows <= matrixCut {
		for row := range rows {
			cRow := c[row*matrixN : (row+1)*matrixN]
			for k := range matrixN {
				factor, bRow := a[row*matrixN+k], b[k*matrixN:(k+1)*matrixN]
				for j := range cRow {
					cRow[j] += factor * bRow[j]
				}
			}
		}
		return
	}
	half := rows / 2 * matrixN
	join(
		func() { multiply(a[:half], b, c[:half]) },
		func() { multiply(a[half:], b, c[half:]) },
	)
}

func joinMatrix() []reading {
	random := func(seed uint64) []float64 {
		m := make([]float64, matrixN*matrixN)
		for i := range m {
			m[i] = float64(mix(uint64(i)^seed) % 10)
		}
		return m
	}
	a, b := random(1), random(2)
	start := time.Now()
	c := make([]float64, matrixN*matrixN)
	multiply(a, b, c)
	runtime.KeepAlive(c)
	return noted("join_matrix", "ms", ms(time.Since(start)))
}

func countQueens(board int) uint64 {
	all := uint32(1)<<board - 1
	return queens(all, all, 0, 0, 0)
}

func queens(all, free, columns, up, down uint32) uint64 {
	if free == 0 {
		return 0
	}
	queen := free & -free
	others := free ^ queen
	below := func() uint64 {
		columns, up, down := columns|queen, (up|queen)<<1, (down|queen)>>1
		if columns == all {
			return 1
		}
		return queens(all, all&^(columns|up|down), columns, up, down)
	}
	if others == 0 {
		return below()
	}
	var a, b uint64
	join(func() { a = below() }, func() { b = queens(all, others, columns, up, down) })
	return a + b
}

func joinQueens() []reading {
	start := time.Now()
	if countQueens(queensN) != queensAll {
		panic("join_nqueens: wrong number")
	}
	return noted("join_nqueens", "ms", ms(time.Since(start)))
}

func uneven(seed, from, to uint64) uint64 {
	switch to - from {
	case 0:
		return 0
	case 1:
		seed := childSeed(seed, from)
		return 1 + uneven(seed, 0, visit(seed))
	}
	middle := from + (to-from)/2
	var a, b uint64
	join(func() { a = uneven(seed, from, middle) }, func() { b = uneven(seed, middle, to) })
	return a + b
}

func joinUneven() []reading {
	start := time.Now()
	runtime.KeepAlive(uneven(1, 0, rootChildren))
	return noted("join_uneven", "ms", ms(time.Since(start)))
}

func small(depth int) int {
	if depth == 1 {
		return 1
	}
	var a, b int
	join(func() { a = small(depth - 1) }, func() { b = small(depth - 1) })
	return a + b + 1
}

func joinSmall() []reading {
	round := func() {
		if small(smallDepth) != 1<<smallDepth-1 {
			panic("join_small: wrong number")
		}
	}
	round()
	start := time.Now()
	for range smallRounds {
		round()
	}
	return noted("join_small", "us", nsEach(time.Since(start), smallRounds)/1e3)
}
