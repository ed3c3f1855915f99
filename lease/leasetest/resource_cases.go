package leasetest

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// ResourceCases is what a resource refuses that is fenced by the store's claims.
func ResourceCases() []Case[ResourceHarness] {
	return []Case[ResourceHarness]{
		named("strict-accepts-the-holder-alone", strictHolder),
		named("strict-refuses-after-expiry-before-any-successor", strictExpired),
		named("strict-refuses-the-claim-of-a-session-before-one-with-its-id", strictBefore),
		named("strict-refuses-what-was-never-granted", strictNotGranted),
		named("strict-keeps-successors-out-until-it-ends", strictKeepsOut),
		named("the-mark-accepts-a-former-owner-until-a-successor-enters", markUntilEntered),
		named("L76-equal-and-higher-tokens-pass-and-lower-ones-do-not", markEqualHigher),
		named("fault-13-a-refusal-names-the-newer-token-and-changes-nothing", refusalNames),
		named("fault-14-one-token-writes-many-times", oneTokenManyWrites),
		named("fault-15-no-acknowledged-update-is-lost", noLostUpdate),
		named("fault-18-the-mark-survives-a-recreated-resource", markSurvivesRecreate),
		named("fault-17-tokens-out-of-range-are-refused", tokensOutOfRange),
		named("L20-the-late-write-of-a-healed-holder-is-refused", lateWrite),
		named("the-claim-of-another-authority-is-foreign", foreignAuthority),
		named("another-name-for-the-same-resource-is-foreign", foreignName),
		named("a-call-that-waited-reads-the-clock-afterwards", clockAfterWait),
	}
}

// DurableResourceCases is what a fenced resource keeps across the end of every process.
func DurableResourceCases() []Case[DurableResourceHarness] {
	return []Case[DurableResourceHarness]{
		named("the-mark-survives-a-restart", markSurvivesRestart),
	}
}

// RepairCases is what becomes of a name whose token from the future was seen, and of revoked claims.
func RepairCases() []Case[RepairHarness] {
	return []Case[RepairHarness]{
		named("fault-16-a-token-from-the-future-stops-its-name-until-the-epoch-is-raised", aheadStops),
		named("strict-refuses-a-revoked-claim", strictRevoked),
	}
}

// gap is how long a case gives calls that were started within a transaction to go wrong before the
// transaction ends. Where they wait as they should, it passes unused; shorter misses faults, never reports one.
const gap = 250 * time.Millisecond

// meanwhile starts fn when the transaction is between its check and its write, and lets that end when fn
// has ended or the gap has passed. wait waits for fn's end.
func meanwhile(fn func()) (between, wait func()) {
	done := make(chan struct{})
	started := false
	between = func() {
		started = true
		go func() {
			defer close(done)
			fn()
		}()
		select {
		case <-done:
		case <-time.After(gap):
		}
	}
	return between, func() {
		if started {
			<-done
		}
	}
}

func appending(value string) func([]string) []string {
	return func(content []string) []string { return append(slices.Clone(content), value) }
}

// content must be exactly want.
func (s *stage) content(r Resource, want ...string) {
	if s.failed() {
		return
	}
	got, err := r.Read(s.ctx)
	if err != nil {
		s.fail("reading the resource: %w", err)
		return
	}
	s.want(slices.Equal(got, want), "the resource holds %q; want %q", got, want)
}

// wrote demands that a write was accepted.
func (s *stage) wrote(err error, what string) {
	if err != nil {
		s.fail("%s: %w; want it accepted", what, err)
	}
}

// stale demands a refusal of the claim, with the reason.
func (s *stage) stale(err error, claim fence.Claim, what string, why ...fence.Reason) {
	var refused *fence.RefusedError
	if !errors.As(err, &refused) {
		s.fail("%s: %v; want a RefusedError", what, err)
		return
	}
	s.want(refused.Claim == claim, "%s: the refusal is of claim %v; want %v", what, refused.Claim, claim)
	s.want(slices.Contains(why, refused.Why), "%s: refused because %v; want %v", what, refused.Why, why)
}

// supersededBy demands a refusal of the claim that names the newer token.
func (s *stage) supersededBy(newer fence.Token, err error, claim fence.Claim, what string) {
	s.stale(err, claim, what, fence.Superseded)
	var refused *fence.RefusedError
	if errors.As(err, &refused) {
		s.want(refused.Newer == newer, "%s: the refusal names %d as the newer token; want %d", what, refused.Newer, newer)
	}
}

