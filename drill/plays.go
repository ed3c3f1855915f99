package drill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/lease"
)

// In every play A is the holder that is late, B its successor; both write what they have read and an element of their own.

// steps calls a worker with one command after the other, up to the first error.
func steps(ctx context.Context, p *process, commands ...command) error {
	for _, c := range commands {
		if _, err := p.call(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// open starts a worker with a session.
func (r *round) open(ctx context.Context, name, owner string) (*process, error) {
	p, err := r.spawn(name)
	if err != nil {
		return nil, err
	}
	return p, steps(ctx, p, r.session(owner))
}

// session is the order to start a session of the scenario's.
func (r *round) session(owner string) command {
	return command{Op: opSession, Owner: owner, TTL: millis(r.c.sc.ttl), Margin: millis(r.c.sc.margin)}
}

func owner(name string) string { return "drill-" + name }

// holder starts A, which acquires, writes a-1 and reads what it will write late.
func (r *round) holder(ctx context.Context, owner string, maxHold time.Duration) (*process, error) {
	a, err := r.open(ctx, "A", owner)
	if err != nil {
		return nil, err
	}
	return a, steps(ctx, a, command{Op: opAcquire, Name: r.name, Try: true, MaxHold: millis(maxHold)},
		command{Op: opWrite, Element: "a-1"}, command{Op: opRead})
}

// acquireWait bounds how long a successor waits.
const acquireWait = 30 * time.Second

// succeed waits until p is granted, then reads and writes.
func (r *round) succeed(ctx context.Context, p *process, element string) error {
	return steps(ctx, p, command{Op: opAcquire, Name: r.name, Wait: millis(acquireWait)},
		command{Op: opRead}, command{Op: opWrite, Element: element})
}

// leave gives up what a successor holds.
func leave(ctx context.Context, p *process) error {
	return steps(ctx, p, command{Op: opRelease}, command{Op: opClose})
}

// late has p send its late write.
func (r *round) late(ctx context.Context, p *process) error {
	r.sent = true
	return steps(ctx, p, command{Op: opWrite, Element: "a-late", Late: true})
}

// stopped has p make its last check and stop, and returns where the answer to its late write will be.
func (r *round) stopped(ctx context.Context, p *process, c command) (<-chan reply, error) {
	c.Op = opPause
	answer, err := p.order(c)
	if err != nil {
		return nil, err
	}
	if err := p.awaitStopped(ctx, answer); err != nil {
		return nil, err
	}
	return answer, r.c.probe(ctx)
}

// continued lets p go on and waits for the answer to its late write.
func (r *round) continued(ctx context.Context, p *process, answer <-chan reply) error {
	r.sent = true
	if err := resume(p.cmd.Process.Pid); err != nil {
		return p.gone("continuing", err)
	}
	_, err := p.await(ctx, opPause, answer)
	return err
}

func playPause(ctx context.Context, r *round) error {
	a, err := r.holder(ctx, owner("a"), 0)
	if err != nil {
		return err
	}
	b, err := r.open(ctx, "B", owner("b"))
	if err != nil {
		return err
	}
	answer, err := r.stopped(ctx, a, command{Element: "a-late", API: r.c.o.ThroughAPI})
	if err != nil {
		return err
	}
	if err := r.succeed(ctx, b, "b-1"); err != nil {
		return err
	}
	return errors.Join(r.continued(ctx, a, answer), r.saw(ctx, a, model.HeldTill), leave(ctx, b))
}

func playShortTTL(ctx context.Context, r *round) error {
	var procs []*process
	for _, name := range []string{"A", "B", "C"} {
		p, err := r.open(ctx, name, owner(name))
		if err != nil {
			return err
		}
		procs = append(procs, p)
	}
	a, b, c := procs[0], procs[1], procs[2]
	var answers []<-chan reply
	for _, p := range []*process{a, b} {
		if err := steps(ctx, p, command{Op: opAcquire, Name: r.name, Wait: millis(acquireWait)}, command{Op: opRead}); err != nil {
			return err
		}
		answer, err := r.stopped(ctx, p, command{Element: p.name + "-late"})
		if err != nil {
			return err
		}
		answers = append(answers, answer)
	}
	if err := errors.Join(r.succeed(ctx, c, "C-1"), leave(ctx, c)); err != nil {
		return err
	}
	for i, p := range []*process{a, b} {
		if err := errors.Join(r.continued(ctx, p, answers[i]), r.saw(ctx, p, model.HeldTill)); err != nil {
			return err
		}
		// It has learnt that it was late, and does the work again, under a session and a lease of its own.
		if err := steps(ctx, p, r.session(owner(p.name))); err != nil {
			return err
		}
		if err := errors.Join(r.succeed(ctx, p, p.name+"-again"), leave(ctx, p)); err != nil {
			return err
		}
	}
	return nil
}

func playLostRenewal(ctx context.Context, r *round) error {
	a, err := r.holder(ctx, owner("a"), 0)
	if err != nil {
		return err
	}
	// Two replies are lost, and the lease survives: the next write is accepted.
	if err := steps(ctx, a, command{Op: opFault, Call: callRenew, Fault: faultLoseReply, Times: 2}, command{Op: opRenewed},
		command{Op: opWrite, Element: "a-2"}, command{Op: opRead}); err != nil {
		return err
	}
	f := faultLoseReply
	if r.turn%2 == 0 {
		f = faultSilence
	}
	if err := steps(ctx, a, command{Op: opFault, Call: callRenew, Fault: f}); err != nil {
		return err
	}
	return r.cutOff(ctx, a)
}

func playSilentRenewal(ctx context.Context, r *round) error {
	a, err := r.holder(ctx, owner("a"), 0)
	if err != nil {
		return err
	}
	f := faultHang
	if r.turn%2 == 0 {
		f = faultPanic
	}
	if err := steps(ctx, a, command{Op: opFault, Call: callRenew, Fault: f}); err != nil {
		return err
	}
	return r.cutOff(ctx, a)
}

// cutOff plays on with a holder whose renewals come to nothing any more.
func (r *round) cutOff(ctx context.Context, a *process) error {
	b, err := r.open(ctx, "B", owner("b"))
	if err != nil {
		return err
	}
	if err := steps(ctx, a, command{Op: opCheck}); err != nil { // the last time that it asks
		return err
	}
	noticed, err := a.order(command{Op: opEnded})
	if err != nil {
		return err
	}
	if err := r.succeed(ctx, b, "b-1"); err != nil {
		return err
	}
	if _, err := a.await(ctx, opEnded, noticed); err != nil {
		return err
	}
	return errors.Join(r.late(ctx, a), r.saw(ctx, a, model.HeldTill), leave(ctx, b))
}

func playMissingRelease(ctx context.Context, r *round) error {
	goes := r.turn%2 == 1
	maxHold := r.c.sc.ttl
	if goes {
		maxHold = 0
	}
	a, err := r.holder(ctx, owner("a"), maxHold)
	if err != nil {
		return err
	}
	sender := a
	if goes { // its process ends like that, and another one has its claim and what it had read
		if sender, err = r.heir(ctx, a); err != nil {
			return err
		}
		a.kill()
	}
	b, err := r.open(ctx, "B", owner("b"))
	if err != nil {
		return err
	}
	if err := r.succeed(ctx, b, "b-1"); err != nil {
		return err
	}
	return errors.Join(r.late(ctx, sender), r.saw(ctx, a, model.HeldTill), leave(ctx, b))
}

// heir starts a process to which a hands its claim and what it has read, as to a child that outlives it. It writes in a's name.
func (r *round) heir(ctx context.Context, a *process) (*process, error) {
	read, err := a.call(ctx, command{Op: opRead})
	if err != nil {
		return nil, err
	}
	heir, err := r.spawn("A")
	if err != nil {
		return nil, err
	}
	return heir, steps(ctx, heir, command{Op: opAdopt, Claim: a.claimText(), Content: read.Content})
}

func playDelayedRelease(ctx context.Context, r *round) error {
	a, err := r.holder(ctx, owner("a"), 0)
	if err != nil {
		return err
	}
	if err := r.releaseUnheard(ctx, a); err != nil {
		return err
	}
	return r.overtaken(ctx, a, owner("b"), model.HeldTill)
}

// releaseUnheard cuts a off, and has it release: the release is held back on the way, renewals get nowhere.
func (r *round) releaseUnheard(ctx context.Context, a *process) error {
	if err := steps(ctx, a, command{Op: opCheck}, command{Op: opFault, Call: callRenew, Fault: faultLoseRequest},
		command{Op: opFault, Call: callRelease, Fault: faultHold}); err != nil {
		return err
	}
	_, err := a.call(ctx, command{Op: opRelease})
	switch {
	case errors.Is(err, lease.ErrUnknown):
		return nil
	case err == nil:
		return fmt.Errorf("%w: a release that nobody answered was told as done", ErrProcess)
	}
	return err
}

func playDuplicateRelease(ctx context.Context, r *round) error {
	a, err := r.holder(ctx, owner("a"), 0)
	if err != nil {
		return err
	}
	if err := steps(ctx, a, command{Op: opCheck}, command{Op: opFault, Call: callRelease, Fault: faultDuplicate}, command{Op: opRelease}); err != nil {
		return err
	}
	return r.overtaken(ctx, a, owner("b"), "")
}

func playReusedOwner(ctx context.Context, r *round) error {
	const label = "host-7"
	a, err := r.holder(ctx, label, 0)
	if err != nil {
		return err
	}
	if err := r.releaseUnheard(ctx, a); err != nil {
		return err
	}
	return r.overtaken(ctx, a, label, model.HeldTill)
}

// overtaken lets a successor write, delivers the release that a sent, and shows that it freed nothing: a third owner
// is refused, and the successor's next write is accepted. Then a writes late. was is the event that a's holding ended with.
func (r *round) overtaken(ctx context.Context, a *process, ownerB string, was model.What) error {
	b, err := r.open(ctx, "B", ownerB)
	if err != nil {
		return err
	}
	c, err := r.open(ctx, "C", owner("c"))
	if err != nil {
		return err
	}
	if err := r.succeed(ctx, b, "b-1"); err != nil {
		return err
	}
	if err := steps(ctx, a, command{Op: opDeliver}); err != nil {
		return err
	}
	if err := r.intrude(ctx, c); err != nil {
		return err
	}
	if err := steps(ctx, b, command{Op: opRead}, command{Op: opWrite, Element: "b-2"}); err != nil {
		return err
	}
	err = r.late(ctx, a)
	if was != "" {
		err = errors.Join(err, r.saw(ctx, a, was))
	}
	return errors.Join(err, leave(ctx, b), steps(ctx, c, command{Op: opClose}))
}

// intrude has c try for the lease. If it is granted it writes: the resource's log then shows what is wrong.
func (r *round) intrude(ctx context.Context, c *process) error {
	_, err := c.call(ctx, command{Op: opAcquire, Name: r.name, Try: true})
	if err == nil {
		return steps(ctx, c, command{Op: opRead}, command{Op: opWrite, Element: c.name + "-intruded"}, command{Op: opRelease})
	}
	if errors.Is(err, lease.ErrHeld) {
		return nil
	}
	return err
}

func playCancel(ctx context.Context, r *round) error {
	a, err := r.open(ctx, "A", owner("a"))
	if err != nil {
		return err
	}
	b, err := r.open(ctx, "B", owner("b"))
	if err != nil {
		return err
	}
	if err := steps(ctx, a, command{Op: opDo, Name: r.name}, command{Op: opWrite, Element: "a-1"}, command{Op: opCancel}); err != nil {
		return err
	}
	if err := r.intrude(ctx, b); err != nil {
		return err
	}
	waiting, err := b.order(command{Op: opAcquire, Name: r.name, Wait: millis(acquireWait)})
	if err != nil {
		return err
	}
	// The work has been cancelled and still writes, rightfully; then it returns.
	if err := steps(ctx, a, command{Op: opRead}, command{Op: opWrite, Element: "a-2"}, command{Op: opRead}, command{Op: opFinish}); err != nil {
		return err
	}
	if _, err := b.await(ctx, opAcquire, waiting); err != nil {
		return err
	}
	if err := steps(ctx, b, command{Op: opRead}, command{Op: opWrite, Element: "b-1"}); err != nil {
		return err
	}
	return errors.Join(r.late(ctx, a), leave(ctx, b))
}

func playKill(ctx context.Context, r *round) error {
	a, err := r.holder(ctx, owner("a"), 0)
	if err != nil {
		return err
	}
	heir, err := r.heir(ctx, a)
	if err != nil {
		return err
	}
	b, err := r.open(ctx, "B", owner("b"))
	if err != nil {
		return err
	}
	waiting, err := b.order(command{Op: opAcquire, Name: r.name, Wait: millis(acquireWait)})
	if err != nil {
		return err
	}
	// At least one renewal is acknowledged; then it is killed at any moment of the time between two of them.
	if err := steps(ctx, a, command{Op: opRenewed}); err != nil {
		return err
	}
	if !sleep(ctx, rand.N(r.c.sc.ttl/3)) {
		return context.Cause(ctx)
	}
	a.kill()
	if err := r.saw(ctx, a, model.HeldTill); err != nil {
		return err
	}
	if _, err := b.await(ctx, opAcquire, waiting); err != nil {
		return err
	}
	if err := steps(ctx, b, command{Op: opRead}, command{Op: opWrite, Element: "b-1"}); err != nil {
		return err
	}
	return errors.Join(r.late(ctx, heir), leave(ctx, b))
}
