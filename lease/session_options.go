package lease

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/tenure-go/tenure/internal/clock"
)

// Options set up a session. The zero value is ready.
type Options struct {
	// Owner is a label for people, at most MaxOwner bytes; may be empty or reused. It is never proof.
	Owner string
	// TTL is how long the authority waits for a renewal. Default (0) 15 s. A third of it passes between renewals.
	TTL time.Duration
	// Margin is how long before the authority's expiry this client stops believing. It covers clocks
	// whose rates differ. Default (0) the larger of TTL/10 and 500 ms. At least TTL/3 must remain of the TTL without it.
	Margin time.Duration
	// Clock reads a clock that also counts while the machine sleeps, from any origin, and never goes back.
	// Default (nil) the kernel's boot clock. It must be safe for concurrent use and return at once.
	Clock func() time.Duration
	// Warn is how long before the safe deadline OnWarn is called. Default (0) TTL/3; less than TTL - Margin.
	Warn time.Duration
	// OnWarn is told that the session is about to lose its leases: no renewal has been answered for a while. It is
	// called exactly once until a renewal succeeds again, also when the watcher slept past the deadline (left is 0
	// then), on a goroutine of its own. A panic in it is logged and goes no further. May be nil.
	OnWarn func(left time.Duration)
	// Logger receives first failures, recoveries and ends. Default (nil) nowhere.
	Logger *slog.Logger
}

// complete fills in the defaults and returns an [*InvalidError] for settings that contradict each other.
func (o Options) complete() (Options, error) {
	if o.TTL == 0 {
		o.TTL = defaultTTL
	}
	if o.TTL < MinTTL || o.TTL > MaxTTL {
		return o, &InvalidError{"ttl", fmt.Sprintf("want 0 for %v, or %v to %v; got %v", defaultTTL, MinTTL, MaxTTL, o.TTL)}
	}
	if o.Margin == 0 {
		o.Margin = max(o.TTL/10, defaultMargin)
	}
	if o.Margin < 0 || o.TTL-o.Margin < o.TTL/3 {
		return o, &InvalidError{"margin", fmt.Sprintf(
			"%v of a TTL of %v leaves less than the third between two renewals; want 0 for the default, or more than 0 and at most %v",
			o.Margin, o.TTL, o.TTL-o.TTL/3)}
	}
	if o.Warn == 0 {
		o.Warn = min(o.TTL/3, o.TTL-o.Margin-1)
	}
	if o.Warn < 0 || o.Warn >= o.TTL-o.Margin {
		return o, &InvalidError{"warn", fmt.Sprintf("want 0 for the default, or more than 0 and less than TTL - margin, %v; got %v", o.TTL-o.Margin, o.Warn)}
	}
	if o.Clock == nil {
		o.Clock = clock.Client()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}
