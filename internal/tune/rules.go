package tune

import (
	"fmt"
	"time"
)

// The rules of lease.Session, in seconds: when it renews, how long it waits for an answer, when it asks again, and when it stops
// believing. They are written in package lease for the client; TestTheRulesAreThoseOfARealSession holds the two together.
const (
	intervalLeast = 0.3     // of the TTL, between two renewals at least,
	intervalMost  = 1.0 / 3 // and at most
	attemptShare  = 1.0 / 3 // of the TTL, that one renewal is waited for
	retryFirst    = 1.0 / 60
	retryMost     = 1.0 / 6
	retryMostAbs  = 5.0
	leastDelay    = 0.001
	boundLeast    = 1.0 // that a waiter's single question is given, ...
	boundMost     = 5.0
	pollFirst     = 0.020
	pollMost      = 0.250
	pollPast      = 0.001
	pollHerd      = 0.009

	marginShare = 0.1
	marginLeast = 0.5
	clockRates  = 0.01 // by which clocks may differ: guarantees.md
)

// rules are those of one session.
type rules struct {
	ttl, margin float64
	// The two below are what a model can get wrong. window is how long after sending an acknowledged renewal the client
	// believes; attempts is how many renewals fit into it, 0 for as many as do.
	window   float64
	attempts int
}

func rulesFor(ttl, margin float64) rules {
	return rules{ttl: ttl, margin: margin, window: ttl - margin}
}

// bound is how long an attempt is waited for that begins when left is left of the window.
func (r rules) bound(left float64) float64 { return min(r.ttl*attemptShare, left) }

// backoffs is how many steps the back-off has until it no longer grows.
const backoffs = 5

// delay is the wait after failure number step, from 0, that is noticed when left is left; u in [0, 1) is its jitter.
func (r rules) delay(step int, left, u float64) float64 {
	most := min(max(r.ttl*retryMost, leastDelay), retryMostAbs)
	d := min(max(r.ttl*retryFirst, leastDelay), most) * float64(int(1)<<min(step, 30))
	d = min(d, most)
	return min(d*(0.5+0.5*u), max(left/4, r.ttl*retryFirst, leastDelay))
}

// interval is the time from a renewal to the next; u in [0, 1).
func (r rules) interval(u float64) float64 {
	return r.ttl * (intervalLeast + (intervalMost-intervalLeast)*u)
}

// meanInterval is the mean of interval.
func (r rules) meanInterval() float64 { return r.interval(0.5) }

// askBound is how long a waiter's question is waited for.
func (r rules) askBound() float64 { return min(max(r.ttl/3, boundLeast), boundMost) }

// marginFor is the margin for a TTL: what the client takes by itself, or more, so that clocks whose rates differ and
// 999 of 1,000 pauses between a look at the claim and the act do not outlast the authority's expiry.
func (in Inputs) marginFor(ttl time.Duration) time.Duration {
	if in.Margin > 0 {
		return in.Margin
	}
	t := ttl.Seconds()
	m := max(t*marginShare, marginLeast)
	if in.PauseEvery > 0 {
		m = max(m, t*clockRates+in.Pauses.Upper(0.001))
	}
	return seconds(m).Round(10 * time.Millisecond)
}

// fits says why a TTL cannot be used at all, or "".
func (in Inputs) fits(ttl, margin time.Duration) string {
	switch {
	case ttl < in.MinTTL, in.MaxTTL > 0 && ttl > in.MaxTTL:
		return fmt.Sprintf("the store takes TTLs of %v to %v", in.MinTTL, in.MaxTTL)
	case in.Grain > 0 && ttl%in.Grain != 0:
		return fmt.Sprintf("the store takes multiples of %v", in.Grain)
	case ttl-margin < ttl/3:
		return "the margin leaves less than the third of the TTL between two renewals"
	case in.Margin == 0 && margin > ttl/2:
		return "the margin would take more than half of it"
	case margin.Seconds() < ttl.Seconds()*clockRates:
		return "the margin is less than the 1 % by which clocks may differ"
	}
	return ""
}
