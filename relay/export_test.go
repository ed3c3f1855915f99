package relay

import "time"

// SetClock gives a relay another clock, before it runs.
func (r *Relay) SetClock(now func() time.Duration) { r.clock = now }
