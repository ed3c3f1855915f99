package testdb

import (
	"context"
	"testing"

	"github.com/tenure-go/tenure/internal/testdb/pgserver"
)

// The benchmarks say what a test pays for each thing it asks for: go test -run '^$' -bench . -benchtime 20x

func BenchmarkStart(b *testing.B) {
	Shared(b)
	for b.Loop() {
		server, err := binary.start(context.Background(), Options{})
		discard(b, server, err)
	}
}

func BenchmarkStandby(b *testing.B) {
	s := Start(b, Options{})
	for b.Loop() {
		server, err := s.server.Standby(context.Background(), Options{})
		discard(b, server, err)
	}
}

// discard closes a server outside what is measured.
func discard(b *testing.B, server *pgserver.Server, err error) {
	b.Helper()
	if err != nil {
		fatal(b, err)
	}
	b.StopTimer()
	if err := server.Close(); err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
}

func BenchmarkDatabase(b *testing.B) {
	s := Shared(b)
	for b.Loop() {
		s.Database(b)
	}
}

// BenchmarkTemplate copies a database of some forty relations and their indexes.
func BenchmarkTemplate(b *testing.B) {
	s := Start(b, Options{})
	prepare := func(string) error {
		return s.server.Exec(context.Background(), templateName,
			"DO $$ BEGIN FOR i IN 1..20 LOOP EXECUTE format('CREATE TABLE t%s (name text PRIMARY KEY, n int)', i); END LOOP; END $$")
	}
	for b.Loop() {
		s.Template(b, prepare)
	}
}

func BenchmarkCrashAndRestart(b *testing.B) {
	s := Start(b, Options{})
	for b.Loop() {
		s.Crash(b)
		s.Restart(b)
	}
}
