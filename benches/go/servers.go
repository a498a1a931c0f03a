package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
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
	refuse := func(why string) []reading {
		return []reading{
			cannot(name, "req/s", why),
			cannot(name+"_p50", "us", why),
			cannot(name+"_p99", "us", why),
			cannot(name+"_cpu", "us/req", why),
		}
	}
	program := os.Getenv("HEIST_BENCH_LOAD")
	if program == "" {
		return refuse("HEIST_BENCH_LOAD does not name the load generator")
	}
	cpuBefore := cpuTime()
	output, err := exec.Command(program, "load", listener.Addr().String(),
		strconv.Itoa(connections)).Output()
	cpu := cpuTime() - cpuBefore
	if err != nil {
		return refuse("load generator: " + err.Error())
	}
	var result struct {
		RequestsPerS float64 `json:"requests_per_s"`
		P50us        float64 `json:"p50_us"`
		P99us        float64 `json:"p99_us"`
		Requests     float64 `json:"n_requests"`
	}
	if err := json.Unmarshal(output, &result); err != nil {
		return refuse("load generator: " + err.Error())
	}
	return []reading{
		value(name, "req/s", result.RequestsPerS),
		value(name+"_p50", "us", result.P50us),
		value(name+"_p99", "us", result.P99us),
		value(name+"_cpu", "us/req", cpu.Seconds()*1e6/result.Requests),
	}
}

func httpHello() []reading {
	refuse := func(why string) []reading {
		return []reading{
			cannot("http", "req/s", why),
			cannot("http_p50", "us", why),
			cannot("http_p99", "us", why),
		}
	}
	if _, err := exec.LookPath("wrk"); err != nil {
		return refuse("wrk is not on PATH")
	}
	listener := listen()
	hello := func(answer http.ResponseWriter, _ *http.Request) {
		answer.Header().Set("Content-Type", "text/plain")
		answer.Write([]byte("Hello, World!"))
	}
	go http.Serve(listener, http.HandlerFunc(hello))
	url := "http://" + listener.Addr().String() + "/"
	var report []byte
	for _, length := range []string{"-d1s", "-d3s"} {
		var err error
		report, err = exec.Command("wrk", "-t1", "-c64", length, "--latency", url).Output()
		if err != nil {
			return refuse("wrk failed: " + err.Error())
		}
	}
	rate := regexp.MustCompile(`Requests/sec:\s+([\d.]+)`).FindSubmatch(report)
	p50 := regexp.MustCompile(`50%\s+([\d.]+[a-z]+)`).FindSubmatch(report)
	p99 := regexp.MustCompile(`99%\s+([\d.]+[a-z]+)`).FindSubmatch(report)
	if rate == nil || p50 == nil || p99 == nil {
		return refuse("cannot read what wrk said")
	}
	perSecond, _ := strconv.ParseFloat(string(rate[1]), 64)
	us := func(text []byte) float64 {
		span, _ := time.ParseDuration(string(text))
		return float64(span.Nanoseconds()) / 1e3
	}
	return []reading{
		value("http", "req/s", perSecond),
		value("http_p50", "us", us(p50[1])),
		value("http_p99", "us", us(p99[1])),
	}
}
