package leasetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/lease"
)

func repeatCases() []Case[Harness] {
	return []Case[Harness]{
		plain("L8-a-cancelled-acquire-is-settled-by-its-release", cancelledAcquire),
		plain("fault-7-an-acquire-whose-reply-was-lost-is-no-stranger-to-its-retry", lostReply),
		plain("fault-8-an-acquire-applied-after-its-timeout-is-visible-as-its-own", abandonedAcquire),
		plain("L2-a-failed-release-is-repeatable", failedRelease),
		plain("L10-a-handle-is-never-stuck", handleNeverStuck),
	}
}

// cancelAfter gives a context that ends after d, so that some calls are cut off at each of their steps.
func (s *stage) cancelAfter(d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		ctx, cancel := context.WithCancel(s.ctx)
		cancel()
		return ctx, cancel
	}
	return context.WithTimeout(s.ctx, d)
}

// cuts are the times after which a call is cancelled: from before it began to well within its commit.
func cuts() []time.Duration {
	var all []time.Duration
	for d := time.Duration(0); d < 2*time.Millisecond; d += 40 * time.Microsecond {
		all = append(all, d)
	}
	return all
}

// cutOff demands the kinds of error that an interrupted call may have.
func (s *stage) cutOff(err error, doing string) {
	s.want(err == nil || errors.Is(err, lease.ErrUnknown) || errors.Is(err, lease.ErrUnavailable),
		"%s, cut off: %v; want success, ErrUnknown or ErrUnavailable", doing, err)
}

func cancelledAcquire(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	for _, cut := range cuts() {
		if s.failed() {
			return
		}
		req := a.request("n", "m")
		ctx, cancel := s.cancelAfter(cut)
		_, err := s.store.Acquire(ctx, req)
		cancel()
		s.cutOff(err, "acquire")
		if errors.Is(err, lease.ErrUnavailable) {
			info := s.get("n")
			s.want(!info.Held || info.Acquisition != req.ID, "an acquire that was certainly not applied holds %q", "n")
		}
		if s.failed() {
			return
		}
		r, relErr := s.store.Release(s.ctx, lease.ReleaseRequest{Session: a.id, ID: req.ID, Names: req.Names})
		if relErr != nil {
			s.fail("releasing an acquire that was cut off (%v): %w; want success", err, relErr)
		}
		s.want(err != nil || !r.Already, "the release of a grant that was told says that it was over already")
		_, err = a.ask(req)
		s.ended(err, "acquisition", req.ID, lease.EndReleased)
		b.acquire("m", "n").release(false)
	}
}

func lostReply(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	req := a.request("n", "m")
	if _, err := a.ask(req); err != nil { // granted, and nobody hears of it
		s.fail("acquiring free names: %w", err)
	}
	told := s.get("n")
	if s.failed() {
		return
	}
	_, err := b.ask(b.request("m"))
	s.kind(err, lease.ErrHeld, "another acquiring a name whose grant was not heard of")
	h := a.acquired(req)
	s.want(h.token("n") == told.Token, "the retry has token %d of %q; the lost grant had %d", h.token("n"), "n", told.Token)
	b.refused(h, "n", "n")
	h.release(false)
	h.over(lease.EndReleased)
	b.acquire("n", "m")
}

func abandonedAcquire(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	for _, cut := range cuts() {
		if s.failed() {
			return
		}
		name := "n " + cut.String()
		req := a.request(name)
		ctx, cancel := s.cancelAfter(cut)
		_, err := s.store.Acquire(ctx, req)
		cancel()
		s.cutOff(err, "acquire")
		if info := s.get(name); info.Held {
			s.want(info.Acquisition == req.ID && info.Session == a.id, "%q is held by a stranger: %+v", name, info)
		}
		h := a.acquired(req) // repeating settles it: the same grant, or the first
		b.refused(h, name, name)
		h.stays("after its acquire was cut off and repeated")
	}
	a.renew()
}

func failedRelease(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	for _, cut := range cuts() {
		h := a.acquire("n")
		if s.failed() {
			return
		}
		ctx, cancel := s.cancelAfter(cut)
		_, err := s.store.Release(ctx, h.releaseRequest())
		cancel()
		s.cutOff(err, "release")
		if errors.Is(err, lease.ErrUnavailable) {
			h.stays("after a release that was certainly not applied")
			h.release(false)
		}
		if _, err := s.store.Release(s.ctx, h.releaseRequest()); err != nil {
			s.fail("releasing again: %w; want success", err)
		}
		h.over(lease.EndReleased)
		next := b.acquire("n")
		h.release(true)
		next.stays("after the predecessor's release came once more")
		next.release(false)
	}
}

