package main

import "testing"

func TestAnswersThatAreNoneAreNoticed(t *testing.T) {
	good := "  100 requests in 3.00s, 7.00MB read\nRequests/sec:  88300.12\n"
	refused := "Non-2xx or 3xx responses: 100"
	broken := "Socket errors: connect 0, read 7, write 0, timeout 0"
	for _, line := range []string{"", refused, broken} {
		report := good
		if line != "" {
			report = "  " + line + "\n" + good
		}
		if said := complaint([]byte(report)); said != line {
			t.Errorf("of %q it said %q", report, said)
		}
	}
}
