package main

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// client uses a store's methods directly, with the least that the contract asks of a client: rising ids, and
// ClosedBelow, the lowest id of an acquire that is still in flight. Safe for concurrent use.
type client struct {
	store   lease.Store
	session fence.ID

	mu     sync.Mutex
	ids    lease.IDs
	flight list.List // ids of acquires in flight, rising
}

// newClient opens a session that needs no renewal while a benchmark lasts.
func newClient(ctx context.Context, store lease.Store, ttl time.Duration) (*client, error) {
	c := &client{store: store, session: lease.NewID()}
	_, err := store.Open(ctx, lease.OpenRequest{ID: c.session, Owner: "bench", TTL: ttl})
	return c, err
}

func (c *client) closedBelowLocked() fence.ID {
	if e := c.flight.Front(); e != nil {
		if id, ok := e.Value.(fence.ID); ok {
			return id
		}
	}
	return c.ids.New()
}

func (c *client) closedBelow() fence.ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closedBelowLocked()
}

// acquire asks for the names and returns the acquisition's id with the grants.
func (c *client) acquire(ctx context.Context, names ...string) (fence.ID, []lease.Grant, error) {
	c.mu.Lock()
	id := c.ids.New()
	place := c.flight.PushBack(id)
	below := c.closedBelowLocked()
	c.mu.Unlock()
	grants, err := c.store.Acquire(ctx, lease.AcquireRequest{Session: c.session, ID: id, Names: names, ClosedBelow: below})
	c.mu.Lock()
	c.flight.Remove(place)
	c.mu.Unlock()
	return id, grants, err
}

func (c *client) release(ctx context.Context, id fence.ID, names ...string) error {
	_, err := c.store.Release(ctx, lease.ReleaseRequest{Session: c.session, ID: id, Names: names, ClosedBelow: c.closedBelow()})
	return err
}

func (c *client) renew(ctx context.Context) error {
	_, err := c.store.Renew(ctx, lease.RenewRequest{Session: c.session, ClosedBelow: c.closedBelow()})
	return err
}

// cycle is an acquire and a release of name, and how long the acquire took.
func (c *client) cycle(ctx context.Context, name string) (time.Duration, error) {
	start := time.Now()
	id, _, err := c.acquire(ctx, name)
	took := time.Since(start)
	if err != nil {
		return took, err
	}
	return took, c.release(ctx, id, name)
}
