package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

// opStore is a store of operations by clocks that a test turns, of which a twin may break something.
type opStore struct {
	*desk
	s        *Store
	hands    *hands
	path     string
	claimOne func(claim operation.ClaimRequest) (operation.Job, error)
	complete func(tx TX, done operation.Completion) error
	expire   func(between func()) (int, error) // between is called where another may come between look and write, if anywhere
	restart  func() *Store
}

func newOpStore(t testing.TB) *opStore {
	t.Helper()
	o := &opStore{hands: newHands(), path: newPath(t)}
	o.s = openWith(t, o.hands.config(o.path, "boot"))
	o.desk = &desk{t, o.s.Operations()}
	o.claimOne = func(claim operation.ClaimRequest) (operation.Job, error) {
		jobs, err := o.ops.Claim(t.Context(), claim)
		if err != nil || len(jobs) != 1 {
			return operation.Job{}, fmt.Errorf("claimed %v, %w", jobs, err)
		}
		return jobs[0], nil
	}
	o.complete = func(tx TX, done operation.Completion) error { return o.ops.CompleteTx(t.Context(), tx, done) }
	o.expire = func(between func()) (int, error) {
		between()
		return o.ops.Expire(t.Context(), 10)
	}
	o.restart = func() *Store {
		shutDown(t, o.s)
		return openWith(t, o.hands.config(o.path, "boot"))
	}
	return o
}

// inTx runs fn in a transaction of a program of its own.
func (o *opStore) inTx(fn func(tx *sql.Tx) error) error {
	db := plainDB(o.t, o.path, "?_txlock=immediate&_pragma=busy_timeout(5000)")
	defer db.Close()
	return inOwnTx(o.t.Context(), db, fn)
}

// operationGuarantees hold for a store, and each catches the twin that breaks it.
func operationGuarantees() map[string]func(o *opStore) error {
	return map[string]func(o *opStore) error{
		"a stale attempt completes nothing":            staleCompletesNothing,
		"expiry does not end a claim that was renewed": expirySparesTheRenewed,
		"numbers rise across a restart":                numbersRise,
		"numbers rise across a restored copy":          numbersRiseAfterRestore,
	}
}

func staleCompletesNothing(o *opStore) error {
	o.submit("op")
	first, err := o.claimOne(againClaim(time.Second))
	if err != nil {
		return err
	}
	o.hands.pass(time.Second)
	if n, err := o.expire(func() {}); err != nil || n != 1 {
		return fmt.Errorf("expired %d, %w", n, err)
	}
	second, err := o.claimOne(againClaim(time.Minute))
	if err != nil {
		return err
	}
	err = o.inTx(func(tx *sql.Tx) error { return o.complete(tx, done(first.Ref)) })
	if err == nil {
		return errors.New("a stale attempt was completed")
	}
	if !errors.Is(err, operation.ErrStale) {
		return fmt.Errorf("a stale completion: %w", err)
	}
	if got := o.get("op"); got.State != operation.Attempting || got.Current() != second.Number {
		return fmt.Errorf("after a stale completion: %v, attempt %d", got.State, got.Current())
	}
	return nil
}

func expirySparesTheRenewed(o *opStore) error {
	o.submit("op")
	job, err := o.claimOne(againClaim(time.Second))
	if err != nil {
		return err
	}
	o.hands.pass(time.Second)
	var lost []operation.Ref
	n, err := o.expire(func() {
		lost, err = o.ops.Renew(o.t.Context(), operation.RenewRequest{Refs: []operation.Ref{job.Ref}, TTL: time.Minute})
	})
	if err != nil || len(lost) > 0 {
		return fmt.Errorf("renewing: lost %v, %w", lost, err)
	}
	if got := o.get("op"); n != 0 || got.State != operation.Attempting {
		return fmt.Errorf("a claim that was renewed has expired: %d, %v", n, got.State)
	}
	return nil
}

