package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// LS1: twenty claimers in four processes, on a few names. Each holder writes itself into a table when it
// begins and out of it when it ends, in two transactions. No error of SQLite reaches a caller, nobody meets another
// holder, and the tokens that the table saw rise.
func TestLS1ClaimersInSeveralProcesses(t *testing.T) {
	t.Parallel()
	const processes, claimers, each = 4, 5, 8
	path := newPath(t)
	s := openPath(t, path)
	plainExec(t, path,
		`CREATE TABLE holders (name TEXT PRIMARY KEY, token INTEGER)`,
		`CREATE TABLE ledger (token INTEGER, what TEXT)`)
	names := []string{"a", "b", "c"}
	var children []*child
	for range processes {
		children = append(children, start(t, "claimers", job{Path: path, Names: names, Count: each, TTL: time.Minute, Claimers: claimers}))
	}
	for _, c := range children {
		c.hear("done")
	}
	shutDown(t, s)
	if n := plainValue(t, path, `SELECT count(*) FROM ledger`); n != fmt.Sprint(processes*claimers*each) {
		t.Errorf("%s entries", n)
	}
	falls := plainValue(t, path, `SELECT count(*) FROM (SELECT token, lag(token) OVER (PARTITION BY what ORDER BY rowid) AS former FROM ledger) WHERE token <= former`)
	if falls != "0" {
		t.Errorf("%s tokens are not above the one before", falls)
	}
	if got := plainValue(t, path, `PRAGMA integrity_check`); got != "ok" {
		t.Error(got)
	}
}

// playClaimers runs claimers at one store, each with a session of its own.
func playClaimers(ctx context.Context, st *stage) error {
	s, err := Open(ctx, Config{Path: st.job.Path})
	if err != nil {
		return err
	}
	var claimers sync.WaitGroup
	errs := make(chan error, st.job.Claimers)
	for i := range st.job.Claimers {
		claimers.Go(func() { errs <- claimInTurn(ctx, st, s, i) })
	}
	claimers.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(append(all, s.Shutdown(ctx))...)
}

func claimInTurn(ctx context.Context, st *stage, s *Store, i int) error {
	session, err := lease.Start(ctx, s, lease.Options{Owner: fmt.Sprint("claimer ", i), TTL: st.job.TTL})
	if err != nil {
		return err
	}
	for round := range st.job.Count {
		name := st.job.Names[(i+round)%len(st.job.Names)]
		err := lease.Do(ctx, session, name, func(ctx context.Context, l *lease.Lease) error {
			claim, err := l.Claim()
			if err != nil {
				return err
			}
			// A second holder would break the primary key.
			err = s.Fenced(ctx, claim, func(ctx context.Context, tx *Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO holders VALUES (?, ?)`, name, int64(claim.Token))
				return errors.Join(err, insert(ctx, tx, claim, name))
			})
			if err != nil {
				return err
			}
			return s.Fenced(ctx, claim, func(ctx context.Context, tx *Tx) error {
				return affected(tx.ExecContext(ctx, `DELETE FROM holders WHERE name = ? AND token = ?`, name, int64(claim.Token)))
			})
		})
		if err != nil {
			return err
		}
	}
	return session.Close(ctx)
}

// Twelve processes come to a path where nothing is yet: one makes the file, all open it, as one authority and one
// incarnation.
func TestTwelveProcessesMakeTheFile(t *testing.T) {
	t.Parallel()
	for range 2 {
		path := newPath(t)
		var children []*child
		for range 12 {
			children = append(children, start(t, "opener", job{Path: path}))
		}
		first := children[0].hear("open")
		for _, c := range children[1:] {
			if got := c.hear("open"); got != first {
				t.Errorf("authority and incarnation: %s and %s", first, got)
			}
		}
		for _, c := range children {
			c.stdin.Close()
			c.hear("done")
		}
		if got := plainValue(t, path, `SELECT count(*) FROM tenure_authority`); got != "1" {
			t.Errorf("%s authorities", got)
		}
	}
}

// A process that is killed in the midst of a fenced write: nothing of it is left, its lease is held as
// before, and others go on at once.
func TestKilledInsideFenced(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openPath(t, path)
	plainExec(t, path, `CREATE TABLE ledger (token INTEGER, what TEXT)`)
	p := join(t, s, time.Hour)
	for range 5 {
		worker := start(t, "worker", job{Path: path})
		worker.hear("ready")
		name := "a/" + fmt.Sprint(worker.cmd.Process.Pid)
		worker.tell("take " + name)
		token := worker.hear("ok")
		worker.tell("fenced " + name)
		worker.hear("inside")
		worker.kill()
		if err := p.renew(); err != nil {
			t.Errorf("after the kill: %v", err)
		}
		if info := look(t, s, name); !info.Held || info.Token.String() != token {
			t.Errorf("the killed process's lease: %+v, want token %s", info, token)
		}
	}
	if n := plainValue(t, path, `SELECT count(*) FROM ledger`); n != "0" {
		t.Errorf("%s rows of unfinished writes", n)
	}
	if got := plainValue(t, path, `PRAGMA integrity_check`); got != "ok" {
		t.Error(got)
	}
}

// The claim travels between processes as text; the resource refuses the former holder's there as well.
func TestClaimOfAnotherProcess(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openPath(t, path)
	plainExec(t, path, `CREATE TABLE ledger (token INTEGER, what TEXT)`)
	worker := start(t, "worker", job{Path: path})
	worker.hear("ready")
	worker.tell("take a")
	worker.hear("ok")
	worker.tell("claim a")
	claim, err := fence.ParseClaim(worker.hear("ok"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(ctx context.Context, tx *Tx) error { return insert(ctx, tx, claim, "x") }
	if err := s.Fenced(t.Context(), claim, write); err != nil {
		t.Errorf("a valid claim of another process: %v", err)
	}
	worker.tell("drop a")
	worker.hear("ok")
	wantKind(t, s.Fenced(t.Context(), claim, write), fence.ErrRefused, "released")
	if n := plainValue(t, path, `SELECT count(*) FROM ledger`); n != "1" {
		t.Errorf("%s rows", n)
	}
}
