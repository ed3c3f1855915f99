//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/internal/supervise"
	"github.com/tenure-go/tenure/lease"
)

const (
	holdTick   = time.Second // so late at most --min-hold ends after a suspend, during which timers stand still
	giveUpWait = time.Second // for the last words to an authority that does not answer any more
)

// runner is one `tenure run`.
type runner struct {
	*app
	o       runOptions
	now     clock.Source
	signals *supervise.Signals
	status  status

	storeURL string // may hold a password, unlike the status
	waitFrom time.Duration
	heldFrom time.Duration
	renewals uint64 // acknowledged when the command had ended
}

// runUnderLease does what `tenure run` is for. It prints the last line itself.
func (a *app) runUnderLease(ctx context.Context, o runOptions) error {
	r := &runner{app: a, o: o, now: clock.Boot(), signals: supervise.Catch()}
	defer r.signals.Stop()
	r.waitFrom = r.now()
	if r.o.owner == "" {
		r.o.owner = ownerLabel()
	}
	r.status = status{Outcome: "waiting", Names: o.names, Tokens: []fence.Token{}, Owner: r.o.owner}
	if err := r.status.write(o.statusFile); err != nil {
		return usagef("--json-status: %v", err)
	}
	if err := r.o.find(); err != nil {
		r.notRunnable(err)
	} else {
		r.inStore(ctx)
	}
	return r.finish()
}

// ownerLabel says who is running this, to people.
func ownerLabel() string {
	user := os.Getenv("USER")
	if user == "" {
		user = fmt.Sprintf("uid %d", os.Getuid())
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return strings.ToValidUTF8(fmt.Sprintf("%s@%s pid %d", user, host, os.Getpid()), "?")
}

// end records the outcome. A loss that comes to light afterwards replaces it.
func (r *runner) end(outcome string, code int, format string, args ...any) {
	r.status.Outcome, r.status.ExitCode, r.status.Text = outcome, &code, fmt.Sprintf(format, args...)
}

// finish writes the status file and, last, the line that says how it went.
func (r *runner) finish() error {
	if err := r.status.write(r.o.statusFile); err != nil {
		r.say("%v; the status file is that of an earlier state", err)
	}
	code := *r.status.ExitCode
	r.say("exit %d: %s", code, r.status.Text)
	return &codedError{code}
}

// notRunnable is the end for a command that a shell could not run either.
func (r *runner) notRunnable(err error) {
	var failed *supervise.NotStartedError
	missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound)
	if errors.As(err, &failed) {
		missing = !failed.Found
	}
	if missing {
		r.end("not_started", exitNotFound, "command not found: %v", err)
		return
	}
	r.end("not_started", exitCannotRun, "the command cannot be run: %v", err)
}

// inStore opens the store and does the rest in it.
func (r *runner) inStore(ctx context.Context) {
	openCtx, done := r.interruptible(ctx)
	s, l, err := r.open(openCtx, openOptions{wait: min(r.o.wait, openWait)})
	interrupted := interruptedOr(openCtx, nil)
	done()
	r.status.Store, r.storeURL = l.shown, l.url
	var usage *usageError
	switch {
	case errors.As(err, &usage):
		r.end("no_store", exitUsage, "%v", err)
		return
	case err != nil && interrupted != nil:
		r.notAcquired(interrupted)
		return
	case err != nil:
		r.end("no_store", exitNoStore, "the store was not reached: %v; nothing was run", err)
		return
	}
	defer r.close(ctx, s)
	once, err := r.newOccurrence(s)
	if err != nil {
		r.end("no_store", exitUsage, "%v", err)
		return
	}
	if once != nil && once.over(ctx) {
		return
	}
	session, held, err := r.acquire(ctx, s)
	r.status.WaitedMS = (r.now() - r.waitFrom).Milliseconds()
	if err != nil {
		r.notAcquired(err)
		return
	}
	r.hold(ctx, session, held, once)
}

