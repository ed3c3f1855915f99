package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/tenure-go/tenure/drill/model"
)

// httpVariant is one way to stand before the service.
type httpVariant struct {
	Variant
	check   guard // of the guard; guardNone: there is none, and the owners reach the service itself
	noTurns bool
	late    bool // the request that the service is stopped in lands late; otherwise one that is sent afterwards is
}

func httpVariants(unfenced bool) []httpVariant {
	if unfenced {
		return []httpVariant{
			{Variant: Variant{Name: "no-guard", Since: sinceEnd, Shows: "the service itself: the late request replaces what the successor wrote"}, check: guardNone, late: true},
			{Variant: Variant{Name: "no-turns", Since: sinceEnd, Shows: "a guard that checks each request, and lets a newer owner's in while the older one's is at work"}, check: guardMark, noTurns: true, late: true},
		}
	}
	return []httpVariant{
		{Variant: Variant{Name: "strict", Since: sinceEnd, Shows: "the guard asks the store; a newer owner waits until the service has answered the older one"}, check: guardStrict},
		{Variant: Variant{Name: "high-water", Since: sinceEnd, Shows: "the guard keeps marks; a newer owner waits until the service has answered the older one"}, check: guardMark},
	}
}

// scenario is the variant as a drill of its own.
func (v httpVariant) scenario(of Scenario) Scenario {
	return Scenario{Name: of.Name + " " + v.Name, ttl: of.ttl, margin: of.margin, atOnce: of.atOnce, demand: of.demand, unguarded: guardNone, play: v.play}
}

// fenceHTTP plays the variants at the same time, each in a run of its own.
func fenceHTTP(ctx context.Context, o Options, sc Scenario) (r Report, err error) {
	variants := httpVariants(o.Unfenced)
	reports, failures := make([]Report, len(variants)), make([]error, len(variants))
	var all sync.WaitGroup
	for i, v := range variants {
		all.Go(func() { reports[i], failures[i] = conduct(ctx, o, v.scenario(sc)) })
	}
	all.Wait()
	r.OK, r.InvalidRounds = true, []int{}
	for i, v := range variants {
		r.add(v.Variant, reports[i], o.Rounds)
	}
	return r, errors.Join(failures...)
}

// middle is what A's request writes that the service is stopped in.
const middle = "a-in-the-middle"

// door is a service of two processes on one port, and what stands before it.
type door struct {
	service []*process
	stopped *process // of them
}

const (
	doorWait    = 300 * time.Millisecond // how long the guard lets a request wait for its turn
	doorTimeout = 2 * time.Second        // how long it lets a client wait for the service: it is told before its lease is over
)

// open starts the service and the guard of a round.
func (v httpVariant) open(ctx context.Context, r *round) (*door, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("%w: the service: %w", ErrProcess, err)
	}
	defer func() { _ = listener.Close() }() // the service has it by then
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("%w: the service listens on %T", ErrProcess, listener)
	}
	file, err := tcp.File()
	if err != nil {
		return nil, fmt.Errorf("%w: the service: %w", ErrProcess, err)
	}
	defer func() { _ = file.Close() }()
	d := new(door)
	for _, name := range []string{"service 1", "service 2"} {
		p, _, err := r.part(ctx, setup{Role: roleService, Name: name}, file)
		if err != nil {
			return nil, err
		}
		d.service = append(d.service, p)
	}
	r.service = "http://" + listener.Addr().String()
	if v.check == guardNone {
		return d, nil
	}
	_, r.service, err = r.part(ctx, setup{Role: roleGuard, Name: "guard", Service: r.service, Guard: v.check, NoTurns: v.noTurns})
	return d, err
}

// part starts a process that serves, and returns where.
func (r *round) part(ctx context.Context, s setup, files ...*os.File) (*process, string, error) {
	s.place, s.Run, s.Round = r.c.o.place(), r.c.run, r.n
	p, err := launch(r.c.o.Self, s, files...)
	if err != nil {
		return nil, "", err
	}
	r.procs = append(r.procs, p)
	at, err := p.call(ctx, command{Op: opServe})
	return p, at.Told, err
}

