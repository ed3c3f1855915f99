package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
)

// stale is a standby that was promoted without the primary's last commits, and the claim that only the primary has granted.
type stale struct {
	*rig
	other   *Store // on the promoted standby
	otherDB *pgxpool.Pool
	session fence.ID // known to both
	lost    fence.Claim
}

func newStale(ctx context.Context, t *testing.T, twin ...edit) *stale {
	t.Helper()
	s := &stale{rig: newOwnRig(t, nil, Options{})}
	for _, e := range twin {
		if err := s.edit(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	s.session = s.open(ctx, time.Hour)
	s.acquire(ctx, s.session, "shipped")
	link := testdb.StartProxy(t, s.server.Addr())
	standby := s.server.Standby(t, testdb.Options{Via: link.Addr()})
	link.SetMode(testdb.Refuse)
	link.Cut()
	for range 100 { // more than the log keeps the sequence ahead by
		s.release(ctx, s.session, s.acquire(ctx, s.session, "n"))
	}
	s.lost = s.acquire(ctx, s.session, "n")
	s.server.Crash(t)
	standby.Promote(t)
	s.other = openStore(t, standby.URL(s.database), Options{})
	var err error
	if s.otherDB, err = pgxpool.New(ctx, standby.URL(s.database)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.otherDB.Close)
	return s
}

func (s *stale) acquireThere(ctx context.Context, session fence.ID, name string) (fence.Claim, error) {
	grants, err := s.other.Acquire(ctx, lease.AcquireRequest{Session: session, ID: s.ids.New(), Names: []string{name}})
	if err != nil {
		return fence.Claim{}, err
	}
	return grants[0].Claim, nil
}

// TestPromotedWithoutTheLastCommits is L73: the promoted standby has never heard of the last grants, and none of its tokens is one of theirs. The
// old primary comes back as it was: its tokens are others again.
func TestPromotedWithoutTheLastCommits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newStale(ctx, t)
	if info, err := s.other.Get(ctx, "n"); err != nil || info.Token != 0 {
		t.Fatalf("the standby has the last commit, this test shows nothing: %+v, %v", info, err)
	}
	there, err := s.acquireThere(ctx, s.session, "n")
	if err != nil {
		t.Fatal(err)
	}
	if there.Token <= s.lost.Token || there.Authority != s.lost.Authority {
		t.Errorf("token %v after %v, which was lost", there, s.lost)
	}
	err = s.other.Fenced(ctx, s.lost, func(context.Context, pgx.Tx) error { return nil })
	if !errors.Is(err, fence.ErrRefused) {
		t.Errorf("the lost claim on the new primary: %v", err)
	}
	s.restart()
	var back fence.Claim
	err = s.patiently(ctx, func() error {
		grants, err := s.store.Acquire(ctx, lease.AcquireRequest{Session: s.session, ID: s.ids.New(), Names: []string{"m"}})
		if err == nil {
			back = grants[0].Claim
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	there2, err := s.acquireThere(ctx, s.session, "m")
	if err != nil {
		t.Fatal(err)
	}
	if back.Token == there2.Token || back.Token == there.Token {
		t.Errorf("both branches granted token %d", back.Token)
	}
}

// TestPromotedWithoutTheJump is the twin: a sequence that goes on where the standby has it grants lost tokens again.
func TestPromotedWithoutTheJump(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newStale(ctx, t, edit{"jump", "greatest((SELECT last_value + 1 FROM tenure.token),", "least((SELECT last_value + 1 FROM tenure.token),"})
	there, err := s.acquireThere(ctx, s.session, "n")
	if err != nil {
		t.Fatal(err)
	}
	if there.Token > s.lost.Token {
		t.Fatal("the twin was not caught")
	}
}

// TestPromotedWithAClockThatIsBehind shows the residue that guarantees.md states: where the new branch's clock is behind, its tokens may repeat
// lost ones. A claim from the future gives it away, grants of that name stop, and a raised epoch is above it.
func TestPromotedWithAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newStale(ctx, t)
	if _, err := s.otherDB.Exec(ctx, `UPDATE tenure.authority SET origin = origin + interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	nothing := func(context.Context, pgx.Tx) error { return nil }
	low, err := s.acquireThere(ctx, s.session, "other") // the jump of the new incarnation falls short
	if err != nil || low.Token > s.lost.Token {
		t.Fatalf("granted %v, %v, and lost %v: this test shows nothing", low, err, s.lost)
	}
	if err := s.other.Fenced(ctx, s.lost, nothing); !errors.Is(err, fence.ErrAhead) {
		t.Fatalf("a claim above all that was issued: %v", err)
	}
	if _, err := s.acquireThere(ctx, s.session, "n"); !errors.Is(err, fence.ErrAhead) {
		t.Errorf("a grant of the name after that: %v", err)
	}
	floor, err := s.other.RaiseEpoch(ctx, s.lost.Token)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.acquireThere(ctx, s.session, "n")
	if err != nil || c.Token <= s.lost.Token || c.Token <= floor {
		t.Errorf("after the epoch was raised to %d: %v, %v", floor, c, err)
	}
}
