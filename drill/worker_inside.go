package drill

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// inside says where in its transaction a worker stops, or what it works on in.
type inside string

const (
	insideBeforeCommit inside = "before-commit" // verified and written
	insideBeforeWrite  inside = "before-write"  // verified
	insideUnchecked    inside = "unchecked"     // asked, in a plain read, and not written
	insideOwn          inside = "own"           // busy in a transaction of its own
	insideFenced       inside = "fenced"        // busy in the store's fenced transaction
)

// pauseInside stops this process inside a transaction on the resource. Continued, it sends what is left of it, without asking again.
func (w *worker) pauseInside(ctx context.Context, c command) (reply, error) {
	write := w.writing(c)
	write.late = true
	tx, err := w.res.db.BeginTx(ctx, nil)
	if err != nil {
		return reply{}, err
	}
	if err := w.untilStop(ctx, tx, c.Inside, write); err != nil {
		return reply{}, errors.Join(err, tx.Rollback())
	}
	err = w.stopOutsideWrites(ctx)
	if err != nil {
		return reply{}, errors.Join(err, tx.Rollback())
	}
	if c.Inside != insideBeforeCommit {
		err = w.res.apply(ctx, tx, write)
	}
	if err == nil {
		err = tx.Commit()
	} else {
		_ = tx.Rollback() // of a transaction that is over
	}
	answer, err := w.ownAnswer(ctx, write, err)
	return reply{Answer: &answer}, err
}

// untilStop is what is done of the transaction before this process stops.
func (w *worker) untilStop(ctx context.Context, tx *sql.Tx, where inside, write writing) error {
	if where == insideUnchecked {
		// The server's own bound, if it has one, would hide what is to be shown.
		if _, err := tx.ExecContext(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
			return err
		}
		var held bool
		err := tx.QueryRowContext(ctx, `SELECT held AND token = $1 FROM tenure.lease_of($2)`, int64(write.claim.Token), write.claim.Name).Scan(&held)
		if err == nil && !held {
			err = w.tooSlow("it does not hold any more")
		}
		return err
	}
	if err := w.admit(ctx, tx, write.claim); err != nil {
		return err
	}
	if where == insideBeforeWrite {
		return nil
	}
	return w.res.apply(ctx, tx, write)
}

// admit is the check of the resource, before anything has happened to this worker: a refusal says that it was slow.
func (w *worker) admit(ctx context.Context, tx *sql.Tx, claim fence.Claim) error {
	if w.allow == nil {
		return nil
	}
	err := w.allow(ctx, tx, claim)
	if errors.Is(err, fence.ErrRefused) {
		return w.tooSlow(err.Error())
	}
	return err
}

// tooSlow is the error of a worker that lost its lease before anything happened to it.
func (w *worker) tooSlow(why string) error { return fmt.Errorf("%w: %s", lease.ErrEnded, why) }

// ownAnswer records what became of a transaction that the worker ended by itself: it is accepted if the server said that it is
// committed. The judge compares that with what the resource holds.
func (w *worker) ownAnswer(ctx context.Context, write writing, ended error) (model.Answer, error) {
	a := model.Answer{Round: write.round, Writer: write.writer, Element: write.element, Token: write.claim.Token, Late: write.late, Accepted: ended == nil}
	if ended != nil {
		a.Why = ended.Error()
	}
	return a, w.res.record(ctx, a)
}

// busy verifies, writes, works on for c.Busy inside that transaction, and commits.
func (w *worker) busy(ctx context.Context, c command) (reply, error) {
	write := w.writing(c)
	work := func(ctx context.Context, tx execer) error {
		if err := w.res.apply(ctx, tx, write); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `SELECT pg_sleep($1)`, ofMillis(c.Busy).Seconds())
		return err
	}
	if c.Inside == insideFenced {
		write.late = true
		err := w.site.fenced(ctx, w.store, write.claim, work)
		if errors.Is(err, fence.ErrRefused) {
			return reply{}, w.tooSlow(err.Error())
		}
		answer, err := w.ownAnswer(ctx, write, err)
		return reply{Answer: &answer, Told: answer.Why}, err
	}
	tx, err := w.res.db.BeginTx(ctx, nil)
	if err != nil {
		return reply{}, err
	}
	err = w.admit(ctx, tx, write.claim)
	if err == nil {
		err = work(ctx, tx)
	}
	if err != nil {
		return reply{}, errors.Join(err, tx.Rollback())
	}
	at := w.now()
	answer, err := w.ownAnswer(ctx, write, tx.Commit())
	return reply{Answer: &answer, AtNS: int64(at)}, errors.Join(err,
		w.res.saw(ctx, model.Event{Round: w.Round, Token: w.claim.Token, What: model.Worked, At: at}))
}

// insideBusy is how much longer than its lease a busy worker works.
const insideBusy = 800 * time.Millisecond
