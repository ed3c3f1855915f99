package sqlite

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"
)

// gate keeps the writer inside a batch until it is opened.
type gate struct {
	once    sync.Once
	release chan struct{}
	ended   chan error
}

func (g *gate) open() {
	g.once.Do(func() { close(g.release) })
	<-g.ended
}

// holdWriter returns when the writer is inside a transaction, where it stays.
func holdWriter(t *testing.T, s *Store) *gate {
	t.Helper()
	g := &gate{release: make(chan struct{}), ended: make(chan error)}
	inside := make(chan struct{})
	r := &request{op: "gate", do: func(*batch) error {
		close(inside)
		<-g.release
		return nil
	}}
	go func() {
		defer close(g.ended)
		if err := s.writer.do(context.Background(), r, false); err != nil {
			t.Errorf("the gate: %v", err)
		}
	}()
	<-inside
	t.Cleanup(g.open)
	return g
}

// waitQueued returns when n requests wait for the writer.
func waitQueued(t *testing.T, s *Store, n int) {
	t.Helper()
	wait(t, func() bool {
		s.writer.mu.Lock()
		defer s.writer.mu.Unlock()
		return len(s.writer.queue)+len(s.writer.urgent) >= n
	})
}

// wait asks again and again until it is so.
func wait(t *testing.T, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come about in %v", patience)
		}
	}
}
