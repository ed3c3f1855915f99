package budget

import (
	"context"
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

// begin reads the clocks. The one that does not stop comes after Go's, and in measure also before it, so that what passes between two readings is never taken for sleep.
func (a *asleep) begin(begun time.Time) {
	since := time.Since(begun)
	a.wallBegun, a.bootBegun = a.wall(begun), a.boot()-since
}

// look is how long the machine has slept by now, which is so long after the beginning by Go's clock.
func (a *asleep) look(begun, now time.Time) time.Duration {
	apart := a.wall(now) - a.wallBegun - int64(now.Sub(begun))
	if d := time.Duration(apart - a.apart.Load()); d < leastSleep && d > -leastSleep {
		return time.Duration(a.slept.Load())
	}
	slept, sure := a.measure(begun)
	for {
		known := a.slept.Load()
		if slept < known+int64(leastSleep) || a.slept.CompareAndSwap(known, slept) {
			break
		}
	}
	if sure { // else the next look measures again
		a.apart.Store(apart) // after slept: who finds this finds that
	}
	return time.Duration(a.slept.Load())
}

// measures are how often a look tries to read two clocks without being held up between them.
const measures = 3

// measure is how long the machine has slept at least since the beginning, and whether it is no longer than that: the process may be held up between the readings of two clocks, above all after a resume.
func (a *asleep) measure(begun time.Time) (slept int64, sure bool) {
	for range measures {
		before := time.Since(begun)
		boot := a.boot() - a.bootBegun
		after := time.Since(begun)
		slept = max(slept, int64(boot-after))
		if after-before < leastSleep {
			return slept, true
		}
	}
	return slept, false
}

// spent is how long the budget has run, what the machine slept included. Where that was all of the budget, it ends the budget's context, whose own timer has slept too.
func (b *Budget) spent() time.Duration {
	now := time.Now()
	slept := b.asleep.look(b.begun, now)
	spent := now.Sub(b.begun) + slept
	if slept > 0 && spent >= b.total {
		b.over(&sleptError{name: b.name, total: b.total, slept: slept})
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
	total := b.RemainingTotal()
	if total == 0 || b.asleep.slept.Load() == 0 { // ctx has ended, unless it was cut off from its budget, whose rest is not its own then
		return left
	}
	deadline, _ := ctx.Deadline()
	if latest, _ := b.ctx.Deadline(); deadline.After(latest) { // it was cut off
		return left
	}
	return min(left, total)
}
