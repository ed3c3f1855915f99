//go:build !linux

package clock

import "time"

// Boot returns the best monotonic clock of this system: Go's own.
func Boot() Source { return Monotonic() }

// Kernel returns a clock that all processes of this machine share, and a constant in place of a boot id.
//
// Without a boot id a reboot cannot be told from a clock that fell; the embedded store handles both the
// same way, by never going below the time it has written. The wall clock stands in for an uptime clock here:
// a step of it is felt, forwards as an early expiry and backwards as time that stands still.
func Kernel() (Source, string, error) {
	return func() time.Duration { return time.Duration(time.Now().UnixNano()) }, "no-boot-id", nil
}

// Client returns the clock that clients go by: Go's own, which is a testing/synctest bubble's inside one.
func Client() Source { return Monotonic() }
