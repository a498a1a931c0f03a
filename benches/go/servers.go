package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"
)

const bufferBytes = 4096

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	return listener
}

func echo(conn net.Conn) {
	defer conn.Close()
	buffer := make([]byte, bufferBytes)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		if _, err := conn.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// tcpEcho serves; the load comes from the same program for every peer.
func tcpEcho(name string, connections int) []reading {
	listener := listen()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go echo(conn)
		}
	}()
	program := os.Getenv("HEIST_BENCH_LOAD")
	if program == "" {
		panic("HEIST_BENCH_LOAD does not name the load generator")
	}
	cpuBefore := cpuTime()
	output, err := exec.Command(program, "load", listener.Addr().String(),
		strconv.Itoa(connections)).Output()
	cpu := cpuTime() - cpuBefore
	if err != nil {
		panic("load generator: " + err.Error())
	}
	var result struct {
		RequestsPerS float64 `json:"requests_per_s"`
		P50us        float64 `json:"p50_us"`
		P99us        float64 `json:"p99_us"`
		Requests     float64 `json:"n_requests"`
	}
	if err := json.Unmarshal(output, &result); err != nil {
		panic("load generator: " + err.Error())
	}
	return []reading{
		value(name, "req/s", result.RequestsPerS),
		value(name+"_p50", "us", result.P50us),
		value(name+"_p99", "us", result.P99us),
		value(name+"_cpu", "us/req", cpu.Seconds()*1e6/result.Requests),
	}
}

// joinBesideEcho counts queens beside the server.
func joinBesideEcho() []reading {
	const name, board, solutions = "join_beside_echo", 10, 724
	var boards atomic.Uint64
	start := time.Now()
	go func() {
		for {
			if countQueens(board) != solutions {
				panic(name + ": wrong number")
			}
			boards.Add(1)
		}
	}()
	p99 := tcpEcho("tcp_echo_1000", 1000)[2]
	rate := float64(boards.Load()) / time.Since(start).Seconds()
	p99.Workload, p99.Note = name+"_p99", joinNote
	return append(noted(name+"_rate", "boards/s", rate), p99)
}

const httpAnswer = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n" +
	"content-length: 13\r\n\r\nHello, World!"

// raw is the smallest server that keeps connections alive: no header is looked at.
func raw(conn net.Conn) {
	defer conn.Close()
	buffer := make([]byte, bufferBytes)
	answer, end := []byte(httpAnswer), []byte("\r\n\r\n")
	filled := 0
	for {
		n, err := conn.Read(buffer[filled:])
		if err != nil {
			return
		}
		filled += n
		for {
			at := bytes.Index(buffer[:filled], end)
			if at < 0 {
				break
			}
			if _, err := conn.Write(answer); err != nil {
				return
			}
			filled = copy(buffer, buffer[at+len(end):filled])
		}
	}
}

func serveRaw(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go raw(conn)
	}
}

func serveLibrary(listener net.Listener) {
	hello := func(answer http.ResponseWriter, _ *http.Request) {
		answer.Header().Set("Content-Type", "text/plain")
		answer.Write([]byte("Hello, World!"))
	}
	http.Serve(listener, http.HandlerFunc(hello))
}

var complaints = regexp.MustCompile(`(?m)^ *((?:Non-2xx or 3xx responses|Socket errors): .*)$`)

// complaint is the line by which wrk says that not every request was answered well. An answer that
// is none counts as fast as any, so it fails the measurement, as a lost message does.
func complaint(report []byte) string {
	if found := complaints.FindSubmatch(report); found != nil {
		return string(found[1])
	}
	return ""
}

// underWrk serves and lets wrk measure.
func underWrk(name string, serve func(net.Listener), note string) []reading {
	if _, err := exec.LookPath("wrk"); err != nil {
		why := "wrk is not on PATH"
		return []reading{
			cannot(name, "req/s", why),
			cannot(name+"_p50", "us", why),
			cannot(name+"_p99", "us", why),
		}
	}
	listener := listen()
	go serve(listener)
	url := "http://" + listener.Addr().String() + "/"
	var report []byte
	for _, length := range []string{"-d1s", "-d3s"} {
		var err error
		report, err = exec.Command("wrk", "-t1", "-c64", length, "--latency", url).Output()
		if err != nil {
			panic("wrk: " + err.Error())
		}
		if complaint := complaint(report); complaint != "" {
			panic("wrk: " + complaint)
		}
	}
	rate := regexp.MustCompile(`Requests/sec:\s+([\d.]+)`).FindSubmatch(report)
	p50 := regexp.MustCompile(`50%\s+([\d.]+[a-z]+)`).FindSubmatch(report)
	p99 := regexp.MustCompile(`99%\s+([\d.]+[a-z]+)`).FindSubmatch(report)
	if rate == nil || p50 == nil || p99 == nil {
		panic("wrk: it said nothing that can be read")
	}
	perSecond, _ := strconv.ParseFloat(string(rate[1]), 64)
	us := func(text []byte) float64 {
		span, _ := time.ParseDuration(string(text))
		return float64(span.Nanoseconds()) / 1e3
	}
	rows := []reading{
		value(name, "req/s", perSecond),
		value(name+"_p50", "us", us(p50[1])),
		value(name+"_p99", "us", us(p99[1])),
	}
	for i := range rows {
		rows[i].Note = note
	}
	return rows
}
