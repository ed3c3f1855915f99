package sqlite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// refusal is one way in which a claim is none.
type refusal struct {
	name  string
	claim func(b *bench) fence.Claim
	kind  error
	why   fence.Reason
}

func refusals() []refusal {
	changed := func(c fence.Claim, change func(*fence.Claim)) fence.Claim {
		change(&c)
		return c
	}
	return []refusal{
		{"released", func(b *bench) fence.Claim { b.p.drop(b.claim); return b.claim }, fence.ErrRefused, fence.Released},
		{"closed", func(b *bench) fence.Claim {
			if err := b.s.Close(b.t.Context(), b.p.session); err != nil {
				b.t.Fatal(err)
			}
			return b.claim
		}, fence.ErrRefused, fence.Released},
		{"expired", func(b *bench) fence.Claim { b.h.pass(time.Minute); return b.claim }, fence.ErrRefused, fence.Expired},
		{"revoked", func(b *bench) fence.Claim {
			if _, err := b.s.Revoke(b.t.Context(), lease.RevokeRequest{Name: "a", Token: b.claim.Token, Reason: "test"}); err != nil {
				b.t.Fatal(err)
			}
			return b.claim
		}, fence.ErrRefused, fence.Revoked},
		{"superseded", func(b *bench) fence.Claim { b.p.drop(b.claim); b.p.take("a"); return b.claim }, fence.ErrRefused, fence.Superseded},
		{"another acquisition", func(b *bench) fence.Claim {
			return changed(b.claim, func(c *fence.Claim) { c.Acquisition = lease.NewID() })
		}, fence.ErrRefused, fence.NotGranted},
		{"a token between", func(b *bench) fence.Claim {
			later := b.p.take("b")
			return changed(b.claim, func(c *fence.Claim) { c.Token = later.Token })
		}, fence.ErrRefused, fence.NotGranted},
		{"a name never granted", func(b *bench) fence.Claim {
			return changed(b.claim, func(c *fence.Claim) { c.Name = "never" })
		}, fence.ErrRefused, fence.NotGranted},
		{"another authority", func(b *bench) fence.Claim {
			return changed(b.claim, func(c *fence.Claim) { c.Authority = lease.NewID() })
		}, fence.ErrForeign, 0},
		{"from the future", func(b *bench) fence.Claim {
			return changed(b.claim, func(c *fence.Claim) { c.Token = 1 << 40 })
		}, fence.ErrAhead, 0},
		{"no claim", func(*bench) fence.Claim { return fence.Claim{} }, fence.ErrInvalid, 0},
	}
}

// A stale claim is refused with its reason, by whatever way it became stale; a foreign one and one from the
// future by their kinds. The function is not called, nothing is written, and each is counted.
func TestFencedRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range refusals() {
		b := newBench(t, time.Minute)
		claim := c.claim(b)
		before := contentsByQuery(t, b.s)
		err := b.s.Fenced(t.Context(), claim, func(context.Context, *Tx) error {
			t.Errorf("%s: the function was called", c.name)
			return nil
		})
		wantKind(t, err, c.kind)
		if refused, ok := errors.AsType[*fence.RefusedError](err); ok != (c.why != 0) || ok && refused.Why != c.why {
			t.Errorf("%s: %v, want the reason %v", c.name, err, c.why)
		} else if c.why == fence.Superseded && refused.Newer != claim.Token+1 {
			t.Errorf("%s: the newer token is %d", c.name, refused.Newer)
		}
		after := contentsByQuery(t, b.s)
		if errors.Is(c.kind, fence.ErrAhead) {
			after = contentsWithout(t, b.s, "tenure_ahead", before)
		}
		if after != before {
			t.Errorf("%s: the file was changed:\n%s, before:\n%s", c.name, after, before)
		}
		want := int64(1)
		if errors.Is(c.kind, fence.ErrInvalid) {
			want = 0 // no claim at all: nothing was asked
		}
		if got := b.s.Refusals(); got != want {
			t.Errorf("%s: %d refusals are counted", c.name, got)
		}
	}
}

// contentsWithout is contentsByQuery less a table and the mark of time that its write moved.
func contentsWithout(t *testing.T, s *Store, table, before string) string {
	t.Helper()
	if n := plainValue(t, s.path, `SELECT count(*) FROM `+table); n != "1" {
		t.Errorf("%s rows in %s", n, table)
	}
	err := s.writer.do(t.Context(), &request{op: "clear", do: func(b *batch) error {
		_, err := s.conn.ExecContext(t.Context(), `DELETE FROM `+table)
		return err
	}}, false)
	if err != nil {
		t.Fatal(err)
	}
	return contentsByQuery(t, s)
}

// A claim from the future stops grants of its name, and of no other, until the epoch is raised above it. The
// stop outlives the processes. It is told before who holds the name: waiting would not help.
func TestAheadStopsGrants(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Hour)
	future := b.claim
	future.Token = 1 << 50
	wantKind(t, b.s.Fenced(t.Context(), future, func(context.Context, *Tx) error { return nil }), fence.ErrAhead, "epoch raise")
	if err := b.s.Fenced(t.Context(), b.claim, func(ctx context.Context, tx *Tx) error { return insert(ctx, tx, b.claim, "x") }); err != nil {
		t.Errorf("the holder's own claim: %v", err)
	}
	other := join(t, b.s, time.Hour)
	stopped := func(p *party) {
		t.Helper()
		_, err := p.ask("a")
		ahead, ok := errors.AsType[*fence.AheadError](err)
		if !ok || ahead.Claim.Name != "a" || ahead.Claim.Token != future.Token {
			t.Errorf("got %v, want the stop", err)
		}
		id := p.ids.New()
		_, err = p.s.Acquire(t.Context(), lease.AcquireRequest{Session: p.session, ID: id, Names: []string{"a"}, ClosedBelow: id})
		wantKind(t, err, fence.ErrAhead)
		_, err = p.s.Acquire(t.Context(), lease.AcquireRequest{Session: p.session, ID: p.ids.New(), Names: []string{"z", "a"}})
		wantKind(t, err, fence.ErrAhead)
	}
	stopped(other)
	b.p.drop(b.claim)
	stopped(other)
	stopped(b.p) // though it would only take again what it had last
	fresh := future
	fresh.Name = "fresh" // no row says anything of it
	wantKind(t, b.s.Fenced(t.Context(), fresh, func(context.Context, *Tx) error { return nil }), fence.ErrAhead)
	_, err := other.ask("fresh")
	wantKind(t, err, fence.ErrAhead)
	b.p.drop(b.p.take("b"))
	shutDown(t, b.s)

	b.s = openWith(t, b.h.config(b.s.path, "one"))
	p := join(t, b.s, time.Hour)
	stopped(p)
	if _, err := b.s.RaiseEpoch(t.Context(), 1<<49); err != nil {
		t.Fatal(err)
	}
	stopped(p) // still below the token that was seen
	if _, err := b.s.RaiseEpoch(t.Context(), future.Token); err != nil {
		t.Fatal(err)
	}
	if got := p.take("a"); got.Token <= future.Token {
		t.Errorf("token %d after the epoch was raised above %d", got.Token, future.Token)
	}
}
