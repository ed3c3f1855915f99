package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/operation"
)

// handle does what is due for one operation.
func (r *Reconciler) handle(ctx context.Context, p *provider, rec *operation.Record) {
	e := r.byKind[rec.Kind]
	switch {
	case e == nil: // a store that answers something else is not believed
	case rec.Step == operation.Undo && e.compensate != nil:
		r.undo(ctx, e, rec)
	case rec.Step != operation.Undo && e.inquire != nil:
		r.inquire(ctx, p, e, rec)
		return
	}
	p.leave()
}

// inquire asks the provider, and records what it found. An error decides nothing; neither does the operation's age.
func (r *Reconciler) inquire(ctx context.Context, p *provider, e *Entry, rec *operation.Record) {
	began := time.Now()
	inq, err := r.ask(ctx, p, e, rec)
	if ctx.Err() != nil && err != nil { // the reconciler stops: nothing is known of the provider
		p.leave()
		return
	}
	if told := p.answered(silence(err), time.Since(began)); told != nil {
		r.tell(ctx, told)
	}
	r.count(rec, inq, err)
	if err != nil {
		r.o.Logger.WarnContext(ctx, "worker: an inquiry failed, which decides nothing", "kind", rec.Kind, "id", rec.ID, "inquiries", rec.Inquiries, "err", err)
		inq = operation.Inquiry{ID: rec.ID, Finding: operation.NotObserved, AsOf: rec.Current()}
	}
	inq.AskIn = e.askIn(rec.Inquiries, pushBack(err))
	r.record(ctx, rec, inq)
}

// ask runs the handler's inquiry under a budget. One that does not return after its time is left behind: it is a failure like any other, and what it returns later is asked for again.
func (r *Reconciler) ask(ctx context.Context, p *provider, e *Entry, rec *operation.Record) (operation.Inquiry, error) {
	b, err := budget.Start(ctx, e.timeout, budget.Reserve(e.reserve))
	if err != nil {
		return operation.Inquiry{}, err
	}
	defer b.End()
	done := make(chan struct{})
	found := struct {
		inq operation.Inquiry
		err error
	}{err: &InvalidError{fmt.Sprintf("the handler of %q", e.name), "inquire", "it ended its goroutine"}}
	left := false // under the provider's lock
	go func() {
		defer func() {
			close(done)
			p.returned(&left)
		}()
		found.inq, found.err = r.call(b.Context(), e, rec)
	}()
	select {
	case <-done:
		return found.inq, found.err
	case <-b.Context().Done():
	}
	grace := time.NewTimer(defaultGrace)
	defer grace.Stop()
	select {
	case <-done:
		return found.inq, found.err
	case <-grace.C:
	}
	p.leaveBehind(&left, done)
	r.o.Logger.ErrorContext(ctx, "worker: an inquiry does not return although its context has ended", "kind", rec.Kind, "id", rec.ID)
	return operation.Inquiry{}, errDeaf
}

// call calls the handler. Its panic is an error.
func (r *Reconciler) call(ctx context.Context, e *Entry, rec *operation.Record) (inq operation.Inquiry, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			r.o.Logger.ErrorContext(ctx, "worker: an inquiry panicked", "kind", rec.Kind, "id", rec.ID, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
			err = &InvalidError{fmt.Sprintf("the handler of %q", e.name), "inquire", "it panicked"}
		}
	}()
	return e.inquire(ctx, rec)
}

// silence is err where the provider has not answered; nil where it has, or where the fault is on this side.
func silence(err error) error {
	var bad *undecodableError
	if err == nil || errors.Is(err, ErrInvalid) || errors.As(err, &bad) {
		return nil
	}
	var one *budget.Error
	if budget.ClassOf(err) == budget.Refused && !(errors.As(err, &one) && (one.Again || one.RetryAfter > 0)) {
		return nil
	}
	return err
}

// askIn is the pause before the operation is asked about again: half of it certain, so that what nobody knows is not asked about at once.
func (e *Entry) askIn(inquiries int, asked time.Duration) time.Duration {
	whole := exponential(inquiries, e.askBase, e.askMost)
	return min(whole/2+backoff(1, whole/2, whole/2)+max(asked, 0), operation.MaxDelay)
}

