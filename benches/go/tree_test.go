package main

import "testing"

// The Rust side walks the same tree; its test pins the same number.
func TestTheTreeIsTheOneWeKnow(t *testing.T) {
	var count func(seed uint64) int
	count = func(seed uint64) int {
		nodes := 0
		for index := range visit(seed) {
			nodes += 1 + count(childSeed(seed, index))
		}
		return nodes
	}
	nodes := 0
	for index := range uint64(rootChildren) {
		nodes += 1 + count(childSeed(1, index))
	}
	if nodes != 705_352 {
		t.Errorf("the tree has %d nodes", nodes)
	}
}
