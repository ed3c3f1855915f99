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

// TestASessionIDThatComesAgain: what was forgotten of a session is not its namesake's. Its leases are over, and its claims are refused.
func TestASessionIDThatComesAgain(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	session := r.open(ctx, time.Minute)
	former := r.acquire(ctx, session, "n")
	if err := r.Advance(ctx, 26*time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Close(ctx, session); !errors.Is(err, lease.ErrEnded) { // the verdict
		t.Fatal(err)
	}
	if err := r.Advance(ctx, 26*time.Hour); err != nil {
		t.Fatal(err)
	}
	other := r.open(ctx, time.Hour) // it sweeps
	if _, err := r.store.Open(ctx, lease.OpenRequest{ID: session, Owner: "o", TTL: time.Hour}); err != nil {
		t.Fatal("the session was to be forgotten by now: ", err)
	}
	if info, err := r.store.Get(ctx, "n"); err != nil || info.Held {
		t.Errorf("%+v, %v; want it free", info, err)
	}
	err := r.store.Fenced(ctx, former, func(context.Context, pgx.Tx) error { return nil })
	if !errors.Is(err, fence.ErrRefused) {
		t.Errorf("a fenced write under the claim of before: %v", err)
	}
	_, err = r.store.Acquire(ctx, lease.AcquireRequest{Session: session, ID: former.Acquisition, Names: []string{"n"}})
	if !errors.Is(err, lease.ErrEnded) {
		t.Errorf("the acquire of before, again: %v", err)
	}
	next := r.acquire(ctx, other, "n")
	if next.Token <= former.Token {
		t.Errorf("token %d after %d", next.Token, former.Token)
	}
}

// TestSessionsInRange: the function that the Go store calls keeps the limits too, whoever calls it.
func TestSessionsInRange(t *testing.T) {
	h := newHarness(t)
	for what, call := range map[string]string{
		"a TTL of 100 years": `SELECT tenure.session_open(tenure.new_id(), 'o', '100 years')`,
		"a negative TTL":     `SELECT tenure.session_open(tenure.new_id(), 'o', '-1 second')`,
		"an owner of 1 MB":   `SELECT tenure.session_open(tenure.new_id(), repeat('o', 1000000), '1 second')`,
		"no token":           `SELECT tenure.report_ahead(tenure.authority_id(), 'n', NULL)`,
	} {
		if _, err := h.own.Exec(t.Context(), call); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}
