// Command bench measures the authorities against their floors and against what people write by hand, in one run, so that
// ratios mean something. On SQLite: group commit against one transaction per operation, fenced against unfenced
// transactions, writes to protected tables, renewals beside busy processes, the renewal of a session that holds many leases, and a whole short
// process. On PostgreSQL, on private servers that it starts: cycles of distinct and of one contended name, attempts that
// lose, renewals, fenced writes, writes to protected tables, leases that expire together, a slow disk, and a profile. On both: operations, holds and outboxes. Without a store: what waiting within a budget adds to calls.
//
//	go run . --list             what there is
//	go run . --only commit      one of them
//	go run . --quick            all of them in a few seconds: that they run, not what they show
//	go run . --out results      all of them, kept as JSON
//	go run . --docs             docs/performance.md, from results
package main

import (
	"context"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var code int
	if config, ok := os.LookupEnv(childEnv); ok {
		code = runChild(ctx, config, os.Stdin, os.Stdout, os.Stderr)
	} else {
		code = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	os.Exit(code)
}
