package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tenure-go/tenure/outbox"
)

const (
	levelInfo  = slog.LevelInfo
	levelWarn  = slog.LevelWarn
	levelError = slog.LevelError
)

func attr(key, value string) slog.Attr   { return slog.String(key, value) }
func number(key string, n int) slog.Attr { return slog.Int(key, n) }

// carry hands a batch over and says what became of it. deadline is by the relay's clock.
func (r *Relay) carry(ctx context.Context, batch *outbox.Batch, deadline time.Duration) error {
	results, left := r.publish(ctx, batch.Deliveries, deadline)
	if left != nil {
		r.counts.unsettled.Add(int64(len(batch.Deliveries)))
		return left
	}
	verdicts := make([]outbox.Verdict, len(results))
	outage := error(nil)
	for i, err := range results {
		verdicts[i] = r.verdict(&batch.Deliveries[i], err)
		if errors.Is(err, outbox.ErrOutage) {
			outage = err
		}
	}
	late, recorded := r.settle(ctx, batch, verdicts, deadline)
	for i, err := range results {
		if verdicts[i].Dead && recorded && !late[verdicts[i].Position] {
			r.counts.dead.Add(1)
			r.tell(ctx, Event{Kind: GivenUp, Message: batch.Deliveries[i], Err: err})
		}
	}
	r.outage(ctx, outage, results)
	return nil
}

// verdict is what the relay says of one message, counted.
func (r *Relay) verdict(d *outbox.Delivery, err error) outbox.Verdict {
	v := outbox.Verdict{Position: d.Position}
	switch {
	case err == nil:
		v.Outcome = outbox.Published
		r.counts.published.Add(1)
	case errors.Is(err, errNotHanded), errors.Is(err, outbox.ErrOutage):
		v.Outcome = outbox.Returned
		r.counts.returned.Add(1)
	default:
		v.Outcome, v.Error = outbox.Failed, outbox.Text(err.Error())
		r.counts.failed.Add(1)
		refused := errors.Is(err, outbox.ErrRefused)
		if refused {
			r.counts.refused.Add(1)
		}
		if v.Dead = refused || d.Attempt >= r.o.MaxAttempts; !v.Dead {
			v.RetryIn = backoff(d.Attempt, r.o.RetryFirst, r.o.RetryMost)
		}
	}
	return v
}

// outage notes whether the destination takes messages: it is away if it said so of one of a batch and answered for none, and it is back when it has answered, be it with a refusal. A failure, as a timeout, is no sign of either.
func (r *Relay) outage(ctx context.Context, outage error, results []error) {
	answered, failed, handed := false, false, false
	r.leaveAlone = 0
	for _, err := range results {
		away, untried := errors.Is(err, outbox.ErrOutage), errors.Is(err, errNotHanded)
		answered = answered || err == nil || errors.Is(err, outbox.ErrRefused)
		failed = failed || err != nil && !away && !untried
		handed = handed || !untried
		r.leaveAlone = max(r.leaveAlone, min(outbox.RestOf(err), maxPushback))
	}
	switch {
	case answered && r.restless > 0:
		r.restless = 0
		r.tell(ctx, Event{Kind: Recovered})
	case outage != nil && !answered && !failed:
		r.counts.outages.Add(1)
		if r.restless++; r.restless == 1 {
			r.tell(ctx, Event{Kind: Outage, Err: outage})
		}
	}
	if r.idleHands++; handed {
		r.idleHands = 0
	}
}

func (r *Relay) tell(ctx context.Context, e Event) {
	level := levelWarn
	attrs := []slog.Attr{attr("relay", r.o.Name)}
	switch e.Kind {
	case GivenUp:
		level = levelError
		attrs = append(attrs, attr("topic", e.Message.Topic), attr("id", e.Message.ID.String()), number("attempts", e.Message.Attempt))
	case Late:
		attrs = append(attrs, attr("topic", e.Message.Topic), attr("id", e.Message.ID.String()))
	case Recovered:
		level = levelInfo
	case Hanging:
		level = levelError
	case Outage:
	}
	if e.Err != nil {
		attrs = append(attrs, attr("error", outbox.Text(e.Err.Error())))
	}
	r.o.Log.LogAttrs(ctx, level, "outbox: "+e.Kind.String(), attrs...)
	if r.o.OnEvent != nil {
		r.o.OnEvent(e)
	}
}

