package drill

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/lease"
)

// twins are workers that are broken on purpose; a drill that is ok with one of them shows nothing.
func twins() map[string]func(*worker) {
	return map[string]func(*worker){
		"sound": func(*worker) {},
		// The late write is not sent.
		"silent": func(w *worker) { w.late = func(context.Context, command) (*model.Answer, error) { return nil, nil } },
		// The resource checks nothing, although it says so.
		"blind": func(w *worker) { w.allow = nil },
		// The resource checks in a transaction of its own, and the writer is stopped between that and the write.
		"apart": apartTwin,
		// The same with an object: its mark is looked at, and the PUT has no condition.
		"object-apart": objectApartTwin,
		// The same with a file: its mark is raised, and the write goes past it.
		"file-apart": fileApartTwin,
		// Somebody takes the protection of the table away.
		"unprotecting": unprotectingTwin,
		// The resource takes the owner label for proof.
		"label": func(w *worker) { w.allow = w.sameOwner },
		// A refused write is there all the same.
		"leaky": leakyTwin,
		// The authority releases by name.
		"release-by-name": func(w *worker) { w.wrap = func(s lease.Store) lease.Store { return byName{s} } },
		// The authority grants while somebody holds.
		"early": func(w *worker) { w.wrap = func(s lease.Store) lease.Store { return early{s} } },
		// The authority notices an expiry late.
		"lagging": func(w *worker) { w.wrap = func(s lease.Store) lease.Store { return &lagging{Store: s} } },
		// The client's clock runs at half speed.
		"slow-clock": func(w *worker) { w.clock = func() time.Duration { return w.now() / 2 } },
		// The guard before a service gives no turns, gives them up early, or lets every claim in.
		"turnless": turnlessTwin, "impatient": impatientTwin, "lenient": lenientTwin,
		// Payers: an error is a failure and the next attempt has another key; done before it is sent; a row that asks for no attempt; a finding that is a decision; and what is called
		// off is sent. And a provider that does nothing wrong.
		"new-key": mannered(mannerNewKey), "done-first": mannered(mannerDoneFirst), "plain-row": mannered(mannerPlainRow), "first-word": mannered(mannerFirstWord),
		"sends-anyway": paying(func(s *payerSetup) { s.Unsent = false }),
		"faultless":    paying(func(s *payerSetup) { s.Fault = "" }),
		// Sellers: a sale is written whatever the confirmation says; written again; and what is late is not sent.
		"ignores-late": selling(mannerIgnoresLate), "two-rows": selling(mannerTwoRows), "silent-sale": selling(mannerSilent),
		// Carriers: each publication has an id of its own; what is late is not said, or taken for recorded; a message is given up at once; and what is behind one that failed is sent.
		"new-ids": carrying(mannerNewIDs), "mute": carryingLate(mannerMute), "deaf": carrying(mannerDeaf), "gives-up": carrying(mannerGivesUp), "leaps": carrying(mannerLeaps),
		// Cancelling the work releases the lease at once.
		"release-on-cancel": func(w *worker) {
			w.quit = func(ctx context.Context) error {
				w.work.cancel()
				return w.lease.Release(ctx)
			}
		},
	}
}

func apartTwin(w *worker) {
	stop := w.stop
	w.stop = func(ctx context.Context) error {
		err := w.res.inTx(ctx, func(tx *sql.Tx) error { return w.strict(ctx, tx, w.claim) })
		return errors.Join(err, stop(ctx))
	}
	w.late = func(ctx context.Context, c command) (*model.Answer, error) {
		write := w.writing(c)
		write.late = true
		answer, err := w.res.write(ctx, write, nil)
		return &answer, err
	}
}

func leakyTwin(w *worker) {
	w.late = func(ctx context.Context, c command) (*model.Answer, error) {
		answer, err := w.writeLate(ctx, c)
		if err != nil {
			return answer, err
		}
		return answer, w.res.inTx(ctx, func(tx *sql.Tx) error { return w.res.apply(ctx, tx, w.writing(c)) })
	}
}

// byName frees whatever holds the name that a release is about.
type byName struct{ lease.Store }

func (s byName) Release(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
	return lease.Released{}, takeAway(ctx, s.Store, req.Names[0])
}

// early takes a name away from its holder.
type early struct{ lease.Store }

func (s early) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	grants, err := s.Store.Acquire(ctx, req)
	if errors.Is(err, lease.ErrHeld) {
		if err := takeAway(ctx, s.Store, req.Names[0]); err != nil {
			return nil, err
		}
		return s.Store.Acquire(ctx, req)
	}
	return grants, err
}

// takeAway ends whatever holds the name.
func takeAway(ctx context.Context, s lease.Store, name string) error {
	info, err := s.Get(ctx, name)
	if err != nil || !info.Held {
		return err
	}
	revoker, ok := s.(lease.Revoker)
	if !ok {
		return errors.New("the store cannot revoke")
	}
	_, err = revoker.Revoke(ctx, lease.RevokeRequest{Name: name, Token: info.Token, Reason: "broken on purpose"})
	return err
}

// lagging says that an expired name is held for a while longer.
type lagging struct {
	lease.Store
	mu   sync.Mutex
	free map[string]time.Time // when a name was first seen free
}

func (s *lagging) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	const lag = 300 * time.Millisecond
	name := req.Names[0]
	info, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	if !info.Held && info.Token > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.free == nil {
			s.free = map[string]time.Time{}
		}
		if s.free[name].IsZero() {
			s.free[name] = time.Now()
		}
		if left := lag - time.Since(s.free[name]); left > 0 {
			return nil, &lease.HeldError{Name: name, Token: info.Token, Left: left}
		}
	}
	return s.Store.Acquire(ctx, req)
}