func numbersRise(o *opStore) error {
	o.submit("a", "b")
	first, err := o.claimOne(claimOf(1))
	if err != nil {
		return err
	}
	o.s = o.restart()
	o.ops = o.s.Operations()
	second, err := o.claimOne(claimOf(1))
	if err == nil && second.Number <= first.Number {
		err = fmt.Errorf("number %d after %d", second.Number, first.Number)
	}
	return err
}

// numbersRiseAfterRestore loses what was told after a copy was made: the numbers that were given out since then do not come again.
func numbersRiseAfterRestore(o *opStore) error {
	o.submit("a", "b", "c")
	if _, err := o.claimOne(claimOf(1)); err != nil {
		return err
	}
	saved := vacuumCopy(o.t.(*testing.T), o.path)
	var lost fence.Token
	for range 2 {
		job, err := o.claimOne(claimOf(1))
		if err != nil {
			return err
		}
		lost = job.Number
	}
	o.hands.pass(time.Second)
	shutDown(o.t, o.s)
	restore(o.t.(*testing.T), saved, o.path)
	o.s = o.restart()
	o.ops = o.s.Operations()
	again, err := o.claimOne(claimOf(1))
	if err == nil && again.Number <= lost {
		err = fmt.Errorf("number %d after %d, which was told and lost", again.Number, lost)
	}
	return err
}

func TestOperationGuarantees(t *testing.T) {
	t.Parallel()
	for name, holds := range operationGuarantees() {
		if err := holds(newOpStore(t)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBrokenOperations demands that each naive form is caught by the guarantee that it breaks.
func TestBrokenOperations(t *testing.T) {
	t.Parallel()
	for guarantee, twin := range map[string]func(o *opStore){
		"a stale attempt completes nothing": func(o *opStore) { // as a leading queue does: by the id, and unconditionally
			o.complete = func(tx TX, done operation.Completion) error {
				return affected(tx.ExecContext(o.t.Context(), `UPDATE tenure_operation SET state = 4, step = 1, known = 5 WHERE id = ?`, done.ID))
			}
		},
		"expiry does not end a claim that was renewed": func(o *opStore) { o.expire = o.expireBeforeLock },
		"numbers rise across a restart": func(o *opStore) { // a counter of the process's own
			honest := o.restart
			o.restart = func() *Store {
				s := honest()
				plainExec(o.t, o.path, `UPDATE tenure_authority SET issued = 0, incarnation = x'`+fmt.Sprintf("%x", s.current[:])+`'`)
				return s
			}
		},
		"numbers rise across a restored copy": func(o *opStore) { // a counter that knows no incarnations
			honest := o.restart
			o.restart = func() *Store {
				s := honest()
				plainExec(o.t, o.path, `UPDATE tenure_authority SET incarnation = x'`+fmt.Sprintf("%x", s.current[:])+`'`)
				return s
			}
		},
	} {
		o := newOpStore(t)
		twin(o)
		if err := operationGuarantees()[guarantee](o); err == nil {
			t.Errorf("the broken twin is not caught: %s", guarantee)
		} else {
			t.Logf("caught: %v", err)
		}
	}
}

// expireBeforeLock reads what has expired without any lock, and then writes by what it has read.
func (o *opStore) expireBeforeLock(between func()) (int, error) {
	var over []int64
	err := o.ops.read(o.t.Context(), "expire", func(b *opBatch) (err error) {
		over, err = b.watched(10)
		return err
	})
	if err != nil {
		return 0, err
	}
	between()
	err = o.ops.write(context.WithoutCancel(o.t.Context()), "expire", "", 1, func(b *opBatch) error {
		records, err := b.loadAll(over, false, false)
		for _, r := range records {
			next, refused := r.op.Report(r.op.Current(), operation.Answer{Known: operation.NoAnswer})
			err = errors.Join(err, b.move(r, next, refused), b.save(r))
		}
		return err
	})
	return len(over), err
}
