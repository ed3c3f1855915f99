//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/supervise"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/postgres"
)

const (
	onceSteps  = 20                     // moves between two states, until an occurrence is given up as one that others move too
	oncePause  = 250 * time.Millisecond // between two questions to a store that does not answer
	onceRecord = 30 * time.Second       // for a store to record what became of the command; the evidence does not expire with the lease
)

// occurrence is what --once names: an operation, of which this run may make one attempt.
type occurrence struct {
	*runner
	ops    operation.Backend
	req    operation.SubmitRequest
	worker string
	ref    operation.Ref // the attempt that was begun; zero before
	said   string        // the last failure that was told
}

// occurrence is that of --once in the store, or nil without --once.
func (r *runner) newOccurrence(s store) (*occurrence, error) {
	if r.o.once.key == "" {
		return nil, nil
	}
	ops, err := operationsOf(s)
	if err != nil {
		return nil, err
	}
	req, err := onceSubmission(r.o.names[0], r.o.once.key)
	r.status.Occurrence = &occurrenceStatus{ID: req.ID}
	return &occurrence{runner: r, ops: ops, req: req}, err
}

// over reports whether nothing is left to do before the lease is even waited for, and says so. A store that does not
// answer is left to that wait.
func (c *occurrence) over(ctx context.Context) bool {
	ctx, done := c.interruptible(ctx)
	defer done()
	ctx, stop := context.WithTimeout(ctx, openWait)
	defer stop()
	rec, err := c.ops.Get(ctx, c.req.ID)
	return err == nil && rec.Kind == onceKind && c.settled(&rec)
}

// settled reports whether an occurrence in this state is not to be run, and says so.
func (c *occurrence) settled(rec *operation.Record) bool {
	c.status.Occurrence.State = rec.State.String()
	switch rec.State {
	case operation.Succeeded:
		c.end("done_before", exitOK, "%s was done %s ago%s%s; nothing was run", c.name(), span(rec.Decided), byWhom(rec), because(rec.Reason))
	case operation.Failed, operation.Cancelled:
		c.end("decided_before", exitFailed, "%s is %v, since %s%s; nothing was run; another key is another occurrence", c.name(), rec.State, span(rec.Decided), because(rec.Reason))
	case operation.Uncertain:
		switch {
		case !c.o.once.again:
			c.end("uncertain", exitUncertain, "%s is uncertain: a run of it%s ended without an answer, and may have been done; nothing was run; %s, or add --again if it may safely run twice", c.name(), byWhom(rec), c.remedy())
		case rec.Step != operation.Work:
			c.end("uncertain", exitUncertain, "%s is uncertain: a run of it%s began without --again, and may have been done; nothing was run; %s", c.name(), byWhom(rec), c.remedy())
		default:
			return false
		}
	default:
		return false
	}
	return true
}

func (c *occurrence) name() string {
	return fmt.Sprintf("occurrence %q of %q", c.o.once.key, c.o.names[0])
}

// remedy is what to do about an uncertain occurrence.
func (c *occurrence) remedy() string {
	return fmt.Sprintf("look whether it was, then: tenure op resolve %s --succeeded, --failed or --not-done (it may run again)", shellWord(c.req.ID))
}

// shellWord is text as one word of a command line.
func shellWord(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_+=:,./-", r)
	}) && !strings.HasPrefix(text, "-") {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func byWhom(rec *operation.Record) string {
	if len(rec.Attempts) == 0 {
		return ""
	}
	return fmt.Sprintf(" by %q", rec.Attempts[len(rec.Attempts)-1].Worker)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + printable(reason)
}

// begin records an attempt before the command may start. If it returns false nothing may be run, and it has said why.
func (c *occurrence) begin(ctx context.Context, l *lease.Lease) bool {
	c.worker = operation.Cut(c.o.owner)
	if most := operation.MaxWorker - len(" ") - len(l.ID().String()); len(c.worker) > most {
		c.worker = strings.ToValidUTF8(c.worker[:most], "")
	}
	c.worker += " " + l.ID().String() // so that an attempt whose reply was lost is known for this run's own
	ctx, done := c.interruptible(ctx)
	defer done()
	if c.o.try || c.o.wait > 0 { // else an outage is waited out, as that for the lease is
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, max(c.waitFrom+c.o.wait-c.now(), openWait))
		defer stop()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })()
	var rec operation.Record
	err := c.asking(ctx, func(ctx context.Context) error {
		sub, err := c.ops.Submit(ctx, c.req)
		rec = sub.Record
		return err
	})
	for range onceSteps {
		if err != nil || c.settled(&rec) {
			break
		}
		if rec.State == operation.Attempting && c.own(&rec) {
			return true
		}
		err = c.asking(ctx, func(ctx context.Context) (err error) { rec, err = c.step(ctx, &rec); return err })
		if err == nil && rec.State == operation.Pending && c.waits(&rec) {
			break
		}
	}
	switch {
	case err != nil:
		c.notBegun(l, err)
	case c.status.ExitCode == nil:
		c.end("not_acquired", c.o.busyExit, "%s cannot begin now: it is %v, next: %s; nothing was run", c.name(), rec.State, nextOf(&rec))
	}
	return false
}

