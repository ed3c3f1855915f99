package sqlite

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if any test leaves a goroutine behind. Started again by a test, the binary plays a process
// of its own instead: see child_test.go.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(playRole(role, os.Stdin, os.Stdout))
	}
	if err := fewerHistories(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	goleak.VerifyTestMain(m)
}

// fewerHistories makes that each test of random histories draws 15 of them with the race detector, instead of rapid's 100. TENURE_SQLITE_HISTORIES says another number, and -rapid.checks goes before both.
func fewerHistories() error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	number := os.Getenv("TENURE_SQLITE_HISTORIES")
	if number == "" && raceDetector {
		number = "15"
	}
	if given || number == "" {
		return nil
	}
	return flag.Set("rapid.checks", number)
}
