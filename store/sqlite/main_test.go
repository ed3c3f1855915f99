package sqlite

import (
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
	goleak.VerifyTestMain(m)
}