// own takes an attempt for this run's, if it is.
func (c *occurrence) own(rec *operation.Record) bool {
	last := rec.Attempts[len(rec.Attempts)-1]
	if last.Worker != c.worker || last.Known != operation.Open {
		return false
	}
	c.ref = operation.Ref{ID: rec.ID, Number: last.Number}
	c.status.Occurrence.State = rec.State.String()
	return true
}

// waits reports whether a pending occurrence is not due, as one that was submitted by hand may be.
func (c *occurrence) waits(rec *operation.Record) bool { return rec.Blocked || rec.StepIn > 0 }

// step moves an occurrence that may be run towards this run's own attempt, and returns it as it then stands.
func (c *occurrence) step(ctx context.Context, rec *operation.Record) (operation.Record, error) {
	if rec.State == operation.Attempting {
		// Whoever made that attempt has lost the lease to this run, and is never heard of again but by its own late answer.
		next, err := c.ops.Respond(ctx, operation.Response{ID: rec.ID, Number: rec.Current(),
			Answer: operation.Answer{Known: operation.NoAnswer, Reason: operation.Cut("its lease ended before it had answered; found by " + c.worker)}})
		if errors.Is(err, operation.ErrStale) || errors.Is(err, operation.ErrDecided) { // it has answered meanwhile
			return next, nil
		}
		return next, err
	}
	kind := operation.KindClaim{Kind: onceKind, Limit: 1, Timeout: operation.MaxDelay, MaxAttempts: operation.MaxAttempts}
	if c.o.once.again {
		kind.Window = operation.Forever
	}
	_, err := c.ops.Claim(ctx, operation.ClaimRequest{Worker: c.worker, TTL: c.claimTTL(), Limit: 1, Kinds: []operation.KindClaim{kind}, ID: rec.ID})
	if err != nil && !errors.Is(err, operation.ErrUnknown) {
		return *rec, err
	}
	return c.ops.Get(ctx, rec.ID) // it says whose the attempt is, also where the reply was lost
}

func (c *occurrence) claimTTL() time.Duration { return min(c.o.ttl, operation.MaxTTL) }

// asking repeats a question that may be repeated while the store does not answer, until ctx ends.
func (c *occurrence) asking(ctx context.Context, ask func(context.Context) error) error {
	for {
		err := ask(ctx)
		again := errors.Is(err, operation.ErrUnavailable) || errors.Is(err, operation.ErrUnknown)
		switch {
		case err == nil:
			return nil
		case !again || errors.Is(err, postgres.ErrSetup): // asking again mends nothing
			return interruptedOr(ctx, err)
		}
		if ctx.Err() == nil && c.said != err.Error() {
			c.said = err.Error()
			c.say("the store does not answer as it should, and is asked again: %v", err)
		}
		select {
		case <-ctx.Done():
			return interruptedOr(ctx, err)
		case <-time.After(oncePause):
		}
	}
}

// notBegun is the end of a run that could not record its attempt: the command was not started.
func (c *occurrence) notBegun(l *lease.Lease, err error) {
	var interrupted *supervise.InterruptedError
	switch {
	case errors.As(err, &interrupted):
		c.end("interrupted", 128+int(interrupted.Signal), "%v; nothing was run", interrupted)
	case context.Cause(l.Context()) != nil:
		c.lost(l, nil, "before the command was started")
	case errors.Is(err, operation.ErrMismatch):
		c.end("decided_before", exitFailed, "%v; nothing was run; use another key", err)
	default:
		c.end("no_store", exitNoStore, "%s could not be recorded: %v; nothing was run", c.name(), err)
	}
}

