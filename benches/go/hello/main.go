// The smallest Go program with a goroutine: its stripped size is the row binary_size.
package main

import "fmt"

func main() {
	done := make(chan struct{})
	go func() {
		fmt.Println("hello")
		close(done)
	}()
	<-done
}