// awaitStopped waits until the kernel says that a process of the service has stopped. It returns where the answer to p's request will be:
// a guard may stop waiting for the service, and say so, before that.
func (d *door) awaitStopped(ctx context.Context, p *process, answer <-chan reply) (<-chan reply, error) {
	for {
		for _, s := range d.service {
			stopped, err := isStopped(s.cmd.Process.Pid)
			if err != nil {
				return nil, s.gone("stopping", err)
			}
			if stopped {
				d.stopped = s
				return answer, nil
			}
		}
		select {
		case early := <-answer:
			if early.Err != "" || early.Told != toldUnknown {
				return nil, &workerError{worker: p.name, op: string(opWrite), text: "the service did not stop: " + early.Err, code: early.Code}
			}
			kept := make(chan reply, 1)
			kept <- early
			answer = kept
		case <-p.ended:
			return nil, p.gone("writing", io.EOF)
		default:
		}
		if !sleep(ctx, stopPoll) {
			return nil, fmt.Errorf("the service: waiting until it is stopped: %w", context.Cause(ctx))
		}
	}
}

// play stops the service in the middle of A's request. With turns B waits until the service has done it, and A's next request is
// late; without, B is let in, and what is left of A's request lands after it.
func (v httpVariant) play(ctx context.Context, r *round) error {
	d, err := v.open(ctx, r)
	if err != nil {
		return err
	}
	a, err := r.holder(ctx, owner("a"), 0)
	if err != nil {
		return err
	}
	b, err := r.open(ctx, "B", owner("b"))
	if err != nil {
		return err
	}
	// From here on A does not reach the authority any more, only the service.
	if err := steps(ctx, a, command{Op: opFault, Call: callRenew, Fault: faultLoseRequest}, command{Op: opCheck}); err != nil {
		return err
	}
	answer, err := a.order(command{Op: opWrite, Element: middle, Late: v.late, Inside: insideService})
	if err != nil {
		return err
	}
	if answer, err = d.awaitStopped(ctx, a, answer); err != nil {
		return err
	}
	if err := r.c.probe(ctx); err != nil {
		return err
	}
	return v.takeOver(ctx, r, d, a, b, answer)
}

// takeOver has B write, and lets the service go on: before, where B has to wait for that, and otherwise after.
func (v httpVariant) takeOver(ctx context.Context, r *round, d *door, a, b *process, answer <-chan reply) error {
	if err := steps(ctx, b, command{Op: opAcquire, Name: r.name, Wait: millis(acquireWait)}); err != nil {
		return err
	}
	read, err := b.call(ctx, command{Op: opRead})
	if err != nil {
		return err
	}
	waits := read.Told == toldBusy
	if !waits {
		if err := steps(ctx, b, command{Op: opWrite, Element: "b-1"}); err != nil {
			return err
		}
	}
	r.sent = r.sent || v.late
	if err := resume(d.stopped.cmd.Process.Pid); err != nil {
		return d.stopped.gone("continuing", err)
	}
	if _, err := a.await(ctx, opWrite, answer); err != nil {
		return err
	}
	if waits {
		if err := steps(ctx, b, command{Op: opRead, Wait: millis(acquireWait)}, command{Op: opWrite, Element: "b-1"}); err != nil {
			return err
		}
	}
	if !v.late {
		if err := r.late(ctx, a); err != nil {
			return err
		}
	}
	return errors.Join(d.settled(ctx, r), r.saw(ctx, a, model.HeldTill), leave(ctx, b))
}

// settled waits until what the stopped process was at work on is in the log: its client may have been told long ago that it took too long.
func (d *door) settled(ctx context.Context, r *round) error {
	for {
		var n int
		err := r.c.res.db.QueryRowContext(ctx, r.c.res.sql(`SELECT count(*) FROM [answer] WHERE round = ?1 AND element = ?2`), r.n, middle).Scan(&n)
		if err != nil && (r.c.res.isBusy == nil || !r.c.res.isBusy(err)) {
			return err
		}
		if err == nil && n > 0 {
			return nil
		}
		select {
		case <-d.stopped.ended:
			return d.stopped.gone("writing", io.EOF)
		default:
		}
		if !sleep(ctx, settlePause) {
			return fmt.Errorf("the service did not finish what it was stopped in: %w", context.Cause(ctx))
		}
	}
}
