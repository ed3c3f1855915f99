package postgres

import (
	"os"
	"testing"

	"github.com/tenure-go/tenure/internal/testdb"
)

// TestMain is a worker where a test started the binary again: see ops_killed_test.go.
func TestMain(m *testing.M) {
	if text := os.Getenv(holderVariable); text != "" {
		os.Exit(playHolder(text))
	}
	os.Exit(testdb.Main(m))
}
