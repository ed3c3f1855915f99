package drill

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/internal/upstream"
	"github.com/tenure-go/tenure/lease"
)

// Worker is the whole program of a worker process: it carries out what the conductor sends until stdin ends.
// It is started by [Run], which does not tell where else to look.
func Worker(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	return runWorker(ctx, stdin, stdout, func(*worker) {})
}

// worker is one process that wants a lease. The fields of behaviour are what a deliberately broken worker changes.
type worker struct {
	setup
	out   *lines
	now   clock.Source
	site  site // of the store
	store authority
	net   *faultyStore
	res   *resource
	where site   // of the resource
	actor *actor // in the story

	owner   string
	session *lease.Session
	lease   *lease.Lease
	claim   fence.Claim // of the last check
	content []string    // of the last read
	work    *work

	// Behaviour.
	wrap  func(lease.Store) lease.Store // what stands between the faults and the store
	allow check                         // what the resource checks before a write; nil: nothing
	late  func(ctx context.Context, c command) (*model.Answer, error)
	stop  func(ctx context.Context) error
	clock func() time.Duration            // that the session believes; nil: its own choice
	quit  func(ctx context.Context) error // cancels the work
	door  func(c *upstream.Config)        // of a guard; nil: as it is
}

// runWorker is Worker with a chance to break it first.
func runWorker(ctx context.Context, stdin io.Reader, stdout io.Writer, change func(*worker)) error {
	in := scanner(stdin, maxLine)
	w := &worker{out: &lines{to: stdout}, stop: stopSelf, wrap: func(s lease.Store) lease.Store { return s }}
	if err := receive(in, &w.setup); err != nil {
		return fmt.Errorf("%w: reading its setup: %w", ErrProcess, err)
	}
	if w.Role != "" {
		change(w)
		if w.Role == rolePayer {
			return w.servePayer(ctx, in)
		}
		if w.Role == roleSeller {
			return w.serveSeller(ctx, in)
		}
		if w.Role == roleCarrier {
			return w.serveCarrier(ctx, in)
		}
		return w.serve(ctx, in)
	}
	w.late = w.writeLate
	w.quit = func(context.Context) error { w.work.cancel(); return nil }
	w.net = &faultyStore{faults: map[string]fault{}, times: map[string]int{},
		told: func(till heldTill) error { return w.out.send(reply{Held: &till}) }}
	defer w.close(ctx)
	if err := w.open(ctx, change); err != nil {
		return err
	}
	for {
		var c command
		if err := receive(in, &c); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		answer, err := w.do(ctx, c)
		answer.ID = c.ID
		if err != nil {
			answer.Err, answer.Code = err.Error(), lease.CodeOf(err)
		}
		if err := w.out.send(answer); err != nil {
			return err
		}
	}
}

func (w *worker) open(ctx context.Context, change func(*worker)) error {
	var err error
	if w.now, _, err = clock.Kernel(); err != nil {
		return err
	}
	w.net.now = w.now
	at := w.place
	if w.Resource != nil {
		at = *w.Resource
	}
	w.site, w.where = w.place.site(), at.site()
	if w.res, err = openResource(at, w.Run); err != nil {
		return err
	}
	if w.Rows {
		if err := w.res.usingRows(at); err != nil {
			return err
		}
	}
	switch w.Guard {
	case guardStrict:
		w.allow = w.strict
	case guardPresent:
		w.allow = w.presents
	case guardForeign:
		change(w)
		return nil
	case guardMark:
		w.allow = w.highWater
	case guardOwner:
		w.allow = w.sameOwner
	case guardNone:
	default:
		return fmt.Errorf("%w: guard %q", ErrProcess, w.Guard)
	}
	change(w)
	return w.openStore(ctx)
}

// openStore opens the store, for the first time or again. No call is under way.
func (w *worker) openStore(ctx context.Context) error {
	opened, err := w.site.open(ctx)
	if err != nil { // what came with the error may be a nil of some type
		return err
	}
	w.store = opened
	w.net.Store = w.wrap(w.store)
	return nil
}

// close gives back what is the process's. Sessions expire by themselves.
func (w *worker) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if w.store != nil {
		_ = w.store.Shutdown(ctx)
	}
	if w.res != nil {
		_ = w.res.close()
	}
}

// do carries out one order.
func (w *worker) do(ctx context.Context, c command) (reply, error) {
	switch c.Op {
	case opSession:
		return reply{}, w.start(ctx, c)
	case opAcquire:
		return w.acquire(ctx, c)
	case opRead:
		if w.Service != "" {
			return w.readHTTP(ctx, c)
		}
		return w.read(ctx)
	case opCheck:
		return reply{}, w.check()
	case opWrite:
		if w.Service != "" && (!c.Late || c.Inside != "") {
			return w.writeHTTP(ctx, c)
		}
		return w.write(ctx, c)
	case opPause:
		return w.pause(ctx, c)
	case opBusy:
		return w.busy(ctx, c)
	case opEnded:
		return w.ended(ctx)
	case opAdopt:
		return reply{}, w.adopt(c)
	case opFault:
		w.net.order(c.Call, c.Fault, c.Times)
		return reply{}, nil
	case opRenewed:
		return reply{}, w.renewed(ctx)
	case opDeliver:
		return told(w.net.deliver(ctx)), nil
	case opRelease:
		return reply{}, w.lease.Release(ctx)
	case opClose:
		return reply{}, w.session.Close(ctx)
	case opDo:
		return w.begin(ctx, c)
	case opCancel:
		return reply{}, w.quit(ctx)
	case opFinish:
		return w.finish(ctx)
	case opStory:
		return w.step(ctx, c)
	case opForeign:
		return w.foreign(ctx, c)
	case opServe, opPlace, opSell: // of a service or a seller, not of a worker
	}
	return reply{}, fmt.Errorf("%w: unknown order %q", ErrProcess, c.Op)
}

