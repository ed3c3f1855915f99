package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// playPresenter presents a claim to the first name, writes, and stands still in the middle of its transaction, until it is killed; with a
// count, it has called Done before.
func playPresenter(ctx context.Context, st *stage) error {
	a, err := newActor(ctx, st)
	if err != nil {
		return err
	}
	if err := a.take(ctx, st.job.Names[0]); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", "file:"+st.job.Path+"?_pragma=busy_timeout(5000)&_pragma=foreign_keys(ON)&_txlock=immediate")
	if err != nil {
		return err
	}
	return inOwnTx(ctx, db, func(tx *sql.Tx) error {
		if err := Present(ctx, tx, a.claims[st.job.Names[0]]); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, steal); err != nil {
			return err
		}
		if st.job.Count > 0 {
			if err := Done(ctx, tx); err != nil {
				return err
			}
		}
		st.say("written")
		st.await()
		return errors.New("nobody killed it")
	})
}

// A process that dies in the middle of a transaction leaves neither its write nor what it has presented, and its successor goes on.
func TestCrashAfterPresenting(t *testing.T) {
	t.Parallel()
	for _, done := range []int{0, 1} {
		g := newGuarded(t)
		before := g.content("orders")
		c := start(t, "presenter", job{Path: g.s.path, Names: []string{"orders/1"}, Count: done})
		c.hear("written")
		c.kill()
		if after := g.content("orders"); after != before || g.count(`SELECT count(*) FROM tenure_presented`) != 0 {
			t.Errorf("a killed process left\n%s", after)
		}
		wantRefused(t, "a stranger", g.foreign(steal), "no claim was presented")
		if _, err := g.s.Revoke(t.Context(), lease.RevokeRequest{Name: "orders/1", Token: look(t, g.s, "orders/1").Token, Reason: "its process was killed"}); err != nil {
			t.Fatal(err)
		}
		claim := g.p.take("orders/1")
		if err := g.write([]fence.Claim{claim}, `UPDATE orders SET state = 'paid' WHERE id = 1`); err != nil {
			t.Errorf("the successor: %v", err)
		}
	}
}
