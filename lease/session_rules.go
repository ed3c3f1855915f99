package lease

import (
	"math/rand/v2"
	"time"
)

// The times of the client. Operational choices, not theorems; the tests name what each is for.
const (
	defaultTTL    = 15 * time.Second
	defaultMargin = 500 * time.Millisecond // or a tenth of the TTL, if that is more

	pollFirst = 20 * time.Millisecond  // between the first two polls of a waiter
	pollMost  = 250 * time.Millisecond // between any two
	pollPast  = time.Millisecond       // a poll meant for the holder's expiry comes this much later, ...
	pollHerd  = 9 * time.Millisecond   // ... and up to this much more, so that waiters do not come as one

	retryFirst = 10 * time.Millisecond // between an unknown outcome and the question what became of it
	retryMost  = 5 * time.Second

	boundLeast = time.Second // a single call is given at least this long, ...
	boundMost  = 5 * time.Second

	tickLeast = time.Millisecond
)

// safeDeadline is the rule by which a client believes: a reply that says how much is left counts from the
// reading of the clock just before its request was sent, because the authority may have answered at once
// and the reply may have been slow. The margin covers clocks whose rates differ.
func safeDeadline(sent, left, margin time.Duration) time.Duration { return sent + left - margin }

// renewBound is how long one renewal is waited for. Less than what is left, so that a lost reply leaves time
// to ask again before the safe deadline.
func renewBound(ttl, left time.Duration) time.Duration { return min(ttl/3, left) }

// askBound is how long one Open or Acquire is waited for before it is asked again under the same id.
func askBound(ttl time.Duration) time.Duration { return min(max(ttl/3, boundLeast), boundMost) }

// endBound is how long Release and Close may take, whatever their caller's context says.
func endBound(ttl time.Duration) time.Duration { return min(max(ttl, boundLeast), boundMost) }

// renewEvery is the time between two renewals: a third of the TTL or up to a tenth of that less.
func renewEvery(ttl time.Duration) time.Duration {
	third := ttl / 3
	return third - rand.N(third/10+1)
}

// pollDelay is when a refused waiter asks again: after the back-off, and no later than just after the
// holder's expiry, which is the true one: a killed holder's successor does not wait a TTL of its own.
func pollDelay(wait, holderLeft time.Duration) time.Duration {
	return min(wait, max(holderLeft, 0)+pollPast+rand.N(pollHerd))
}

// tick is the longest that a timer may sleep: timers stand still while a machine sleeps and clocks do not.
func tick(margin time.Duration) time.Duration { return max(margin/2, tickLeast) }

// backoff doubles from next to most.
type backoff struct{ next, most time.Duration }

// delay is the next wait: half of it certain, half by chance.
func (b *backoff) delay() time.Duration {
	d := b.next
	b.next = min(2*b.next, b.most)
	return d/2 + rand.N(d/2+1)
}

// renewRetry is the back-off between renewals that failed.
func renewRetry(ttl time.Duration) backoff {
	most := min(max(ttl/6, time.Millisecond), retryMost)
	return backoff{next: min(max(ttl/60, time.Millisecond), most), most: most}
}

// retryDelay shortens the back-off towards the safe deadline, so that an authority that comes back just before
// it is still asked in time; never below a sixtieth of the TTL.
func retryDelay(wait, ttl, left time.Duration) time.Duration {
	return min(wait, max(left/4, ttl/60, time.Millisecond))
}

// settled reports whether err tells for certain what became of a request: nil does, and so does every refusal.
// Anything that the contract does not name is taken as unknown.
func settled(err error) bool {
	switch CodeOf(err) {
	case "", "held", "ended", "mismatch", "invalid", "unavailable", "ahead":
		return true
	}
	return false
}