// hold runs the command under the lease and gives the lease up. once is nil without --once.
func (r *runner) hold(ctx context.Context, session *lease.Session, l *lease.Lease, once *occurrence) {
	r.heldFrom = r.now()
	r.status.Acquisition = l.ID()
	claims, err := l.Claims()
	if err == nil {
		for _, claim := range claims {
			r.status.Tokens = append(r.status.Tokens, claim.Token)
		}
		r.status.Outcome = "running"
		if err := r.status.write(r.o.statusFile); err != nil {
			r.say("%v", err)
		}
		err = context.Cause(r.signals.Context())
	}
	var interrupted *supervise.InterruptedError
	switch {
	case errors.As(err, &interrupted):
		r.end("interrupted", 128+int(interrupted.Signal), "%v; nothing was run", interrupted)
	case err != nil:
		r.lost(l, nil, "before the command was started")
	default:
		if once == nil || once.begin(ctx, l) {
			r.work(ctx, session, l, once, claims)
		}
	}
	r.giveUp(ctx, session, l)
}

// work runs the command, and records what became of it where that is asked for.
func (r *runner) work(ctx context.Context, session *lease.Session, l *lease.Lease, once *occurrence, claims []fence.Claim) {
	env := childEnv(os.Environ(), claims, r.passedStore())
	if once == nil {
		_ = r.command(l, env) // it has said how it ended
		r.renewals = session.Stats().Renewals
	} else {
		stop := once.kept(ctx)
		err := r.command(l, append(env, "TENURE_OPERATION="+once.ref.ID, "TENURE_ATTEMPT="+once.ref.Number.String()))
		r.renewals = session.Stats().Renewals
		stop()
		once.finish(ctx, err)
	}
	r.holdOn(l)
}

// command runs the command and says how it ended. It returns why it was not started.
func (r *runner) command(l *lease.Lease, env []string) error {
	result, err := supervise.Run(supervise.Config{
		Guard:   []string{ownPath(), guardWord},
		Path:    r.o.path,
		Args:    r.o.argv,
		Env:     env,
		Files:   [3]*os.File{asFile(r.stdin), asFile(r.stdout), asFile(r.stderr)},
		Grace:   r.o.grace,
		Reserve: r.o.reserve,
		Left:    l.Left,
		Ended:   l.Context().Done(),
		Signals: r.signals,
		Say:     r.sayIncident,
	})
	switch {
	case errors.Is(err, supervise.ErrLate):
		r.lost(l, nil, "before the command was started")
	case err != nil:
		r.notRunnable(err)
	default:
		r.ended(l, result)
	}
	return err
}

func (r *runner) passedStore() string {
	if r.o.passStore {
		return r.storeURL
	}
	return ""
}

func (r *runner) sayIncident(i supervise.Incident) {
	switch i {
	case supervise.Stopping:
		r.say("the lease is lost or cannot be kept: SIGTERM to the command's group, SIGKILL after %v at most", r.o.grace.Round(time.Millisecond))
	case supervise.Killing:
		r.say("SIGKILL to the command's group")
	case supervise.Denied:
		r.say("this user may not signal the command: it may outlive the lease; run tenure as the user that the command runs as")
	case supervise.GuardDied:
		r.say("the guard process died: SIGKILL to the command's group")
	}
}

// ended is the end of a command that ran.
func (r *runner) ended(l *lease.Lease, result supervise.Result) {
	r.status.CommandPID, r.status.CommandExitCode, r.status.Killed = result.PID, &result.Code, result.Killed
	how := fmt.Sprintf("the command exited with %d", result.Code)
	if result.Signal != 0 {
		how = fmt.Sprintf("the command was ended by signal %d (%v)", int(result.Signal), result.Signal)
	}
	if result.Guard {
		how = "the guard process was killed, and with it the command"
	}
	if result.Left {
		how += "; what it had left running was stopped"
	}
	if result.Remains {
		how += "; a process of its group could still be seen after SIGKILL"
	}
	cause := context.Cause(l.Context())
	switch {
	case result.Stopped || cause != nil:
		r.lost(l, cause, "while the command was running; "+how)
	case result.Signal != 0 || result.Guard:
		r.end("signaled", result.Code, "%s", how)
	default:
		r.end("exited", result.Code, "%s", how)
	}
}

