package client_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/lease"
)

// tough is a store whose acquires of the name "slow" take until the gate opens.
type tough struct {
	lease.Store
	in, gate chan struct{}
}

func (s *tough) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	if slices.Contains(req.Names, "slow") {
		s.in <- struct{}{}
		select {
		case <-s.gate:
		case <-ctx.Done():
		}
	}
	return s.Store.Acquire(ctx, req)
}

// Calls that take long, alone or among others, hold up no other's for long.
func TestSlowCallsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	store := &tough{w.leases, make(chan struct{}, 100), make(chan struct{})}
	o := w.options
	o.Leases = store
	s, _ := served(t, o)
	l := dial(t, nil, s.URL).Leases()
	id, err := open(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer close(store.gate)
	for range 8 {
		all.Go(func() {
			_, _ = l.Acquire(t.Context(), lease.AcquireRequest{Session: id, ID: lease.NewID(), Names: []string{"slow"}}) // granted to one
		})
	}
	for range 2 {
		<-store.in
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for _, name := range []string{"a", "b", "c"} {
		if _, err := l.Acquire(ctx, lease.AcquireRequest{Session: id, ID: lease.NewID(), Names: []string{name}}); err != nil {
			t.Errorf("beside slow calls: %v", err)
		}
	}
}
