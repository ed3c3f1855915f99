package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxtest"
)

// TestBrokenOutboxFiles demands that a file whose triggers break a rule behind the store's back is caught by the case that is named for the rule.
func TestBrokenOutboxFiles(t *testing.T) {
	t.Parallel()
	const claimed = `AFTER UPDATE OF claim ON tenure_message WHEN NEW.open = 1 AND NEW.claim <> OLD.claim BEGIN UPDATE tenure_message SET `
	const this = ` WHERE position = NEW.position; END`
	for name, breaks := range map[string]string{
		"of-many-claims-at-once-each-message-is-in-one":                  claimed + `at = OLD.at` + this,
		"F27-a-claim-is-over-at-its-deadline-and-not-earlier":            claimed + `at = OLD.at + (NEW.at - OLD.at) / 2` + this,
		"F31-what-fails-is-given-up-after-so-many-attempts":              claimed + `attempts = 0` + this,
		"what-was-lost-twice-is-handed-out-alone":                        claimed + `lost = 0` + this,
		"F31-what-its-relays-do-not-survive-is-given-up-too":             claimed + `attempts = OLD.attempts` + this,
		"F28-a-late-verdict-changes-nothing-and-is-told":                 `AFTER UPDATE OF claim ON tenure_message WHEN length(OLD.claim) = 16 AND length(NEW.claim) = 16 BEGIN UPDATE tenure_message SET claim = OLD.claim` + this,
		"what-is-returned-untried-is-not-counted":                        `AFTER UPDATE OF attempts ON tenure_message WHEN NEW.attempts = OLD.attempts - 1 BEGIN UPDATE tenure_message SET attempts = OLD.attempts` + this,
		"an-ordered-key-is-handed-out-in-order":                          `AFTER INSERT ON tenure_message WHEN NEW.ordered = 1 BEGIN UPDATE tenure_message SET lead = 2` + this,
		"what-is-dead-lets-its-key-go-on":                                `AFTER UPDATE OF lead ON tenure_message WHEN NEW.lead = 2 BEGIN UPDATE tenure_message SET lead = 0` + this,
		"the-newest-errors-are-kept-and-cut":                             `BEFORE DELETE ON tenure_message_error BEGIN SELECT RAISE(IGNORE); END`,
		"what-is-retried-is-pending-with-no-attempts":                    `AFTER UPDATE OF state ON tenure_message WHEN OLD.state = 3 BEGIN UPDATE tenure_message SET attempts = OLD.attempts` + this,
		"what-is-replayed-is-pending-as-new-with-its-id":                 `AFTER UPDATE OF state ON tenure_message WHEN OLD.state = 2 BEGIN UPDATE tenure_message SET id = randomblob(16)` + this,
		"F29-every-delivery-of-a-message-has-the-same-id":                claimed + `id = randomblob(16)` + this,
		"a-paused-topic-is-not-claimed-and-loses-nothing":                `AFTER INSERT ON tenure_paused BEGIN DELETE FROM tenure_paused; END`,
		"a-pause-of-every-topic-is-apart-from-that-of-one":               `AFTER DELETE ON tenure_paused BEGIN DELETE FROM tenure_paused; END`,
		"what-has-failed-is-handed-out-after-its-back-off":               `AFTER INSERT ON tenure_message_error BEGIN UPDATE tenure_message SET lead = 0` + this,
		"B52-what-is-over-for-long-enough-is-forgotten-and-nothing-else": `AFTER DELETE ON tenure_message BEGIN DELETE FROM tenure_message; END`,
	} {
		h := newMailHarness(t)
		plainExec(t, h.store.Path(), `CREATE TRIGGER twin `+breaks)
		ran := false
		for _, c := range outboxtest.Cases() {
			if c.Name != name {
				continue
			}
			ran = true
			if err := c.Run(t.Context(), h); err == nil {
				t.Errorf("the broken file is not caught by %s", name)
			} else {
				t.Logf("%s: %.200s", name, err.Error())
			}
		}
		if !ran {
			t.Errorf("no case %s", name)
		}
	}
}

