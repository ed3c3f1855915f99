package drill

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/tenure-go/tenure/internal/testdb"
)

// partWord makes this test program a part of a drill: partWord, the name of a twin or "sound", "worker" or "judge".
const partWord = "part-of-a-drill"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == partWord {
		if err := part(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// A race-built program otherwise lingers for a second when it exits.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 halt_on_error=1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := testdb.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func part(twin, role string) error {
	if role == "judge" {
		return Judge(context.Background(), os.Stdin, os.Stdout)
	}
	change, ok := twins()[twin]
	if !ok {
		return fmt.Errorf("no twin %q", twin)
	}
	return runWorker(context.Background(), os.Stdin, os.Stdout, change)
}