// told puts an answer of the authority into words for the conductor, which expects a refusal here.
func told(err error) reply {
	if err == nil {
		return reply{Told: "done"}
	}
	return reply{Told: err.Error(), Code: lease.CodeOf(err)}
}

func (w *worker) start(ctx context.Context, c command) error {
	var err error
	w.owner = c.Owner
	for range 3 { // a call that a busy machine was too slow for was not applied, and a session has only its TTL to open in
		w.session, err = lease.Start(ctx, w.net, lease.Options{Owner: c.Owner, TTL: ofMillis(c.TTL), Margin: ofMillis(c.Margin), Clock: w.clock})
		if !errors.Is(err, lease.ErrUnavailable) {
			break
		}
	}
	return err
}

func (w *worker) acquire(ctx context.Context, c command) (reply, error) {
	if c.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ofMillis(c.Wait))
		defer cancel()
	}
	l, err := w.session.Acquire(ctx, lease.Want{Names: []string{c.Name}, MaxHold: ofMillis(c.MaxHold), Try: c.Try})
	if err != nil {
		if w.session.Context().Err() != nil { // by being slow: its call was given up with its session
			err = errors.Join(err, lease.ErrEnded)
		}
		return reply{}, err
	}
	at := w.now()
	return w.took(ctx, l, at)
}

// took keeps the lease and tells when it was granted.
func (w *worker) took(ctx context.Context, l *lease.Lease, at time.Duration) (reply, error) {
	w.lease = l
	if err := w.check(); err != nil {
		return reply{}, err
	}
	err := w.res.saw(ctx, model.Event{Round: w.Round, Token: w.claim.Token, What: model.Granted, At: at})
	return reply{Claim: w.claim.String(), AtNS: int64(at)}, err
}

func (w *worker) check() error {
	claim, err := w.lease.Claim()
	if err == nil {
		w.claim = claim
	}
	return err
}

func (w *worker) read(ctx context.Context) (reply, error) {
	if w.res.objects != nil {
		return w.readObject(ctx)
	}
	if w.res.files != nil {
		return w.readFile(ctx)
	}
	if w.Guard == guardMark && w.allow != nil && w.claim.Token > 0 { // whoever reads to write enters first
		if err := w.res.inTx(ctx, func(tx *sql.Tx) error { return w.allow(ctx, tx, w.claim) }); err != nil {
			return reply{}, err
		}
	}
	content, err := w.res.read(ctx, w.Round)
	w.content = content
	return reply{Content: content}, err
}

func (w *worker) adopt(c command) error {
	claim, err := fence.ParseClaim(c.Claim)
	w.claim, w.content = claim, c.Content
	return err
}

// ended waits until this process no longer believes to hold.
func (w *worker) ended(ctx context.Context) (reply, error) {
	held := w.lease.Context()
	select {
	case <-held.Done():
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
	at := w.now()
	err := w.res.saw(ctx, model.Event{Round: w.Round, Token: w.claim.Token, What: model.Believed, At: at})
	return reply{AtNS: int64(at), Told: context.Cause(held).Error()}, err
}

// renewed waits until the faults that were ordered of renewals have all occurred, and one was acknowledged since.
func (w *worker) renewed(ctx context.Context) error {
	for w.net.left(callRenew) > 0 {
		if err := w.check(); err != nil {
			return err
		}
		if !sleep(ctx, settlePause) {
			return context.Cause(ctx)
		}
	}
	before := w.session.Stats().Renewals
	for w.session.Stats().Renewals == before {
		if err := w.check(); err != nil {
			return err
		}
		if !sleep(ctx, settlePause) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// writing is the write that c orders, under the claim and on the content that were kept.
func (w *worker) writing(c command) writing {
	return writing{round: w.Round, writer: w.Name, element: c.Element, base: w.content, claim: w.claim, late: c.Late}
}

func (w *worker) write(ctx context.Context, c command) (reply, error) {
	if c.Late {
		answer, err := w.late(ctx, c)
		return reply{Answer: answer}, err
	}
	answer, err := w.res.write(ctx, w.writing(c), w.allow)
	return reply{Answer: &answer}, err
}

// writeLate sends a write without asking anybody again: straight to the resource, or through the normal API.
func (w *worker) writeLate(ctx context.Context, c command) (*model.Answer, error) {
	if w.Service != "" {
		r, err := w.writeHTTP(ctx, c)
		return r.Answer, err
	}
	write := w.writing(c)
	write.late = true
	if c.API {
		answer, err := w.writeByAPI(ctx, write)
		return &answer, err
	}
	answer, err := w.res.write(ctx, write, w.by(c.Form))
	return &answer, err
}

// settlePause is between two looks at what this process itself is waiting for.
const settlePause = 2 * time.Millisecond

// sleep waits for d and reports whether it did, rather than ctx ending first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// work is a function that runs under lease.Do.
type work struct {
	cancel context.CancelFunc
	finish chan struct{}
	done   chan error
}
