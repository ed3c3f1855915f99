// Package clock reads the clocks that go on while a machine sleeps.
//
// Go's own monotonic clock stops during a suspend on Linux; a lease does not. A reading is a duration since
// an origin that means nothing outside the kernel that is running: readings are compared, never sent.
package clock

import "time"

// Source reads a clock that never goes back. Safe for concurrent use.
type Source func() time.Duration

// Monotonic returns Go's monotonic clock, counted from this call. Inside a testing/synctest bubble it is
// the bubble's clock. It stops while the machine sleeps on Linux.
func Monotonic() Source {
	origin := time.Now()
	return func() time.Duration { return time.Since(origin) }
}
