package budget

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/clock"
)

// asleep knows how long the machine has slept since a budget began. Go's clock stands still then, and the clock that does not costs a system call, which is more than all else that an attempt costs. So the wall
// clock, which comes with every reading of Go's, is asked first: where it has moved otherwise than Go's the machine has slept, or somebody has set it, and only then the other clock says which. A step alone changes nothing.
type asleep struct {
	boot func() time.Duration    // also counts what the machine slept
	wall func(t time.Time) int64 // in nanoseconds

	bootBegun time.Duration
	wallBegun int64
	apart     atomic.Int64 // how far the wall clock had moved away from Go's when it was last looked at, in nanoseconds
	slept     atomic.Int64 // nanoseconds
}

// leastSleep is what is taken for the reading of two clocks after one another. No machine sleeps for less.
const leastSleep = 10 * time.Millisecond

func newAsleep() asleep { return asleep{boot: clock.Boot(), wall: time.Time.UnixNano} }

// begin reads the clocks. The one that does not stop comes after begun, and in look before Go's, so that what passes between two readings is never taken for sleep.
func (a *asleep) begin(begun time.Time) {
	a.wallBegun, a.bootBegun = a.wall(begun), a.boot()
}

// look is how long the machine has slept by now, which is so long after the beginning by Go's clock.
func (a *asleep) look(begun, now time.Time) time.Duration {
	apart := a.wall(now) - a.wallBegun - int64(now.Sub(begun))
	if d := time.Duration(apart - a.apart.Load()); d < leastSleep && d > -leastSleep {
		return time.Duration(a.slept.Load())
	}
	a.apart.Store(apart)
	boot := a.boot() - a.bootBegun
	slept := int64(boot - time.Since(begun))
	for {
		known := a.slept.Load()
		if slept < known+int64(leastSleep) {
			return time.Duration(known)
		}
		if a.slept.CompareAndSwap(known, slept) {
			return time.Duration(slept)
		}
	}
}

// spent is how long the budget has run, what the machine slept included. Where that was all of the budget, it ends the budget's context, whose own timer has slept too.
func (b *Budget) spent() time.Duration {
	now := time.Now()
	slept := b.asleep.look(b.begun, now)
	spent := now.Sub(b.begun) + slept
	if slept > 0 && spent >= b.total {
		b.over(&NoTimeError{What: fmt.Sprintf("%s, after the machine slept for %v,", b.name, short(slept)), Needs: 1, Left: b.total - spent, Reserve: b.reserve})
	}
	return spent
}

// instant is when that time of the budget is by Go's clock, which contexts go by.
func (b *Budget) instant(at time.Duration) time.Time {
	return b.begun.Add(at - time.Duration(b.asleep.slept.Load()))
}

// timeOf is which time of the budget an instant of Go's clock is.
func (b *Budget) timeOf(instant time.Time) time.Duration {
	return instant.Sub(b.begun) + time.Duration(b.asleep.slept.Load())
}

// rest is what is left of ctx, whose own deadline leaves so much: not more than of the budget that it carries, where the machine has slept since that began. It comes before a look at whether ctx has ended, because
// that is where it ends by it.
func rest(ctx context.Context, left time.Duration) time.Duration {
	b := From(ctx)
	if b == nil {
		return left
	}
	if total := b.RemainingTotal(); total > 0 && b.asleep.slept.Load() > 0 { // else ctx has ended, unless it was cut off from its budget, whose rest is not its own then
		left = min(left, total)
	}
	return left
}