func handleNeverStuck(s *stage) {
	a := s.open("a", long)
	for _, cut := range cuts() {
		h := a.acquire("n")
		if s.failed() {
			return
		}
		ctx, cancel := s.cancelAfter(cut)
		_, err := s.store.Renew(ctx, lease.RenewRequest{Session: a.id, Release: []lease.Abandoned{{ID: h.req.ID, Names: h.req.Names}}})
		cancel()
		s.cutOff(err, "renewal")
		if _, err := s.store.Release(s.ctx, h.releaseRequest()); err != nil {
			s.fail("releasing after a renewal that was cut off: %w; want success", err)
		}
		h.over(lease.EndReleased)
		s.free("n", lease.EndReleased)
	}
}

func raceCases() []Case[Harness] {
	return []Case[Harness]{
		plain("one-grant-under-contention", oneGrant),
		plain("all-or-none-under-contention", allOrNoneRace),
		plain("two-sessions-take-over-from-each-other", mutualTakeOver),
		plain("L38-no-renewal-revives-what-was-released", noRevival),
		plain("duplicate-releases-never-end-a-successor", duplicateReleases),
		plain("a-release-and-its-acquire-race-to-one-outcome", releaseRacesAcquire),
		plain("no-grant-before-the-last-renewal-ran-out", noEarlyGrant),
	}
}

// together runs the functions at once and waits for all. They must not use steps of the stage.
func together(fns ...func() error) error {
	errs := make([]error, len(fns))
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i, fn := range fns {
		wg.Go(func() {
			<-start
			errs[i] = fn()
		})
	}
	close(start)
	wg.Wait()
	return errors.Join(errs...)
}

// join records what went wrong at once.
func (s *stage) join(err error) {
	if err != nil {
		s.fail("%w", err)
	}
}

func oneGrant(s *stage) {
	const parties, rounds = 12, 8
	var all []*party
	for range parties {
		all = append(all, s.open("p", long))
	}
	for round := range rounds {
		if s.failed() {
			return
		}
		name := fmt.Sprintf("n%d", round%2)
		reqs := make([]lease.AcquireRequest, parties)
		granted := make([]bool, parties)
		var fns []func() error
		for i, p := range all {
			reqs[i] = p.request(name)
			fns = append(fns, func() error {
				_, err := s.store.Acquire(s.ctx, reqs[i])
				granted[i] = err == nil
				if err != nil && !errors.Is(err, lease.ErrHeld) {
					return fmt.Errorf("one of %d acquiring at once: %w; want a grant or a HeldError", parties, err)
				}
				return nil
			})
		}
		s.join(together(fns...))
		winner := slices.Index(granted, true)
		s.want(winner >= 0, "nobody of %d was granted a free name", parties)
		if s.failed() {
			return
		}
		s.want(!slices.Contains(granted[winner+1:], true), "more than one of %d was granted the name", parties)
		h := all[winner].acquired(reqs[winner])
		h.stays("after the others were refused")
		h.release(false)
	}
}

func allOrNoneRace(s *stage) {
	const rounds = 10
	sets := [][]string{{"n1", "n2", "n3"}, {"n3", "n2"}, {"n2", "n1"}, {"n3", "n1"}, {"n3", "n2", "n1", "n0"}}
	var all []*party
	for range sets {
		all = append(all, s.open("p", long))
	}
	for range rounds {
		reqs := make([]lease.AcquireRequest, len(sets))
		granted := make([]bool, len(sets))
		var fns []func() error
		for i, p := range all {
			reqs[i] = p.request(sets[i]...)
			fns = append(fns, func() error {
				_, err := s.store.Acquire(s.ctx, reqs[i])
				granted[i] = err == nil
				if err != nil && !errors.Is(err, lease.ErrHeld) {
					return fmt.Errorf("acquiring %q at once with others: %w; want a grant or a HeldError", sets[i], err)
				}
				return nil
			})
		}
		s.join(together(fns...))
		s.want(slices.Contains(granted, true), "of requests for free names, none was granted")
		for i, p := range all {
			if granted[i] {
				h := p.acquired(reqs[i])
				h.stays("beside refused requests for some of its names")
				h.release(false)
			}
		}
		for _, name := range []string{"n0", "n1", "n2", "n3"} {
			info := s.get(name)
			s.want(!info.Held, "%q is held after everybody released: %+v", name, info)
		}
	}
}

