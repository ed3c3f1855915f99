//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/client"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
)

// asked is a call to a server that may be killed: an acquire or, where op is set, a submission.
type asked struct {
	name, op string
	req      lease.AcquireRequest
	claim    fence.Claim
	err      error
}

func (a *asked) ask(ctx context.Context, c *client.Client) (known bool) {
	if a.op != "" {
		body := []byte(a.op)
		var done operation.Submitted
		done, a.err = c.Operations().Submit(ctx, operation.SubmitRequest{ID: a.op, Kind: "k", Request: body, Fingerprint: operation.FingerprintOf("k", body)})
		return done.Known
	}
	var grants []lease.Grant
	if grants, a.err = c.Leases().Acquire(ctx, a.req); a.err == nil {
		a.claim = grants[0].Claim
	}
	return false
}

func dial(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Options{Endpoints: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestServerIsKilledAmidCalls: of 200 calls to a server that is killed amid them, what was acknowledged holds, what was "certainly not applied" was not, and repeating the rest settles it: nothing is lost, and nothing is there twice.
func TestServerIsKilledAmidCalls(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if kind == "postgres" {
				w, _ = postgresWorld(t, testdb.Shared(t))
			}
			first := w.start("serve", "--listen", "127.0.0.1:0", "--json")
			c := dial(t, first.serving())
			session := lease.NewID()
			if _, err := c.Leases().Open(t.Context(), lease.OpenRequest{ID: session, Owner: "w", TTL: 5 * time.Minute}); err != nil {
				t.Fatal(err)
			}
			all := make([]*asked, 200)
			for i := range all {
				all[i] = &asked{name: fmt.Sprint("n", i), req: lease.AcquireRequest{Session: session, ID: lease.NewID(), Names: []string{fmt.Sprint("n", i)}}}
				if i%2 == 1 {
					all[i].op = fmt.Sprint("op", i)
				}
			}
			var calls sync.WaitGroup
			var answered atomic.Int64
			places := make(chan struct{}, 16)
			for _, a := range all {
				calls.Go(func() {
					places <- struct{}{}
					defer func() { <-places }()
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					if a.ask(ctx, c); a.err == nil && answered.Add(1) == 60 {
						first.signal(syscall.SIGKILL)
					}
				})
			}
			calls.Wait()
			first.wait()
			second := w.start("serve", "--listen", "127.0.0.1:0", "--json")
			settled(t, dial(t, second.serving()), all)
			second.signal(syscall.SIGTERM)
			second.wait()
		})
	}
}

// settled repeats each call at another server.
func settled(t *testing.T, c *client.Client, all []*asked) {
	t.Helper()
	tokens := map[fence.Token]bool{}
	kinds := map[string]int{}
	for _, a := range all {
		before := *a
		var there bool
		if a.op == "" {
			info, err := c.Leases().Get(t.Context(), a.name)
			if err != nil {
				t.Fatal(err)
			}
			there = info.Held
		} else {
			_, err := c.Operations().Get(t.Context(), a.op)
			if there = err == nil; err != nil && !errors.Is(err, operation.ErrNotFound) {
				t.Fatal(err)
			}
		}
		known := a.ask(t.Context(), c)
		switch {
		case a.err != nil:
			t.Errorf("repeating %q %q: %v", a.name, a.op, a.err)
		case before.err == nil:
			kinds["acknowledged"]++
			if !there || a.claim != before.claim || a.op != "" && !known {
				t.Errorf("%q %q was acknowledged with %v, and is there: %v, %v", a.name, a.op, before.claim, there, a.claim)
			}
		case errors.Is(before.err, lease.ErrUnavailable) || errors.Is(before.err, operation.ErrUnavailable):
			kinds["not applied"]++
			if there {
				t.Errorf("%q %q is there, and was told as %v", a.name, a.op, before.err)
			}
		case errors.Is(before.err, lease.ErrUnknown) || errors.Is(before.err, operation.ErrUnknown):
			kinds["unknown"]++
		default:
			t.Errorf("%q %q: %v", a.name, a.op, before.err)
		}
		if a.op == "" {
			if tokens[a.claim.Token] {
				t.Errorf("token %d was granted twice", a.claim.Token)
			}
			tokens[a.claim.Token] = true
		}
	}
	recs, err := c.Operations().List(t.Context(), operation.ListRequest{Kind: "k", Limit: 1000})
	if err != nil || len(recs) != len(all)/2 || len(tokens) != len(all)/2 {
		t.Errorf("%d operations and %d tokens, %v", len(recs), len(tokens), err)
	}
	t.Log(kinds)
}

// TestServerIsStopped: a server that stands still, with its connections open, is left for another one while its sessions live; and when it goes on it does no harm.
func TestServerIsStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start("serve", "--listen", "127.0.0.1:0", "--json")
	second := w.start("serve", "--listen", "127.0.0.1:0", "--json")
	url := second.serving()
	c, err := client.Dial(t.Context(), client.Options{Endpoints: []string{first.serving(), url}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	s, err := lease.Start(t.Context(), c.Leases(), lease.Options{Owner: "w", TTL: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	held, err := s.Acquire(t.Context(), lease.Want{Names: []string{"job"}})
	if err != nil {
		t.Fatal(err)
	}
	first.signal(syscall.SIGSTOP)
	select {
	case <-held.Context().Done():
		t.Errorf("the lease was lost: %v", context.Cause(held.Context()))
	case <-time.After(9 * time.Second): // more than a TTL
	}
	if _, err := s.Acquire(t.Context(), lease.Want{Names: []string{"other"}}); err != nil {
		t.Errorf("beside a server that stands still: %v", err)
	}
	if info, err := dial(t, url).Leases().Get(t.Context(), "job"); err != nil || !info.Held {
		t.Errorf("%+v, %v", info, err)
	}
	first.signal(syscall.SIGCONT)
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, p := range []*process{first, second} {
		p.signal(syscall.SIGTERM)
		p.wait()
	}
}