// publish hands the messages over while the claim surely stands and ctx has not ended, and returns what the sink said of each. It waits for the sink, also past the deadline, which is told: there is never a second call while one is under
// way. Where ctx ends, it waits for Drain.
func (r *Relay) publish(ctx context.Context, all []outbox.Delivery, deadline time.Duration) ([]error, error) {
	left := deadline - r.clock()
	if left <= 0 || ctx.Err() != nil {
		return notHanded(len(all)), nil
	}
	bound, cancel := r.until(context.WithoutCancel(ctx), deadline, left)
	defer cancel()
	done := make(chan []error, 1)
	go func() { done <- r.sinkAll(ctx, bound, all) }()
	overdue := time.NewTimer(left + r.o.Margin)
	defer overdue.Stop()
	for waiting := true; waiting; {
		select {
		case results := <-done:
			return results, nil
		case <-overdue.C:
			r.counts.hanging.Add(1)
			r.tell(ctx, Event{Kind: Hanging, Err: &sinkError{fmt.Sprintf("has not returned, with %d messages", len(all))}})
		case <-ctx.Done():
			waiting = false
		}
	}
	timer := time.NewTimer(r.o.Drain)
	defer timer.Stop()
	select {
	case results := <-done:
		return results, nil
	case <-timer.C:
		cancel()
	}
	select { // the sink has been told to stop
	case results := <-done:
		return results, nil
	case <-time.After(r.o.Drain / 10):
		return nil, &DrainError{Messages: len(all), Waited: r.o.Drain}
	}
}

func notHanded(n int) []error {
	results := make([]error, n)
	for i := range results {
		results[i] = errNotHanded
	}
	return results
}

// sinkAll calls the sink. If that panics, or answers in a way that cannot be told apart, the messages are handed over one by one, so that what one of them does is held against no other, as long as there is time: the rest may have been
// published, and has failed. run is the relay's own context, ctx that of the hand-over.
func (r *Relay) sinkAll(run, ctx context.Context, all []outbox.Delivery) []error {
	if ctx.Err() != nil { // it was stopped since
		return notHanded(len(all))
	}
	results, err := r.call(ctx, all)
	if err == nil {
		return results
	}
	if len(all) == 1 {
		return []error{err}
	}
	results = make([]error, len(all))
	type chain struct{ topic, key string }
	blocked := map[chain]bool{}
	for i := range all {
		c := chain{all[i].Topic, all[i].Key}
		switch {
		case all[i].Ordered && blocked[c]:
			results[i] = errNotHanded
		case ctx.Err() != nil || run.Err() != nil:
			results[i] = err
		default:
			one, alone := r.call(ctx, all[i:i+1])
			if alone != nil {
				one = []error{alone}
			}
			results[i] = one[0]
			blocked[c] = blocked[c] || all[i].Ordered && one[0] != nil
		}
	}
	return results
}

// call calls the sink once.
func (r *Relay) call(ctx context.Context, all []outbox.Delivery) (results []error, err error) {
	defer func() {
		if p := recover(); p != nil {
			results, err = nil, &sinkError{fmt.Sprintf("panicked: %v", p)}
		}
	}()
	results = r.sink.Publish(ctx, all)
	if len(results) != len(all) {
		return nil, &sinkError{fmt.Sprintf("gave %d results for %d messages", len(results), len(all))}
	}
	return results, nil
}

// settle says what became of a batch. It repeats what is not known to be recorded until the claim's deadline, and when run has ended for no longer than Drain. It returns the positions of which another claim had followed, and whether the
// others are recorded.
func (r *Relay) settle(run context.Context, batch *outbox.Batch, verdicts []outbox.Verdict, deadline time.Duration) (late map[int64]bool, recorded bool) {
	ctx := context.WithoutCancel(run)
	var ended time.Duration // by when it gives up once run has ended
	req := outbox.SettleRequest{Claim: batch.Claim, Relay: r.o.Name, Verdicts: verdicts}
	for n := 1; ; n++ {
		bound, cancel := context.WithTimeout(ctx, callBound)
		done, err := r.store.Settle(bound, req)
		cancel()
		if err == nil {
			return r.late(ctx, batch, done.Late), true
		}
		wait := backoff(n, 50*time.Millisecond, time.Second)
		now := r.clock()
		if run.Err() != nil && ended == 0 {
			ended = now + r.o.Drain
		}
		if !unsettled(err) || now+wait >= deadline || ended > 0 && now+wait >= ended {
			r.counts.unsettled.Add(int64(len(verdicts)))
			r.o.Log.LogAttrs(ctx, levelError, "outbox: what became of messages could not be recorded: they are published again", attr("relay", r.o.Name), number("messages", len(verdicts)), attr("error", err.Error()))
			return nil, false
		}
		if ended > 0 {
			pause(ctx, wait)
		} else {
			pause(run, wait)
		}
	}
}

// late tells of which messages another claim has followed, and returns their positions.
func (r *Relay) late(ctx context.Context, batch *outbox.Batch, positions []int64) map[int64]bool {
	r.counts.late.Add(int64(len(positions)))
	at := map[int64]bool{}
	for _, p := range positions {
		at[p] = true
	}
	for _, d := range batch.Deliveries {
		if at[d.Position] {
			r.tell(ctx, Event{Kind: Late, Message: d})
		}
	}
	return at
}
