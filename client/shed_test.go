package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/client"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/server"
)

// busy is a store whose acquires wait for a gate.
type busy struct {
	lease.Store
	gate chan struct{}
}

func (b *busy) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	select {
	case <-b.gate:
	case <-ctx.Done():
		return nil, &lease.UnavailableError{Op: "acquire", Err: context.Cause(ctx)}
	}
	return b.Store.Acquire(ctx, req)
}

// A client that is told to come again later does, and no call has failed for it; one without the time is told so.
func TestComesAgainWhenTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.options
	store := &busy{w.leases, make(chan struct{})}
	o.Leases, o.Limits = store, server.Limits{AtOnce: 4}
	url := serve(t, o).URL
	var clients []*client.Leases
	var sessions []fence.ID
	for range 200 { // each with a lane of its own, so that all come at once
		c := dial(t, nil, url).Leases()
		id, err := open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		clients, sessions = append(clients, c), append(sessions, id)
	}
	acquire := func(i int, within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := clients[i].Acquire(ctx, lease.AcquireRequest{Session: sessions[i], ID: lease.NewID(), Names: []string{fmt.Sprint("n", i)}})
		return err
	}
	var all sync.WaitGroup
	for i := range clients[1:] {
		all.Go(func() {
			if err := acquire(i+1, time.Minute); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	opened := time.AfterFunc(1500*time.Millisecond, func() { close(store.gate) })
	defer opened.Stop()
	if err := acquire(0, 100*time.Millisecond); !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrUnknown) {
		t.Errorf("without the time: %v", err)
	}
	all.Wait()
}
