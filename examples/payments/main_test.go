package payments_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/store/postgres"
)

// patience bounds each wait of a test for something that must happen: it is where a test fails, and measures nothing.
const patience = 60 * time.Second

// TestMain is a worker where a test started the binary again: see worker_test.go.
func TestMain(m *testing.M) {
	if text := os.Getenv(jobVariable); text != "" {
		os.Exit(playWorker(text))
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil { // they wait for timers, not for a processor
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(testdb.Main(m))
}

// install fills the database that every test gets a copy of.
func install(url string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	_, err = postgres.Migrate(ctx, conn, postgres.MigrateOptions{})
	return err
}