// mailOffice is a store of messages by clocks that a test turns, of which a twin may break something.
type mailOffice struct {
	*post
	hands  *hands
	path   string
	db     *sql.DB
	boot   func() *Store
	append func(tx *sql.Tx, m outbox.Message) error
	settle func(req outbox.SettleRequest) error
	claim  func(claim int, between func()) ([]int64, error) // between is called where another may come between look and write, if anywhere
	prune  func() error
	later  []outbox.Message // what a twin appends when all transactions have ended
}

func newMailOffice(t testing.TB) *mailOffice {
	t.Helper()
	o := &mailOffice{hands: newHands(), path: newPath(t)}
	o.post = &post{t: t, mail: openWith(t, o.hands.config(o.path, "boot")).Outbox()}
	o.db = plainDB(t, o.path, "?_txlock=immediate&_pragma=busy_timeout(5000)")
	o.append = func(tx *sql.Tx, m outbox.Message) error { _, err := o.mail.AppendTx(t.Context(), tx, m); return err }
	o.settle = func(req outbox.SettleRequest) error { _, err := o.mail.Settle(t.Context(), req); return err }
	o.claim = func(claim int, between func()) ([]int64, error) {
		between()
		got, err := o.mail.Claim(t.Context(), mailClaim(claim, 10))
		return placesOf(got), err
	}
	o.prune = func() error {
		_, err := o.mail.Prune(t.Context(), outbox.PruneRequest{Delivered: outbox.MinPruneAge, Limit: 10})
		return err
	}
	return o
}

func placesOf(got outbox.Batch) (places []int64) {
	for _, d := range got.Deliveries {
		places = append(places, d.Position)
	}
	return places
}

// mailGuarantees hold for a store, and each catches the twin that breaks it.
func mailGuarantees() map[string]func(o *mailOffice) error {
	return map[string]func(o *mailOffice) error{
		"a message is there if and only if its transaction has committed": sharesItsCommit,
		"a late acknowledgement changes nothing":                          lateChangesNothing,
		"nobody else gets what is claimed":                                claimedOnce,
		"a position is used once":                                         positionOnce,
		"a claim's time is the authority's":                               claimTimeIsTheAuthoritys,
	}
}

func sharesItsCommit(o *mailOffice) error {
	failed := errors.New("failed")
	for n, fail := range []error{failed, nil} {
		err := inOwnTx(o.t.Context(), o.db, func(tx *sql.Tx) error { return errors.Join(o.append(tx, letterTo(n, "")), fail) })
		if !errors.Is(err, fail) {
			return err
		}
	}
	if o.later != nil {
		o.post.append(o.later...)
	}
	if got := o.post.claim(1, 10); len(got.Deliveries) != 1 || got.Deliveries[0].ID != mailID(1) {
		return fmt.Errorf("of one that was rolled back, and one that was not, these are there: %+v", got.Deliveries)
	}
	return nil
}

func lateChangesNothing(o *mailOffice) error {
	o.post.append(letterTo(1, ""))
	late := o.post.claim(1, 1)
	o.hands.pass(time.Minute)
	now := o.post.claim(2, 1)
	if err := o.settle(published(late)); err != nil {
		return err
	}
	if got := o.get(1); got.State != outbox.Pending || len(now.Deliveries) != 1 {
		return fmt.Errorf("after a late acknowledgement it is %v", got.State)
	}
	return checkMail(o.t.Context(), o.db)
}

func claimedOnce(o *mailOffice) error {
	o.post.append(letterTo(1, ""), letterTo(2, "key"))
	first := 0
	second, err := o.claim(1, func() { first = len(o.post.claim(2, 10).Deliveries) })
	if err != nil {
		return err
	}
	if first != 2 || len(second) != 0 {
		return fmt.Errorf("of two messages one relay got %d, and another %d", first, len(second))
	}
	return nil
}