// accesses is each kind of access to the resource, under a claim.
func (s *stage) accesses(r Resource) map[string]func(c fence.Claim, value string) error {
	return map[string]func(c fence.Claim, value string) error{
		"strict": func(c fence.Claim, v string) error { return r.Strict(s.ctx, c, v, nil) },
		"marked": func(c fence.Claim, v string) error { return r.Marked(s.ctx, c, appending(v), nil) },
		"blind":  func(c fence.Claim, v string) error { return r.Blind(s.ctx, c, v) },
	}
}

func strictHolder(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	a, b := s.open("a", long), s.open("b", long)
	s.content(r)
	one := a.acquire("n")
	s.wrote(r.Strict(s.ctx, one.claim(), "a-1", nil), "the holder's write")
	one.release(false)
	s.stale(r.Strict(s.ctx, one.claim(), "late", nil), one.claim(), "a write after the release", fence.Released)
	two := b.acquire("n")
	s.supersededBy(two.token("n"), r.Strict(s.ctx, one.claim(), "late", nil), one.claim(), "a write after a successor's grant")
	s.wrote(r.Strict(s.ctx, two.claim(), "b-1", nil), "the successor's write")
	b.close()
	s.stale(r.Strict(s.ctx, two.claim(), "late", nil), two.claim(), "a write after the session was closed", fence.Released)
	s.content(r, "a-1", "b-1")
}

func strictExpired(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	a, b := s.open("a", ttl), s.open("b", long)
	h, bounded := a.acquire("n"), b.acquireFor(ttl, "n2")
	s.advance(within)
	s.wrote(r.Strict(s.ctx, h.claim(), "in time", nil), "a write before the expiry")
	s.advance(past - within)
	s.stale(r.Strict(s.ctx, h.claim(), "late", nil), h.claim(), "a write after the expiry", fence.Expired)
	s.stale(r.Strict(s.ctx, bounded.claim(), "late", nil), bounded.claim(), "a write after MaxHold", fence.Expired)
	s.content(r, "in time")
}

func strictBefore(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	a := s.open("a", ttl)
	h := a.acquire("n")
	s.wrote(r.Strict(s.ctx, h.claim(), "a-1", nil), "the holder's write")
	if again := a.comesAgain(); again {
		a.renew()
	}
	for range 2 {
		s.stale(r.Strict(s.ctx, h.claim(), "late", nil), h.claim(), "a write under a claim of before", fence.Expired, fence.NotGranted)
	}
	s.content(r, "a-1")
}

func strictNotGranted(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	a := s.open("a", ttl)
	low, h, other := a.acquire("m"), a.acquire("n"), a.acquire("o")
	forged := h.claim()
	forged.Acquisition = s.ids.New()
	s.stale(r.Strict(s.ctx, forged, "forged", nil), forged, "a claim of another acquisition under the holder's token", fence.NotGranted)
	forged = h.claim()
	forged.Token = other.token("o")
	s.stale(r.Strict(s.ctx, forged, "forged", nil), forged, "a claim under another name's newer token", fence.NotGranted)
	forged = low.claim()
	forged.Name = "never"
	s.stale(r.Strict(s.ctx, forged, "forged", nil), forged, "a claim to a name that was never granted", fence.NotGranted)
	s.content(r)
	s.wrote(r.Strict(s.ctx, h.claim(), "real", nil), "the holder's write")
	s.content(r, "real")
}

func strictKeepsOut(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	a, b := s.open("a", ttl), s.open("b", long)
	h := a.acquire("n")
	req := b.request("n")
	if s.failed() {
		return
	}
	var succeeded error
	between, wait := meanwhile(func() {
		if succeeded = s.h.Advance(s.ctx, past); succeeded != nil {
			return
		}
		grants, err := s.store.Acquire(s.ctx, req)
		if err == nil {
			err = r.Strict(s.ctx, grants[0].Claim, "successor", nil)
		}
		succeeded = err
	})
	err := r.Strict(s.ctx, h.claim(), "holder", between)
	wait()
	s.wrote(err, "a write whose lease was valid when its transaction verified it")
	s.wrote(succeeded, "the successor, once that transaction had ended")
	s.content(r, "holder", "successor")
	s.stale(r.Strict(s.ctx, h.claim(), "late", nil), h.claim(), "the former holder's next write", fence.Superseded)
	s.content(r, "holder", "successor")
}