// keep renews the claim until ctx ends. That a claim cannot be kept stops nothing: the lease is the right to run, and
// what becomes of the command is recorded all the same.
func (c *occurrence) keep(ctx context.Context) {
	every := c.claimTTL() / 3
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for told := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		call, cancel := context.WithTimeout(ctx, every)
		lost, err := c.ops.Renew(call, operation.RenewRequest{Refs: []operation.Ref{c.ref}, TTL: c.claimTTL()})
		cancel()
		if err == nil && len(lost) > 0 && !told {
			told = true
			c.say("the attempt of %s was ended by somebody else; what becomes of the command will be recorded all the same", c.name())
		}
	}
}

// kept keeps the claim while it is in use.
func (c *occurrence) kept(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() { defer close(over); c.keep(ctx) }()
	return func() { cancel(); <-over }
}

// answer is what this run knows of its attempt. Only a command that has exited by itself has told what it did.
func (c *occurrence) answer(err error) operation.Answer {
	code := c.status.CommandExitCode
	switch {
	case errors.Is(err, supervise.ErrNotStarted), errors.Is(err, supervise.ErrLate):
		return operation.Answer{Known: operation.NotSent, Reason: operation.Cut(c.status.Text)}
	case err != nil || code == nil || c.status.Outcome != "exited":
		return operation.Answer{Known: operation.NoAnswer, Reason: operation.Cut(c.status.Text)}
	case *code != 0:
		return operation.Answer{Known: operation.Refused, Reason: operation.Cut(c.status.Text), Final: c.o.once.final}
	}
	result, err := json.Marshal(onceResult{ExitCode: *code})
	if err != nil {
		return operation.Answer{Known: operation.NoAnswer, Reason: operation.Cut(err.Error())}
	}
	return operation.Answer{Known: operation.Effective, Result: result}
}

// finish records what became of the command, for as long as that is worth waiting for. err is why it was not started.
func (c *occurrence) finish(ctx context.Context, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), onceRecord)
	defer cancel()
	c.record(ctx, c.answer(err))
}

// record records an answer, and says what follows.
func (c *occurrence) record(ctx context.Context, answer operation.Answer) {
	failed := c.asking(ctx, func(ctx context.Context) error { return c.complete(ctx, answer) })
	if failed != nil {
		c.status.Occurrence.State = ""
		text := fmt.Sprintf("%s; but that was not recorded: %v; %s counts as uncertain: %s", c.status.Text, failed, c.name(), c.remedy())
		if c.status.Outcome == "exited" {
			c.end("unrecorded", exitUncertain, "%s", text)
		}
		c.status.Text = text
		return
	}
	switch c.status.Occurrence.State {
	case operation.Succeeded.String():
		c.status.Text += "; " + c.name() + " is done"
	case operation.Pending.String():
		c.status.Text += "; " + c.name() + " may be run again"
	case operation.Uncertain.String():
		c.status.Text += "; " + c.name() + " is uncertain: " + c.remedy()
	case "":
	default:
		c.status.Text += "; " + c.name() + " is " + c.status.Occurrence.State
	}
}

// complete records the answer: as the attempt's own, or, where somebody has ended the attempt meanwhile, as evidence.
func (c *occurrence) complete(ctx context.Context, answer operation.Answer) error {
	errs, err := c.ops.Complete(ctx, []operation.Completion{{Ref: c.ref, Answer: answer}})
	if err != nil {
		return err
	}
	var rec operation.Record
	switch err = errs[0]; {
	case err == nil:
		c.status.Occurrence.State = ""
		if rec, err = c.ops.Get(ctx, c.ref.ID); err == nil {
			c.status.Occurrence.State = rec.State.String()
		}
		return nil // it is recorded, also where the state that follows cannot be read
	case !errors.Is(err, operation.ErrStale):
		return err
	}
	rec, err = c.ops.Respond(ctx, operation.Response{ID: c.ref.ID, Number: c.ref.Number, Answer: answer})
	if err != nil && !errors.Is(err, operation.ErrStale) && !errors.Is(err, operation.ErrDecided) {
		return err
	}
	if err != nil {
		c.say("%s had been settled otherwise meanwhile, and is %v; what became of the command is recorded beside that", c.name(), rec.State)
	}
	c.status.Occurrence.State = rec.State.String()
	return nil
}
