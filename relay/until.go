package relay

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/internal/clock"
)

// untilContext ends by the relay's clock: whoever asks for its Err after a machine has slept is told so, though Go's timers have slept too.
type untilContext struct {
	context.Context
	clock  clock.Source
	at     time.Duration
	cancel context.CancelFunc
}

// until is ctx until the relay's clock reads at, which is left from now.
func (r *Relay) until(ctx context.Context, at, left time.Duration) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithTimeout(ctx, left)
	return &untilContext{inner, r.clock, at, cancel}, cancel
}

// Err ends the context, and what is derived from it, if its time is over.
func (c *untilContext) Err() error {
	if c.Context.Err() == nil && c.clock() >= c.at {
		c.cancel()
	}
	return c.Context.Err()
}
