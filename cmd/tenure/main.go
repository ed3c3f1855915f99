// Command tenure gives work one recognised owner: it runs commands under a lease, shows and repairs leases,
// and drills what happens when an owner stops. `tenure help` and docs/cli.md say how.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