func markUntilEntered(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	a, b := s.open("a", ttl), s.open("b", long)
	h := a.acquire("n")
	s.wrote(r.Marked(s.ctx, h.claim(), appending("a-1"), nil), "the holder's update")
	s.advance(past)
	s.wrote(r.Marked(s.ctx, h.claim(), appending("a-2"), nil), "the former holder's update before any successor: a mark notices no expiry")
	next := b.acquire("n")
	s.wrote(r.Blind(s.ctx, h.claim(), "a-3"), "the former holder's write before its successor entered: a mark knows nothing of it")
	s.stale(r.Strict(s.ctx, h.claim(), "late", nil), h.claim(), "the same write under the strict rule", fence.Superseded)
	s.wrote(r.Marked(s.ctx, next.claim(), func(c []string) []string { return c }, nil), "the successor's entering, which changes no content")
	for kind, access := range s.accesses(r) {
		s.stale(access(h.claim(), "late"), h.claim(), "the former holder's access ("+kind+") after the successor entered", fence.Superseded)
	}
	s.content(r, "a-1", "a-2", "a-3")
}

func markEqualHigher(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	var holds []*hold
	for range 3 {
		h := s.open("p", long).acquire("n")
		h.release(false)
		holds = append(holds, h)
	}
	low, mid, high := holds[0].claim(), holds[1].claim(), holds[2].claim()
	s.wrote(r.Blind(s.ctx, mid, "mid-1"), "a first write")
	s.wrote(r.Blind(s.ctx, mid, "mid-2"), "a write under an equal token")
	s.wrote(r.Marked(s.ctx, mid, appending("mid-3"), nil), "an update under an equal token")
	s.stale(r.Blind(s.ctx, low, "late"), low, "a write under a lower token", fence.Superseded)
	s.stale(r.Marked(s.ctx, low, appending("late"), nil), low, "an update under a lower token", fence.Superseded)
	s.wrote(r.Blind(s.ctx, high, "high-1"), "a write under a higher token")
	s.stale(r.Blind(s.ctx, mid, "late"), mid, "a write under the token that is now lower", fence.Superseded)
	s.wrote(r.Marked(s.ctx, high, appending("high-2"), nil), "an update under an equal token")
	s.content(r, "mid-1", "mid-2", "mid-3", "high-1", "high-2")
}

func refusalNames(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	a, b := s.open("a", ttl), s.open("b", long)
	old := a.acquire("n")
	s.wrote(r.Blind(s.ctx, old.claim(), "a-1"), "the holder's write")
	s.advance(past)
	next := b.acquire("n")
	s.wrote(r.Marked(s.ctx, next.claim(), appending("b-1"), nil), "the successor's update")
	called := false
	edit := func(c []string) []string { called = true; return c }
	for kind, access := range s.accesses(r) {
		s.supersededBy(next.token("n"), access(old.claim(), "late"), old.claim(), "a late write ("+kind+")")
	}
	s.stale(r.Marked(s.ctx, old.claim(), edit, nil), old.claim(), "a late update", fence.Superseded)
	s.want(!called, "a refused update was computed")
	s.content(r, "a-1", "b-1")
	s.wrote(r.Blind(s.ctx, next.claim(), "b-2"), "the successor's write after refusals")
	s.content(r, "a-1", "b-1", "b-2")
}

func oneTokenManyWrites(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	c := s.open("a", long).acquire("n").claim()
	once := func(content []string) []string { // an operation that looks for itself is applied once
		if slices.Contains(content, "operation 7") {
			return content
		}
		return append(slices.Clone(content), "operation 7")
	}
	s.wrote(r.Blind(s.ctx, c, "1"), "a write")
	s.wrote(r.Strict(s.ctx, c, "2", nil), "another one under the same token")
	for range 3 {
		s.wrote(r.Marked(s.ctx, c, once, nil), "an operation, repeated")
	}
	s.wrote(r.Blind(s.ctx, c, "3"), "a write")
	s.content(r, "1", "2", "operation 7", "3")
}

