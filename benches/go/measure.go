package main

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

// nsEach is the time of each of n operations.
func nsEach(span time.Duration, n int) float64 {
	return float64(span.Nanoseconds()) / float64(n)
}

func ms(span time.Duration) float64 {
	return span.Seconds() * 1e3
}

// cpuTime is the user and system time of this process so far.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// residentBytes is the resident set, as the kernel counts it for everyone.
func residentBytes() uint64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		panic(err)
	}
	var size, pages uint64
	if _, err := fmt.Sscan(string(statm), &size, &pages); err != nil {
		panic(err)
	}
	return pages * uint64(os.Getpagesize())
}

// quantile is the nearest-rank quantile; it sorts.
func quantile(samples []time.Duration, q float64) time.Duration {
	slices.Sort(samples)
	rank := int(q*float64(len(samples)) + 0.9999999)
	return samples[min(max(rank, 1), len(samples))-1]
}
