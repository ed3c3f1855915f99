package sqlite

import (
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// comeAgain lets a session of p's id, with a TTL of a minute, be forgotten, and opens another of that id and owner.
func comeAgain(t *testing.T, h *hands, p *party, owner string) {
	t.Helper()
	h.pass(sweepAge + 2*time.Minute)
	for range 2 { // the first writes the verdict and may forget, the second forgets
		join(t, p.s, time.Minute)
	}
	if n := plainValue(t, p.s.path, `SELECT count(*) FROM tenure_session`); n != "2" {
		t.Fatalf("%s sessions are known, want the two that were opened now", n)
	}
	if _, err := p.s.Open(t.Context(), lease.OpenRequest{ID: p.session, Owner: owner, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
}

// TestSessionIDThatComesAgain is what each call says of leases of a session that was forgotten before its id came again.
func TestSessionIDThatComesAgain(t *testing.T) {
	h := newHands()
	s := openWith(t, h.config(newPath(t), "one"))
	p := join(t, s, time.Minute)
	kept, late, revoked := p.take("kept"), p.take("late"), p.take("revoked")
	if _, err := s.Revoke(t.Context(), lease.RevokeRequest{Name: "revoked", Token: revoked.Token, Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	comeAgain(t, h, p, "another")

	if info := look(t, s, "kept"); info.Held || info.End != lease.EndForgotten || info.Owner != "" {
		t.Errorf("kept: %+v; want it forgotten, and no owner: it was not the new session's", info)
	}
	_, err := s.Revoke(t.Context(), lease.RevokeRequest{Name: "kept", Token: kept.Token, Reason: "test"})
	wantKind(t, err, lease.ErrEnded, "forgotten")
	again, err := s.Revoke(t.Context(), lease.RevokeRequest{Name: "revoked", Token: revoked.Token, Reason: "test"})
	if err != nil || !again.Already || again.BelievesAtMost != 0 {
		t.Errorf("revoking again: %+v, %v; want Already, and nobody who believes", again, err)
	}
	r, err := s.Release(t.Context(), lease.ReleaseRequest{Session: p.session, ID: late.Acquisition, Names: []string{"late"}})
	if err != nil || !r.Already {
		t.Errorf("a release of before: %+v, %v; want Already", r, err)
	}

	other := join(t, s, time.Hour)
	for _, former := range []fence.Claim{kept, late, revoked} {
		other.drop(other.take(former.Name))
		_, err := s.Acquire(t.Context(), lease.AcquireRequest{Session: p.session, ID: former.Acquisition, Names: []string{former.Name}})
		wantKind(t, err, lease.ErrEnded)
	}
	renewal, err := s.Renew(t.Context(), lease.RenewRequest{Session: p.session})
	if err != nil || len(renewal.Revoked) != 0 {
		t.Errorf("the new session's renewal: %+v, %v; want nothing that was revoked before it", renewal, err)
	}
}

// TestRowsOfASessionBeforeArePruned demands that they do not stay for as long as the new session lives.
func TestRowsOfASessionBeforeArePruned(t *testing.T) {
	h := newHands()
	s := openWith(t, h.config(newPath(t), "one"))
	p := join(t, s, time.Minute)
	p.take("n")
	comeAgain(t, h, p, "another")
	if n, err := s.Prune(t.Context(), lease.MinPruneAge, lease.MaxPrune); err != nil || n != 0 {
		t.Errorf("pruned %d, %v; want 0: the acquire may still be repeated", n, err)
	}
	if _, err := s.Renew(t.Context(), lease.RenewRequest{Session: p.session, ClosedBelow: p.ids.New()}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Prune(t.Context(), lease.MinPruneAge, lease.MaxPrune); err != nil || n != 1 {
		t.Errorf("pruned %d, %v; want the row of before", n, err)
	}
}

// TestRevokeLeavesRowsOfASessionBefore has one acquisition id in two sessions of one id: the former of two names, of which
// another session took one before the id came again.
func TestRevokeLeavesRowsOfASessionBefore(t *testing.T) {
	h := newHands()
	s := openWith(t, h.config(newPath(t), "one"))
	p := join(t, s, time.Minute)
	req := lease.AcquireRequest{Session: p.session, ID: p.ids.New(), Names: []string{"n1", "n2"}}
	if _, err := s.Acquire(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	h.pass(sweepAge + 2*time.Minute)
	for range 2 {
		join(t, s, time.Minute)
	}
	other := join(t, s, time.Minute)
	other.drop(other.take("n1"))
	if _, err := s.Open(t.Context(), lease.OpenRequest{ID: p.session, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	req.Names = []string{"n1"}
	grants, err := s.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	revoked, err := s.Revoke(t.Context(), lease.RevokeRequest{Name: "n1", Token: grants[0].Claim.Token, Reason: "test"})
	if err != nil || !slices.Equal(revoked.Names, []string{"n1"}) {
		t.Errorf("revoked %q, %v; want n1 alone", revoked.Names, err)
	}
}
