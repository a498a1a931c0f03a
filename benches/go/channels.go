package main

import (
	"sync"
	"time"
)

const (
	pingRounds   = 300_000
	chanMessages = 2_000_000
	chanCapacity = 128
	ringSize     = 1000
	ringRounds   = 300
)

func pingPong() []reading {
	round := func(n uint64) float64 {
		ping, pong := make(chan uint64), make(chan uint64)
		go func() {
			for token := range ping {
				pong <- token + 1
			}
		}()
		start := time.Now()
		for token := range n {
			ping <- token
			if <-pong != token+1 {
				panic("ping_pong: lost token")
			}
		}
		took := time.Since(start)
		close(ping)
		return nsEach(took, int(n))
	}
	round(pingRounds / 10)
	return []reading{value("ping_pong", "ns/round", round(pingRounds))}
}

// sendShare starts the senders and tells when all have sent.
func sendShare(messages chan<- uint64, senders, each int) *sync.WaitGroup {
	var group sync.WaitGroup
	for range senders {
		group.Add(1)
		go func() {
			defer group.Done()
			for message := range uint64(each) {
				messages <- message
			}
		}()
	}
	return &group
}

func receiveAll(messages <-chan uint64) int {
	received := 0
	for range messages {
		received++
	}
	return received
}

func chanMany(name string, senders, receivers int) []reading {
	round := func(n int) float64 {
		start := time.Now()
		messages := make(chan uint64, chanCapacity)
		counts := make(chan int, receivers)
		for range receivers {
			go func() { counts <- receiveAll(messages) }()
		}
		sendShare(messages, senders, n/senders).Wait()
		close(messages)
		received := 0
		for range receivers {
			received += <-counts
		}
		if received != n {
			panic("chan: lost messages")
		}
		return nsEach(time.Since(start), n)
	}
	round(chanMessages / 10)
	return []reading{value(name, "ns/msg", round(chanMessages))}
}

func selectTwo() []reading {
	round := func(n int) float64 {
		half := n / 2
		start := time.Now()
		a, b := make(chan uint64, chanCapacity), make(chan uint64, chanCapacity)
		sendShare(a, 1, half)
		sendShare(b, 1, half)
		var sum uint64
		for range n {
			select {
			case message := <-a:
				sum += message
			case message := <-b:
				sum += message
			}
		}
		took := time.Since(start)
		if sum != uint64(half)*uint64(half-1) {
			panic("select: lost messages")
		}
		return nsEach(took, n)
	}
	round(chanMessages / 20)
	return []reading{value("select", "ns/msg", round(chanMessages/2))}
}

func ring() []reading {
	round := func(rounds int) float64 {
		first := make(chan int)
		in := first
		for range ringSize - 1 {
			from, to := in, make(chan int)
			go func() {
				for token := range from {
					to <- token + 1
				}
				close(to)
			}()
			in = to
		}
		start := time.Now()
		done := make(chan struct{})
		// The last station closes the ring: it alone counts rounds and stops the token.
		go func() {
			for range rounds - 1 {
				first <- <-in + 1
			}
			<-in
			close(first)
			<-in
			close(done)
		}()
		first <- 0
		<-done
		return nsEach(time.Since(start), ringSize*rounds)
	}
	round(ringRounds / 10)
	return []reading{value("ring", "ns/hop", round(ringRounds))}
}
