package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	tickPeriod     = time.Millisecond
	hogCount       = 4
	hogsLength     = 3 * time.Second
	sleeperCount   = 100
	sleeperNap     = 50 * time.Millisecond
	sleepersLength = time.Second
)

// tick sleeps to every tick and counts also those it missed: a wake-up 5 ms late stands for
// five ticks that were 5, 4, 3, 2 and 1 ms late. The clock starts with the load.
func tick(start time.Time, length time.Duration) []time.Duration {
	ticks := int(length / tickPeriod)
	late := make([]time.Duration, 0, ticks)
	due := func() time.Time { return start.Add(tickPeriod * time.Duration(len(late)+1)) }
	for len(late) < ticks {
		time.Sleep(time.Until(due()))
		now := time.Now()
		for len(late) < ticks && !now.Before(due()) {
			late = append(late, now.Sub(due()))
		}
	}
	return late
}

// lateness also says when part of the load never ran, because then the ticker had it easy.
func lateness(name string, late []time.Duration, ran int64, tasks int) []reading {
	rows := []reading{
		value(name+"_late_p50", "ms", ms(quantile(late, 0.5))),
		value(name+"_late_p99", "ms", ms(quantile(late, 0.99))),
		value(name+"_late_max", "ms", ms(quantile(late, 1))),
	}
	if ran < int64(tasks) {
		for i := range rows {
			rows[i].Note = fmt.Sprintf("only %d of %d tasks next to it ever ran", ran, tasks)
		}
	}
	return rows
}

func hogs() []reading {
	start := time.Now()
	var stop atomic.Bool
	var ran atomic.Int64
	time.AfterFunc(hogsLength, func() { stop.Store(true) })
	var group sync.WaitGroup
	for range hogCount {
		group.Add(1)
		go func() {
			defer group.Done()
			if !stop.Load() {
				ran.Add(1)
			}
			for !stop.Load() {
			}
		}()
	}
	late := make(chan []time.Duration)
	go func() { late <- tick(start, hogsLength) }()
	ticks := <-late
	group.Wait()
	return lateness("hogs", ticks, ran.Load(), hogCount)
}

func sleepers(name string, nap func()) []reading {
	start := time.Now()
	end := start.Add(sleepersLength)
	var ran atomic.Int64
	var group sync.WaitGroup
	for range sleeperCount {
		group.Add(1)
		go func() {
			defer group.Done()
			for naps := 0; time.Now().Before(end); naps++ {
				if naps == 0 {
					ran.Add(1)
				}
				nap()
				runtime.Gosched()
			}
		}()
	}
	late := make(chan []time.Duration)
	go func() { late <- tick(start, sleepersLength) }()
	ticks := <-late
	group.Wait()
	return lateness(name, ticks, ran.Load(), sleeperCount)
}

// nap sleeps its whole length: like Rust's sleep it goes on after a signal, which the
// scheduler may send to preempt.
func nap(nanosleep func(span *syscall.Timespec) syscall.Errno) {
	span := syscall.NsecToTimespec(sleeperNap.Nanoseconds())
	for nanosleep(&span) == syscall.EINTR {
	}
}

// announcedNap blocks in a system call that the scheduler knows of, as all of Go's own do.
func announcedNap() {
	nap(func(span *syscall.Timespec) syscall.Errno {
		_, _, errno := syscall.Syscall(syscall.SYS_NANOSLEEP,
			uintptr(unsafe.Pointer(span)), uintptr(unsafe.Pointer(span)), 0)
		return errno
	})
}

// unannouncedNap blocks in one that it does not know of.
func unannouncedNap() {
	nap(func(span *syscall.Timespec) syscall.Errno {
		_, _, errno := syscall.RawSyscall(syscall.SYS_NANOSLEEP,
			uintptr(unsafe.Pointer(span)), uintptr(unsafe.Pointer(span)), 0)
		return errno
	})
}