func mutualTakeOver(s *stage) {
	const rounds = 10
	a, b := s.open("a", long), s.open("b", long)
	for range rounds {
		ha, hb := a.acquireFor(ttl, "n1"), b.acquireFor(ttl, "n2")
		s.advance(past)
		if s.failed() {
			return
		}
		ra, rb := a.request("n2"), b.request("n1")
		take := func(req lease.AcquireRequest) func() error {
			return func() error {
				if _, err := s.store.Acquire(s.ctx, req); err != nil {
					return fmt.Errorf("taking over %q while the other takes over ours: %w", req.Names, err)
				}
				return nil
			}
		}
		s.join(together(take(ra), take(rb)))
		ha.over(lease.EndSuperseded)
		hb.over(lease.EndSuperseded)
		a.acquired(ra).release(false)
		b.acquired(rb).release(false)
	}
}

func noRevival(s *stage) {
	const rounds = 40
	a, b := s.open("a", long), s.open("b", long)
	for round := range rounds {
		h := a.acquire("n")
		if s.failed() {
			return
		}
		renew := func() error {
			_, err := s.store.Renew(s.ctx, lease.RenewRequest{Session: a.id})
			return err
		}
		calls := []func() error{renew, renew, renew}
		calls[round%3] = func() error { // a scheduler has its habits: the release takes every place in turn
			_, err := s.store.Release(s.ctx, h.releaseRequest())
			return err
		}
		s.join(together(calls...))
		a.renew()
		s.free("n", lease.EndReleased)
		h.over(lease.EndReleased)
		next := b.acquire("n")
		a.renew()
		next.stays("after renewals of the former holder")
		next.release(false)
	}
}

func duplicateReleases(s *stage) {
	const rounds = 60
	a, b := s.open("a", long), s.open("b", long)
	for range rounds {
		h := a.acquire("n")
		if s.failed() {
			return
		}
		req := b.request("n")
		release := func() error {
			_, err := s.store.Release(s.ctx, h.releaseRequest())
			return err
		}
		s.join(together(release, release, release, func() error { return s.poll(req) }))
		next := b.acquired(req)
		next.stays("after releases of its predecessor that came several times at once")
		next.release(false)
	}
}

// maxPolls bounds a wait by polling to about ten seconds.
const maxPolls = 10_000

// poll asks until req is granted.
func (s *stage) poll(req lease.AcquireRequest) error {
	var err error
	for range maxPolls {
		if _, err = s.store.Acquire(s.ctx, req); !errors.Is(err, lease.ErrHeld) {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
	return fmt.Errorf("not granted after %d attempts: %w", maxPolls, err)
}

func releaseRacesAcquire(s *stage) {
	const rounds = 60
	a, b := s.open("a", long), s.open("b", long)
	for range rounds {
		req := a.request("n")
		if s.failed() {
			return
		}
		s.join(together(
			func() error {
				if _, err := s.store.Acquire(s.ctx, req); err != nil && !errors.Is(err, lease.ErrEnded) {
					return fmt.Errorf("an acquire that its release may overtake: %w; want a grant or ErrEnded", err)
				}
				return nil
			},
			func() error {
				_, err := s.store.Release(s.ctx, lease.ReleaseRequest{Session: a.id, ID: req.ID, Names: req.Names})
				return err
			},
		))
		if s.failed() {
			return
		}
		_, err := a.ask(req)
		s.ended(err, "acquisition", req.ID, lease.EndReleased)
		b.acquire("n").release(false)
	}
}

func noEarlyGrant(s *stage) {
	const short, renewals = 500 * time.Millisecond, 4
	b := s.open("b", long)
	a := s.open("a", short)
	a.acquire("n")
	if s.failed() {
		return
	}
	var lastSent time.Time // of the last renewal that was acknowledged
	req := b.request("n")
	granted := make(chan error, 1)
	go func() { granted <- s.poll(req) }()
	for range renewals {
		sent := time.Now()
		_, err := s.store.Renew(s.ctx, lease.RenewRequest{Session: a.id})
		if errors.Is(err, lease.ErrEnded) {
			break // the machine was slow: the lease ran out, and what matters is since when
		}
		if err != nil {
			s.fail("renewing: %w", err)
			break
		}
		lastSent = sent
		select {
		case <-time.After(short / 4):
		case <-s.ctx.Done():
		}
	}
	err := <-granted
	now := time.Now()
	if err != nil {
		s.fail("the successor: %w; want a grant once the lease ran out", err)
		return
	}
	if !lastSent.IsZero() {
		s.want(now.Sub(lastSent) >= short, "a successor was granted %v after a renewal of %v was sent that was acknowledged", now.Sub(lastSent), short)
	}
	a.renewFails(lease.EndExpired)
}
