package worker

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

const leastPause = time.Millisecond // no loop is hot

// exponential is base after the first, twice that after the second and so on, never above most.
func exponential(n int, base, most time.Duration) time.Duration {
	shift := max(n-1, 0)
	if shift < 62 && base <= math.MaxInt64>>shift {
		return min(most, base<<shift)
	}
	return most // it would overflow
}

// backoff is a random part of that: full jitter.
func backoff(n int, base, most time.Duration) time.Duration {
	return max(leastPause, rand.N(max(exponential(n, base, most), 1)))
}

// around is d, a tenth more or less.
func around(d time.Duration) time.Duration {
	return max(leastPause, d-d/10+rand.N(max(d/5, 1)))
}

// sleep waits for d and reports whether it did, rather than ctx ending first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
