package leasetest_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func tokenTwins() []twin {
	return []twin{
		{"token restarts after release", tokenRestarts, []string{"token-rises-after-release", "token-rises-after-every-kind-of-end"}},
		{"token taken from a session id", tokenOfSession, []string{"token-rises-with-every-grant-of-one-session"}},
		{"token taken from the clock", tokenOfClock, []string{"L65-a-step-of-the-clock-moves-expiry-and-nothing-else"}},
		{"an old id is answered with the successor's claim", claimFollows, []string{"L75-the-claim-of-a-handle-never-changes"}},
		{"the token counter has a TTL", counterExpires, []string{"L71-a-token-counter-has-no-ttl"}},
		{"each session has an authority of its own", manyAuthorities, []string{"fault-16-one-authority-one-id"}},
		{"token restarts with the process", counterRestarts, []string{"fault-16-no-token-repeats-after-a-restart"}},
		{"token restarts when its row was pruned", counterPruned, []string{"L69-no-token-repeats-after-pruning"}},
	}
}

// retoken gives each acquisition of a name the token that draw says, once and for ever.
func retoken(h *harness, draw func(w *wrap, req lease.AcquireRequest, g lease.Grant, was fence.Token) fence.Token) *wrap {
	w := replace(h)
	var mu sync.Mutex
	type key struct {
		name string
		id   fence.ID
	}
	given := map[key]fence.Token{}
	last := map[string]fence.Token{}
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		grants, err := w.inner.Acquire(ctx, req)
		mu.Lock()
		defer mu.Unlock()
		var held *lease.HeldError
		if errors.As(err, &held) {
			held.Token = last[held.Name]
		}
		for i, g := range grants {
			k := key{g.Claim.Name, req.ID}
			if given[k] == 0 {
				given[k] = draw(w, req, g, last[k.name])
				last[k.name] = given[k]
			}
			grants[i].Claim.Token = given[k]
		}
		return grants, err
	}
	w.get = func(ctx context.Context, name string) (lease.Info, error) {
		info, err := w.inner.Get(ctx, name)
		mu.Lock()
		defer mu.Unlock()
		if info.Token != 0 {
			info.Token = given[key{name, info.Acquisition}]
		}
		return info, err
	}
	return w
}

func tokenRestarts(h *harness) {
	retoken(h, func(*wrap, lease.AcquireRequest, lease.Grant, fence.Token) fence.Token { return 1 })
}

func tokenOfSession(h *harness) {
	retoken(h, func(_ *wrap, req lease.AcquireRequest, _ lease.Grant, _ fence.Token) fence.Token {
		return fence.Token(binary.BigEndian.Uint64(req.Session[:8]) >> 1)
	})
}

func tokenOfClock(h *harness) {
	retoken(h, func(w *wrap, _ lease.AcquireRequest, _ lease.Grant, _ fence.Token) fence.Token {
		return fence.Token((w.now() + 10*time.Hour).Nanoseconds())
	})
}

func claimFollows(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		grants, err := w.inner.Acquire(ctx, req)
		if holder, info := w.holder(ctx, req.Names[0]); errors.Is(err, lease.ErrEnded) && info.Held {
			successor, _ := w.known(holder.ID)
			return w.inner.Acquire(ctx, successor)
		}
		return grants, err
	}
}

func counterExpires(h *harness) {
	var since time.Duration
	retoken(h, func(w *wrap, _ lease.AcquireRequest, _ lease.Grant, was fence.Token) fence.Token {
		before := since
		since = w.now()
		if since-before > 30*24*time.Hour {
			return 1
		}
		return was + 1
	})
}

func manyAuthorities(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		grants, err := w.inner.Acquire(ctx, req)
		for i := range grants {
			grants[i].Claim.Authority = req.Session
		}
		return grants, err
	}
}

func counterRestarts(h *harness) {
	restarted := true
	h.restart = func() { restarted = true }
	retoken(h, func(_ *wrap, _ lease.AcquireRequest, _ lease.Grant, was fence.Token) fence.Token {
		if restarted {
			restarted = false
			return 1
		}
		return was + 1
	})
}

func counterPruned(h *harness) {
	pruned := true
	h.operator = pruning{h.operator, func() { pruned = true }}
	var next fence.Token
	retoken(h, func(*wrap, lease.AcquireRequest, lease.Grant, fence.Token) fence.Token {
		if pruned {
			pruned, next = false, 0
		}
		next++
		return next
	})
}