// record stores a finding. Where that fails for long the operation is asked about again, when it is not put off any more.
func (r *Reconciler) record(ctx context.Context, rec *operation.Record, inq operation.Inquiry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callMost) // what was found out is not thrown away for the end of the reconciler
	defer cancel()
	for pause := reportFirst; ; pause = min(2*pause, failMost) {
		now, err := r.records.Inquired(ctx, inq)
		switch {
		case err == nil:
			r.mu.Lock()
			if now.State.Decided() && !rec.State.Decided() {
				r.stats.Decided++
			}
			r.mu.Unlock()
			return
		case errors.Is(err, operation.ErrDecided):
			r.contradicted(ctx, now, inq)
			return
		case errors.Is(err, operation.ErrInvalid) && inq.Finding != operation.NotObserved: // such as an instant that has not passed by the store's clock
			r.o.Logger.WarnContext(ctx, "worker: a finding was refused, and counts as not observed", "kind", rec.Kind, "id", rec.ID, "err", err)
			inq = operation.Inquiry{ID: inq.ID, Finding: operation.NotObserved, AskIn: inq.AskIn}
			continue
		case errors.Is(err, operation.ErrInvalid) || errors.Is(err, operation.ErrNotFound):
			r.o.Logger.ErrorContext(ctx, "worker: a finding cannot be recorded", "kind", rec.Kind, "id", rec.ID, "err", err)
			return
		}
		if !sleep(ctx, around(pause)) {
			r.o.Logger.WarnContext(ctx, "worker: a finding was not recorded; the operation is asked about again", "kind", rec.Kind, "id", rec.ID, "err", err)
			return
		}
	}
}

func (r *Reconciler) contradicted(ctx context.Context, rec operation.Record, inq operation.Inquiry) {
	r.mu.Lock()
	r.stats.Conflicts++
	r.mu.Unlock()
	r.o.Logger.ErrorContext(ctx, "worker: what an inquiry found contradicts the decision; the decision stays", "kind", rec.Kind, "id", rec.ID, "state", rec.State.String(), "finding", int(inq.Finding))
	if r.o.OnConflict != nil {
		r.o.OnConflict(rec)
	}
}

// undo compensates an operation: by another one, whose id follows from its own.
func (r *Reconciler) undo(ctx context.Context, e *Entry, rec *operation.Record) {
	ctx, cancel := context.WithTimeout(ctx, callMost)
	defer cancel()
	err := func() (err error) {
		defer func() {
			if cause := recover(); cause != nil {
				err = &InvalidError{fmt.Sprintf("the handler of %q", e.name), "compensate", fmt.Sprintf("it panicked: %v", cause)}
			}
		}()
		req, err := e.compensate(rec)
		if err != nil {
			return err
		}
		if _, err := r.records.Submit(ctx, req); err != nil {
			return err
		}
		_, err = r.records.Undone(ctx, rec.ID, req.ID)
		return err
	}()
	if err != nil {
		r.o.Logger.ErrorContext(ctx, "worker: an operation that was not wanted any more could not be compensated; it is tried again", "kind", rec.Kind, "id", rec.ID, "err", err)
		return
	}
	r.mu.Lock()
	r.stats.Undone++
	r.mu.Unlock()
}

func (r *Reconciler) count(rec *operation.Record, inq operation.Inquiry, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Oldest = rec.Age
	if err != nil {
		r.stats.Failed++
		return
	}
	switch inq.Finding {
	case operation.Found:
		r.stats.Found++
	case operation.Closed:
		r.stats.Closed++
	case operation.PastInstant:
		r.stats.PastInstant++
	case operation.NotObserved:
		r.stats.NotObserved++
	}
}

// tell is the one alarm of an outage, or its end.
func (r *Reconciler) tell(ctx context.Context, o *Outage) {
	if o.Over {
		r.o.Logger.InfoContext(ctx, "worker: a provider answers again", "provider", o.Provider, "after", o.Took)
	} else {
		r.o.Logger.ErrorContext(ctx, "worker: a provider does not answer; it is asked seldom until it does, and nothing is decided meanwhile", "provider", o.Provider, "err", o.Err)
	}
	if r.o.OnOutage != nil {
		r.o.OnOutage(*o)
	}
}