func noLostUpdate(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	a, b := s.open("a", ttl), s.open("b", long)
	old := a.acquire("n")
	s.advance(past)
	next := b.acquire("n")
	for _, kind := range []string{"blind", "marked"} {
		if s.failed() {
			return
		}
		// The former holder's write comes between the successor's read and its write.
		var late error
		access := s.accesses(r)[kind]
		between, wait := meanwhile(func() { late = access(old.claim(), "late "+kind) })
		err := r.Marked(s.ctx, next.claim(), appending("b "+kind), between)
		wait()
		s.wrote(err, "the successor's update")
		content, readErr := r.Read(s.ctx)
		s.join(readErr)
		s.want(slices.Contains(content, "b "+kind), "the successor's acknowledged update is lost: %q", content)
		s.want(late != nil || slices.Contains(content, "late "+kind), "an acknowledged update is lost: %q was accepted and is not in %q", "late "+kind, content)
		s.stale(late, old.claim(), "a late write ("+kind+") after the successor entered", fence.Superseded)
	}
	s.content(r, "b blind", "b marked")
}

func markSurvivesRecreate(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	a, b := s.open("a", ttl), s.open("b", long)
	old := a.acquire("n")
	s.advance(past)
	next := b.acquire("n")
	s.wrote(r.Marked(s.ctx, next.claim(), appending("b-1"), nil), "the successor's update")
	s.join(r.Recreate(s.ctx))
	s.content(r)
	s.stale(r.Blind(s.ctx, old.claim(), "late"), old.claim(), "a late write to a recreated resource", fence.Superseded)
	s.stale(r.Marked(s.ctx, old.claim(), appending("late"), nil), old.claim(), "a late update of a recreated resource", fence.Superseded)
	s.wrote(r.Blind(s.ctx, next.claim(), "b-2"), "the successor's write to a recreated resource")
	s.content(r, "b-2")
}

func markSurvivesRestart(s *stage, rh DurableResourceHarness) {
	a, b := s.open("a", ttl), s.open("b", long)
	old := a.acquire("n")
	s.advance(past)
	next := b.acquire("n")
	s.wrote(rh.Resource().Marked(s.ctx, next.claim(), func(c []string) []string { return c }, nil), "the successor's entering")
	s.restart(rh)
	r := rh.Resource()
	s.stale(r.Blind(s.ctx, old.claim(), "late"), old.claim(), "a late write after a restart", fence.Superseded)
	s.stale(r.Marked(s.ctx, old.claim(), appending("late"), nil), old.claim(), "a late update after a restart", fence.Superseded)
	s.wrote(r.Marked(s.ctx, next.claim(), appending("b-1"), nil), "the successor's update after a restart")
	s.restart(rh)
	s.content(rh.Resource(), "b-1")
}

func tokensOutOfRange(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	a := s.open("a", long)
	h := a.acquire("n")
	for _, token := range []fence.Token{0, -1, math.MinInt64} {
		bad := h.claim()
		bad.Token = token
		for kind, access := range s.accesses(r) {
			err := access(bad, "bad")
			s.want(errors.Is(err, fence.ErrInvalid), "token %d (%s): %v; want an error that matches %q", token, kind, err, fence.ErrInvalid)
		}
	}
	for _, bad := range []fence.Claim{{}, {Name: "n", Token: 1}} {
		for kind, access := range s.accesses(r) {
			err := access(bad, "bad")
			s.want(errors.Is(err, fence.ErrInvalid), "claim %+v (%s): %v; want an error that matches %q", bad, kind, err, fence.ErrInvalid)
		}
	}
	ahead := h.claim()
	ahead.Token = math.MaxInt64
	var from *fence.AheadError
	err := r.Strict(s.ctx, ahead, "ahead", nil)
	s.want(errors.As(err, &from) && from.Claim == ahead && from.Issued >= h.token("n"), "the highest token there is: %v; want an AheadError", err)
	s.content(r)
	s.wrote(r.Strict(s.ctx, h.claim(), "a-1", nil), "the holder's write after bad claims")
	s.content(r, "a-1")
}

func lateWrite(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	a, b := s.open("a", ttl), s.open("b", long)
	old := a.acquire("n")
	s.wrote(r.Strict(s.ctx, old.claim(), "a-1", nil), "the holder's write")
	s.advance(past) // cut off
	next := b.acquire("n")
	s.wrote(r.Strict(s.ctx, next.claim(), "b-1", nil), "the successor's write")
	a.renewFails(lease.EndExpired) // healed
	s.stale(r.Strict(s.ctx, old.claim(), "a-2", nil), old.claim(), "the healed holder's write", fence.Superseded)
	again := s.open("a", ttl)
	again.refused(next, "n", "n")
	s.content(r, "a-1", "b-1")
}

