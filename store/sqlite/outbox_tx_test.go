package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/outbox"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// A sale and the message about it share one commit, in a transaction of the seller's own, prepared or not, and in a fenced one. What is known already is not written again,
// and what is refused changes nothing.
func TestAppendTx(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for _, way := range []string{"own", "prepared", "fenced"} {
		w := newShop(t, "deferred")
		p := &post{t: t, mail: w.s.Outbox()}
		sell := func(tx TX, n int, fail error) error {
			ids, err := p.mail.AppendTx(t.Context(), tx, letterTo(n, "key"), letterTo(100+n, ""))
			if err != nil {
				return err
			}
			if len(ids) != 2 || ids[0] != mailID(n) || ids[1] != mailID(100+n) {
				t.Errorf("%s: ids %v", way, ids)
			}
			_, err = tx.ExecContext(t.Context(), `UPDATE stock SET n = n + 1`)
			return errors.Join(err, fail)
		}
		run := func(n int, fail error) (err error) {
			switch way {
			case "own":
				return inOwnTx(t.Context(), w.db, func(tx *sql.Tx) error { return sell(tx, n, fail) })
			case "prepared":
				statements, err := Prepare(t.Context(), w.db)
				if err != nil {
					return err
				}
				err = inOwnTx(t.Context(), w.db, func(tx *sql.Tx) error { return sell(statements.In(tx), n, fail) })
				return errors.Join(err, statements.Close())
			}
			return w.s.Fenced(t.Context(), w.claim, func(_ context.Context, tx *Tx) error { return sell(tx, n, fail) })
		}
		if err := run(1, failed); !errors.Is(err, failed) || w.stock() != "1" {
			t.Errorf("%s, rolled back: %v, %s in stock", way, err, w.stock())
		}
		for range 2 { // the second is known
			if err := run(2, nil); err != nil {
				t.Errorf("%s: %v", way, err)
			}
		}
		if got := p.claim(1, 10); len(got.Deliveries) != 2 || got.Deliveries[0].ID != mailID(2) || w.stock() != "3" {
			t.Errorf("%s: %+v are there, %s in stock", way, got.Deliveries, w.stock())
		}
		err := inOwnTx(t.Context(), w.db, func(tx *sql.Tx) error {
			other := letterTo(2, "other")
			_, err := p.mail.AppendTx(t.Context(), tx, letterTo(3, ""), other)
			if mismatch, ok := errors.AsType[*outbox.MismatchError](err); !ok || mismatch.What != "key" || mismatch.ID != mailID(2) {
				t.Errorf("%s, another under a known id: %v", way, err)
			}
			return nil // a refusal has changed nothing: it may commit
		})
		if err != nil {
			t.Error(err)
		}
		if _, err := p.mail.Get(t.Context(), mailID(3)); !errors.Is(err, outbox.ErrNotFound) {
			t.Errorf("%s, beside a refused one: %v", way, err)
		}
	}
}

// While a transaction is open nobody sees its messages, whatever is claimed meanwhile; when it has committed, they are handed out.
func TestMessageOfAnOpenTransaction(t *testing.T) {
	t.Parallel()
	w := newShop(t, "immediate")
	p := &post{t: t, mail: w.s.Outbox()}
	tx := w.begin()
	if _, err := p.mail.AppendTx(t.Context(), tx, letterTo(1, "")); err != nil {
		t.Fatal(err)
	}
	if got := p.claim(1, 10); len(got.Deliveries) != 0 { // by reading alone: it does not wait
		t.Errorf("handed out before the commit: %+v", got)
	}
	waiting := make(chan bool, 1)
	go func() {
		woken, err := p.mail.Await(t.Context(), patience)
		if err != nil {
			t.Error(err)
		}
		waiting <- woken
	}()
	w.commit(tx)
	if !<-waiting {
		t.Error("the commit of another's transaction woke nobody")
	}
	if got := p.claim(2, 10); len(got.Deliveries) != 1 {
		t.Errorf("after the commit: %+v", got)
	}
}

// As with claims' checks: after a read beside somebody's write SQLite refuses, and the caller begins again. A transaction on another file is refused.
func TestAppendAfterAReadIsBeginAgain(t *testing.T) {
	t.Parallel()
	w := newShop(t, "deferred")
	p := &post{t: t, mail: w.s.Outbox()}
	attempt := func(between func()) error {
		return inOwnTx(t.Context(), w.db, func(tx *sql.Tx) error {
			var n int
			if err := tx.QueryRowContext(t.Context(), `SELECT n FROM stock`).Scan(&n); err != nil {
				return err
			}
			between()
			_, err := p.mail.AppendTx(t.Context(), tx, letterTo(1, ""))
			return err
		})
	}
	err := attempt(func() {
		if err := w.p.renew(); err != nil { // anybody's write to the file
			t.Fatal(err)
		}
	})
	if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code() != lib.SQLITE_BUSY_SNAPSHOT {
		t.Errorf("after a read: %v, want SQLITE_BUSY_SNAPSHOT", err)
	}
	if err := attempt(func() {}); err != nil {
		t.Errorf("begun again: %v", err)
	}
	_, err = openPath(t, newPath(t)).Outbox().AppendTx(t.Context(), w.begin(), letterTo(2, ""))
	if !errors.Is(err, errOtherAuthority) {
		t.Errorf("appended in another file: %v", err)
	}
	_, err = p.mail.AppendTx(t.Context(), nil, outbox.Message{})
	wantKind(t, err, outbox.ErrInvalid)
}

// Who waits is woken when a claim is over, by whomever it was, and not by what nobody can claim.
func TestAwaitTheEndOfAClaim(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	p, other := &post{t: t, mail: openPath(t, path).Outbox()}, openPath(t, path).Outbox()
	p.append(letterTo(1, "key"), letterTo(2, "key"))
	req := mailClaim(1, 1)
	req.TTL = outbox.MinTTL
	if got, err := other.Claim(t.Context(), req); err != nil || len(got.Deliveries) != 1 {
		t.Fatal(got, err)
	}
	if got := p.claim(2, 1); len(got.Deliveries) > 0 { // this machine is slow
		p.settle(outbox.SettleRequest{Claim: got.Claim, Verdicts: []outbox.Verdict{{Position: got.Deliveries[0].Position, Outcome: outbox.Returned, RetryIn: outbox.MinTTL}}})
	}
	began := time.Now()
	if woken, err := p.mail.Await(t.Context(), patience); err != nil || !woken || time.Since(began) > patience/2 {
		t.Errorf("the end of a claim: woken %v after %v, %v", woken, time.Since(began), err)
	}
	if got := p.claim(3, 1); len(got.Deliveries) != 1 {
		t.Errorf("after the end of a claim: %+v", got)
	}
	if woken, err := p.mail.Await(t.Context(), 50*time.Millisecond); err != nil || woken {
		t.Errorf("woken by what is behind a live claim: %v, %v", woken, err)
	}
	shutDown(t, p.mail.store)
	if _, err := p.mail.Await(t.Context(), patience); !errors.Is(err, outbox.ErrUnavailable) {
		t.Errorf("of a store that was shut down: %v", err)
	}
}
