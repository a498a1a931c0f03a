module heist-bench-twin

go 1.24