func foreignAuthority(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	h := s.open("a", long).acquire("n")
	s.wrote(r.Marked(s.ctx, h.claim(), appending("a-1"), nil), "the holder's update")
	other := h.claim()
	other.Authority = s.ids.New()
	other.Token++
	for kind, access := range s.accesses(r) {
		err := access(other, "foreign")
		var foreign *fence.ForeignError
		s.want(errors.As(err, &foreign) && foreign.Claim == other && foreign.Authority == h.claim().Authority,
			"a claim of another authority (%s): %v; want a ForeignError that names both", kind, err)
	}
	s.content(r, "a-1")
}

func foreignName(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	a := s.open("a", long)
	h, other := a.acquire("n"), a.acquire("m")
	s.wrote(r.Marked(s.ctx, h.claim(), appending("a-1"), nil), "the holder's update")
	for _, err := range []error{r.Marked(s.ctx, other.claim(), appending("m-1"), nil), r.Blind(s.ctx, other.claim(), "m-1")} {
		var foreign *fence.ForeignError
		s.want(errors.As(err, &foreign) && foreign.Name == "n" && foreign.Claim == other.claim(), "a claim to another name: %v; want a ForeignError that names both", err)
	}
	s.content(r, "a-1")
}

func clockAfterWait(s *stage, rh ResourceHarness) {
	r := rh.Resource()
	a, b := s.open("a", ttl), s.open("b", long)
	h := a.acquire("n")
	guard := b.acquire("guard")
	if s.failed() {
		return
	}
	var renewErr error
	renewed := make(chan time.Time, 1)
	between, wait := meanwhile(func() {
		_, renewErr = s.store.Renew(s.ctx, lease.RenewRequest{Session: a.id})
		renewed <- time.Now()
	})
	var ending time.Time
	err := r.Strict(s.ctx, guard.claim(), "guarded", func() { between(); ending = time.Now() })
	wait()
	s.wrote(err, "a guarded write")
	if renewErr != nil {
		s.fail("a renewal that waited for a guarded write: %w", renewErr)
	}
	if s.failed() || (<-renewed).Before(ending) {
		return // the store let the renewal pass beside the guarded write
	}
	info := s.get("n")
	least := ttl - time.Since(ending) - rounded
	s.want(info.Remaining >= least, "a renewal waited for a guarded write and left %v of %v, counted from before the wait; want %v or more", info.Remaining, ttl, least)
	h.stays("after a renewal that waited")
}

func aheadStops(s *stage, rh RepairHarness) {
	r := rh.Resource()
	a := s.open("a", long)
	h := a.acquire("n")
	h.release(false)
	ahead := h.claim()
	ahead.Acquisition, ahead.Token = s.ids.New(), h.token("n")+1<<40
	err := r.Strict(s.ctx, ahead, "ahead", nil)
	s.want(errors.Is(err, fence.ErrAhead), "a token from the future: %v; want an error that matches %q", err, fence.ErrAhead)
	for range 2 {
		_, err = a.ask(a.request("m", "n"))
		s.kind(err, fence.ErrAhead, "acquiring a name whose token from the future was seen")
	}
	s.free("m")
	a.acquire("m").release(false)
	if s.failed() {
		return
	}
	floor, err := rh.Operator().RaiseEpoch(s.ctx, ahead.Token)
	s.want(err == nil && floor >= ahead.Token, "raising the epoch above %d: %d, %v", ahead.Token, floor, err)
	next := a.acquire("n")
	s.want(next.token("n") > ahead.Token, "token %d after one of %d was seen", next.token("n"), ahead.Token)
	s.stale(r.Strict(s.ctx, ahead, "ahead", nil), ahead, "the claim from the future after the epoch was raised", fence.Superseded)
	s.content(r)
}

func strictRevoked(s *stage, rh RepairHarness) {
	r := rh.Resource()
	h := s.open("a", long).acquire("n")
	s.revoke(rh.Operator(), h, "n", false)
	s.stale(r.Strict(s.ctx, h.claim(), "late", nil), h.claim(), "a write under a revoked claim", fence.Revoked)
	s.content(r)
}
