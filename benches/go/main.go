// The Go twin: every workload of heist-bench, in Go, one measurement a process.
//
// Sizes are those of the Rust side (src/workloads); changing one means changing both.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
)

// reading is one line of output; its shape is that of src/reading.rs.
type reading struct {
	Workload string   `json:"workload"`
	Value    *float64 `json:"value,omitempty"`
	Unit     string   `json:"unit"`
	Note     string   `json:"note,omitempty"`
}

func value(workload, unit string, v float64) reading {
	return reading{Workload: workload, Value: &v, Unit: unit}
}

func cannot(workload, unit, why string) reading {
	return reading{Workload: workload, Unit: unit, Note: why}
}

// size is the number of tasks at once, for the workloads that are asked for one.
var size = flag.Int("size", 1, "tasks at once")

var workloads = map[string]func() []reading{
	"spawn_join":        spawnJoin,
	"skynet":            skynet,
	"fib_join":          fibJoin,
	"join_fib":          joinFib,
	"join_sort":         joinSort,
	"join_merge":        joinMerge,
	"join_matrix":       joinMatrix,
	"join_nqueens":      joinQueens,
	"join_uneven":       joinUneven,
	"join_small":        joinSmall,
	"join_beside_echo":  joinBesideEcho,
	"yield":             yield,
	"ping_pong":         pingPong,
	"chan_mpmc":         func() []reading { return chanMany("chan_mpmc", 4, 4) },
	"chan_mpsc":         func() []reading { return chanMany("chan_mpsc", 4, 1) },
	"chan_spsc":         func() []reading { return chanMany("chan_spsc", 1, 1) },
	"select":            selectTwo,
	"ring":              ring,
	"mutex":             mutex,
	"rwlock":            rwlock,
	"timers":            timers,
	"parked_100k":       func() []reading { return parked("parked_100k", 100_000) },
	"parked_1m":         func() []reading { return parked("parked_1m", 1_000_000) },
	"steal_hot":         func() []reading { return steal("steal_hot", hotPause, hotSamples, another) },
	"steal_idle":        func() []reading { return steal("steal_idle", idlePause, idleSamples, another) },
	"steal_hot_single":  func() []reading { return steal("steal_hot_single", hotPause, hotSamples, nothing) },
	"steal_idle_single": func() []reading { return steal("steal_idle_single", idlePause, idleSamples, nothing) },
	"scale_spawn":       func() []reading { return scaleSpawn(*size) },
	"scale_wake":        func() []reading { return scaleWake(*size) },
	"scale_timer":       func() []reading { return scaleTimer(*size) },
	"spawn_latency":     spawnLatency,
	"uneven_tree":       unevenTree,
	"hogs":              hogs,
	"blocking":          func() []reading { return sleepers("blocking", announcedNap) },
	"unannounced":       func() []reading { return sleepers("unannounced", unannouncedNap) },
	"tcp_echo_64":       func() []reading { return tcpEcho("tcp_echo_64", 64) },
	"tcp_echo_1000":     func() []reading { return tcpEcho("tcp_echo_1000", 1000) },
	"http_raw":          func() []reading { return underWrk("http_raw", serveRaw, "") },
	"http":              func() []reading { return underWrk("http", serveLibrary, "net/http") },
	"task_spawn_join":   noTasks("task_spawn_join"),
	"task_yield":        noTasks("task_yield"),
	"task_ping_pong":    noTasks("task_ping_pong"),
	"task_parked_1m":    noTasks("task_parked_1m_rss"),
	"task_timers":       noTasks("task_timers_over", "task_timers_cpu"),
	"http_hyper":        noTasks("http_hyper", "http_hyper_p50", "http_hyper_p99"),
	"idle_cpu":          idleCPU,
	"start_stop":        startStop,
}

// noTasks answers for the rows that compare futures with futures.
func noTasks(rows ...string) func() []reading {
	return func() []reading {
		var all []reading
		for _, row := range rows {
			all = append(all, cannot(row, "", "Go has no futures"))
		}
		return all
	}
}

func startStop() []reading {
	return []reading{cannot("start_stop", "us", "Go's runtime lives as long as the process")}
}

func main() {
	workload := flag.String("workload", "", "what to measure")
	procs := flag.Int("procs", runtime.GOMAXPROCS(0), "GOMAXPROCS")
	flag.Parse()
	run, known := workloads[*workload]
	if !known {
		fmt.Fprintf(os.Stderr, "go-twin: unknown workload %q\n", *workload)
		os.Exit(1)
	}
	runtime.GOMAXPROCS(*procs)
	output := json.NewEncoder(os.Stdout)
	for _, r := range run() {
		if err := output.Encode(r); err != nil {
			fmt.Fprintln(os.Stderr, "go-twin:", err)
			os.Exit(1)
		}
	}
}