func positionOnce(o *mailOffice) error {
	o.post.append(letterTo(1, ""), letterTo(2, ""))
	was := o.get(2).Position
	o.post.settle(published(o.post.claim(1, 2)))
	o.hands.pass(outbox.MinPruneAge)
	if err := o.prune(); err != nil {
		return err
	}
	o.post.append(letterTo(3, ""))
	if now := o.get(3).Position; now <= was {
		return fmt.Errorf("position %d is used again, after %d", now, was)
	}
	return nil
}

// claimTimeIsTheAuthoritys sets the wall clock, which is the relays' as well, a day ahead and two back.
func claimTimeIsTheAuthoritys(o *mailOffice) error {
	if o.boot != nil {
		o.mail = o.boot().Outbox()
	}
	o.post.append(letterTo(1, ""))
	for n, step := range []time.Duration{24 * time.Hour, -48 * time.Hour} {
		if got := o.post.claim(2*n, 1); len(got.Deliveries) != 1 || got.Left != time.Minute {
			return fmt.Errorf("claimed %d, for %v", len(got.Deliveries), got.Left)
		}
		o.hands.wall.Add(int64(step))
		o.hands.pass(time.Minute - 1)
		if got := o.post.claim(2*n+1, 1); len(got.Deliveries) != 0 {
			return fmt.Errorf("claimed again before its time, after a step of %v", step)
		}
		o.hands.pass(1)
	}
	return nil
}

func TestOutboxGuarantees(t *testing.T) {
	t.Parallel()
	for name, holds := range mailGuarantees() {
		if err := holds(newMailOffice(t)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBrokenOutboxes demands that each naive form is caught by the guarantee that it breaks.
func TestBrokenOutboxes(t *testing.T) {
	t.Parallel()
	for guarantee, twin := range map[string]func(o *mailOffice){
		"a message is there if and only if its transaction has committed": func(o *mailOffice) {
			o.append = func(_ *sql.Tx, m outbox.Message) error { // in a transaction of its own, after the caller's has ended, whatever became of that
				o.later = append(o.later, m)
				return nil
			}
		},
		"a late acknowledgement changes nothing": func(o *mailOffice) { // it names the message alone
			o.settle = func(req outbox.SettleRequest) error {
				_, err := o.db.ExecContext(o.t.Context(), `UPDATE tenure_message SET state = 2, lead = 0, open = 0 WHERE position = ?`, req.Verdicts[0].Position)
				return err
			}
		},
		"nobody else gets what is claimed": func(o *mailOffice) { // it looks, and then writes by what it has seen
			o.claim = func(claim int, between func()) ([]int64, error) {
				var c *choice
				req := mailClaim(claim, 10)
				err := o.mail.read(o.t.Context(), "claim", func(b *mailBatch) (err error) { c, err = b.choose(&req); return err })
				if err != nil {
					return nil, err
				}
				between()
				_, err = o.db.ExecContext(o.t.Context(), `UPDATE tenure_message SET claim = ?, open = 1, attempts = attempts + 1`, req.Claim[:])
				return positionsOf(c.taken), err
			}
		},
		"a position is used once": func(o *mailOffice) {
			o.prune = func() error {
				_, err := o.db.ExecContext(o.t.Context(), `DELETE FROM tenure_message_body; DELETE FROM tenure_message`)
				return err
			}
		},
		"a claim's time is the authority's": func(o *mailOffice) { // as a clock that is set can be
			o.boot = func() *Store {
				cfg := o.hands.config(newPath(o.t), "boot")
				cfg.kernelClock = func() time.Duration { return time.Duration(o.hands.wall.Load()) }
				return openWith(o.t, cfg)
			}
		},
	} {
		o := newMailOffice(t)
		twin(o)
		if err := mailGuarantees()[guarantee](o); err == nil {
			t.Errorf("the broken twin is not caught: %s", guarantee)
		} else {
			t.Logf("caught: %v", err)
		}
	}
}