// lost is the end of a lease that did not last as long as the command.
func (r *runner) lost(l *lease.Lease, cause error, when string) {
	if cause == nil {
		cause = context.Cause(l.Context())
	}
	r.status.Lost = r.howLost(cause)
	text := r.status.Lost.How
	if r.status.Lost.Reason != "" {
		text += " (" + r.status.Lost.Reason + ")"
	}
	r.end("lost", exitLost, "the lease was lost %s: %s", when, text)
}

// howLost puts the cause of a loss in words. Without a cause the command was stopped because the deadline was near.
func (r *runner) howLost(cause error) *lostStatus {
	var lost *lease.LostError
	var uncertain *lease.UncertainError
	var ended *lease.EndedError
	switch {
	case errors.As(cause, &lost):
		return &lostStatus{How: lost.How.String(), Reason: lost.Reason}
	case errors.As(cause, &ended) && ended.How != 0:
		return &lostStatus{How: ended.How.String(), Reason: ended.Reason}
	case errors.As(cause, &uncertain) && uncertain.MaxHold,
		r.o.maxHold > 0 && r.now()-r.heldFrom >= r.o.maxHold-r.o.margin-r.o.grace-r.o.reserve-r.o.ttl/20:
		return &lostStatus{How: "max_hold", Reason: fmt.Sprintf("--max-hold %v", r.o.maxHold)}
	case errors.As(cause, &uncertain) && uncertain.Err != nil:
		return &lostStatus{How: "uncertain", Reason: uncertain.Err.Error()}
	}
	return &lostStatus{How: "uncertain", Reason: "no renewal was answered in time"}
}

// holdOn keeps the lease for --min-hold, unless a signal or the lease's own end ends that.
func (r *runner) holdOn(l *lease.Lease) {
	for {
		rest := r.heldFrom + r.o.minHold - r.now()
		if rest <= 0 || r.status.CommandExitCode == nil || r.status.Lost != nil {
			return
		}
		select {
		case <-r.signals.Context().Done():
			r.say("%v: the lease is released %v before the end of --min-hold", context.Cause(r.signals.Context()), rest.Round(time.Millisecond))
			return
		case <-l.Context().Done():
			r.say("the lease was lost %v before the end of --min-hold: %v", rest.Round(time.Millisecond), context.Cause(l.Context()))
			return
		case <-time.After(min(rest, holdTick)):
		}
	}
}

// giveUp releases the lease and ends the session.
func (r *runner) giveUp(ctx context.Context, session *lease.Session, l *lease.Lease) {
	answers := true // the authority does, as far as is known
	if r.status.Lost == nil {
		renewed := session.Stats().Renewals > r.renewals
		before := context.Cause(l.Context())
		err := l.Release(ctx)
		r.status.Released = err == nil
		ended := errors.Is(err, lease.ErrEnded)
		if ended && before == nil && !renewed && r.status.CommandExitCode != nil {
			// It was over at the authority before anybody here knew, and maybe before the command had ended.
			r.lost(l, err, "before it was released, maybe while the command was running; "+r.status.Text)
		}
		if err != nil && !ended {
			answers = false
			r.say("the release was not confirmed: %v; the names come free by themselves in at most %v", err, r.o.ttl)
		}
	} else {
		answers = r.status.Lost.How != "uncertain"
	}
	r.status.HeldMS = (r.now() - r.heldFrom).Milliseconds()
	r.closeSession(ctx, session, answers)
}

// closeSession ends the session, and waits for an authority that does not answer no longer than giveUpWait: the session
// ends by itself.
func (r *runner) closeSession(ctx context.Context, session *lease.Session, answers bool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = session.Close(ctx) // what it could say has been said by the lease
	}()
	if answers {
		<-closed
		return
	}
	select {
	case <-closed:
	case <-time.After(giveUpWait):
	}
}
