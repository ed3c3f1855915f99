package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// TestADurableReleaseAmongOthers: a release that must be durable stays so in a batch that an asynchronous one has begun, and the others are
// repeated after a crash all the same.
func TestADurableReleaseAmongOthers(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	for _, statement := range []string{
		`CREATE TABLE public.told (name text, how text)`,
		`CREATE FUNCTION public.tell() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
			AS $$ BEGIN INSERT INTO public.told VALUES (new.name, current_setting('synchronous_commit')); RETURN NULL; END $$`,
		`CREATE TRIGGER tell AFTER UPDATE ON tenure.lease FOR EACH ROW WHEN (new.over = 1) EXECUTE FUNCTION public.tell()`,
	} {
		if _, err := r.own.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	session := r.open(ctx, time.Hour)
	x := r.begin(ctx, pgx.ReadCommitted)
	release := func(name string, sync bool) chan error {
		c := r.acquire(ctx, session, name)
		return start(func() error {
			_, err := r.store.release(ctx, lease.ReleaseRequest{Session: session, ID: c.Acquisition, Names: []string{name}}, sync)
			return err
		})
	}
	x.do(ctx, `LOCK TABLE public.told IN EXCLUSIVE MODE`)
	first := release("first", false)
	if !r.blocked(ctx, 1, first) {
		t.Fatal(<-first)
	}
	plain, durable := release("plain", false), release("durable", true)
	own := r.store.session(session)
	r.queuedIn(&own.releases, 2)
	x.rollback(ctx)
	if err := errors.Join(<-first, <-plain, <-durable); err != nil {
		t.Fatal(err)
	}
	var how string
	if err := r.own.QueryRow(ctx, `SELECT string_agg(name || ' ' || how, ', ' ORDER BY name) FROM public.told`).Scan(&how); err != nil || how != "durable on, first off, plain on" {
		t.Errorf("the releases ran with synchronous_commit: %s, %v", how, err)
	}
	if n := own.unconfirmed(); n != 2 {
		t.Errorf("%d releases are to be repeated after a crash, want the two that did not ask to be durable", n)
	}
}

// TestANameThatIsBeingMade: somebody left a transaction open that has made a name. It is waited for as any locked row is.
func TestANameThatIsBeingMade(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := &rig{t: t, harness: newHarness(t)}
	session, other := r.open(ctx, time.Hour), r.open(ctx, time.Hour)
	x := r.begin(ctx, pgx.ReadCommitted)
	if code, _, err := x.acquire(ctx, other, r.ids.New(), "n"); code != codeDone || err != nil {
		t.Fatal(code, err)
	}
	_, err := r.store.Acquire(ctx, lease.AcquireRequest{Session: session, ID: r.ids.New(), Names: []string{"n"}})
	if !errors.Is(err, lease.ErrUnavailable) || ctx.Err() != nil {
		t.Errorf("an acquire of the name: %v; want a definite answer before the caller's bound", err)
	}
	var outcome string
	err = r.own.QueryRow(ctx, `SELECT outcome FROM tenure.acquire($1, $2, ARRAY['n'])`, uuid(session), uuid(r.ids.New())).Scan(&outcome)
	if err != nil || outcome != "busy" {
		t.Errorf("tenure.acquire of the name: %q, %v; want busy", outcome, err)
	}
	x.rollback(ctx)
	r.acquire(ctx, session, "n")
}

// TestRevokeWritesTheExpiryThatItTells: after it was told, neither a step of the clock nor a renewal brings the lease back.
func TestRevokeWritesTheExpiryThatItTells(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	revoke := func(c fence.Claim) error {
		_, err := r.store.Revoke(ctx, lease.RevokeRequest{Name: c.Name, Token: c.Token, Reason: "r"})
		return err
	}
	session := r.open(ctx, time.Minute)
	c := r.acquire(ctx, session, "n")
	if err := r.Advance(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := wantEnded(revoke(c), lease.EndExpired); err != nil {
		t.Error(err)
	}
	if err := r.Advance(ctx, -time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Renew(ctx, lease.RenewRequest{Session: session}); !errors.Is(err, lease.ErrEnded) || r.get(ctx, "n").Held {
		t.Errorf("after a step back of the clock a renewal gives %v, and the lease is held: %v", err, r.get(ctx, "n").Held)
	}

	session = r.open(ctx, time.Hour)
	grants, err := r.store.Acquire(ctx, lease.AcquireRequest{Session: session, ID: r.ids.New(), Names: []string{"held"}, MaxHold: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.own.Exec(ctx, `UPDATE tenure.lease SET hold_until = hold_until - interval '1 hour' WHERE name = 'held'`); err != nil {
		t.Fatal(err)
	}
	if err := wantEnded(revoke(grants[0].Claim), lease.EndExpired); err != nil {
		t.Error(err)
	}
	if _, err := r.own.Exec(ctx, `UPDATE tenure.lease SET hold_until = hold_until + interval '1 hour' WHERE name = 'held'`); err != nil {
		t.Fatal(err)
	}
	if r.get(ctx, "held").Held {
		t.Error("a MaxHold that was told to be over is not, after a step back of the clock")
	}
}

// TestRevokeWaitsForARenewal: a renewal whose commit is on its way has read the clock before.
func TestRevokeWaitsForARenewal(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	session := r.open(ctx, time.Hour)
	c := r.acquire(ctx, session, "n")
	x := r.begin(ctx, pgx.ReadCommitted)
	// What everybody else still sees: it expires at this moment.
	if _, err := r.own.Exec(ctx, `UPDATE tenure.session SET expires_at = clock_timestamp() + interval '300 ms' WHERE id = $1`, uuid(session)); err != nil {
		t.Fatal(err)
	}
	x.do(ctx, `SELECT tenure.session_renew($1, NULL)`, uuid(session))
	r.expired(ctx, session)
	revoked := start(func() error {
		_, err := r.store.Revoke(ctx, lease.RevokeRequest{Name: "n", Token: c.Token, Reason: "r"})
		return err
	})
	if !r.blocked(ctx, 1, revoked) {
		t.Fatalf("revoke did not wait: %v", <-revoked)
	}
	x.commit(ctx)
	if err := <-revoked; err != nil || r.get(ctx, "n").Held {
		t.Errorf("revoke: %v; the lease is held: %v", err, r.get(ctx, "n").Held)
	}
}

// TestAheadBeforeTheJump: after a failover without the last commits, a holder from before asks first. Its token lies below the jump to
// come, so nobody's grants stop for it.
func TestAheadBeforeTheJump(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	session := r.open(ctx, time.Hour)
	c := r.acquire(ctx, session, "n")
	r.release(ctx, session, c)
	if _, err := r.own.Exec(ctx, `UPDATE tenure.authority SET timeline = timeline - 1, origin = origin - interval '1 day'`); err != nil {
		t.Fatal(err)
	}
	lost := c
	lost.Token += 5
	if err := r.store.Fenced(ctx, lost, func(context.Context, pgx.Tx) error { return nil }); !errors.Is(err, fence.ErrAhead) {
		t.Errorf("the claim of the lost branch: %v", err)
	}
	if c := r.acquire(ctx, session, "n"); c.Token <= lost.Token {
		t.Errorf("token %d was granted, not above %d", c.Token, lost.Token)
	}
	// One that the jump does not reach stops them.
	lost.Token = 1 << 60
	if err := r.store.Fenced(ctx, lost, func(context.Context, pgx.Tx) error { return nil }); !errors.Is(err, fence.ErrAhead) {
		t.Errorf("the claim from the future: %v", err)
	}
	if _, err := r.store.Acquire(ctx, lease.AcquireRequest{Session: session, ID: r.ids.New(), Names: []string{"n"}}); !errors.Is(err, fence.ErrAhead) {
		t.Errorf("an acquire after it: %v", err)
	}
}
