package clock

import (
	"syscall"
	"time"
)

// Client returns the clock that clients go by: the one that also counts while the machine sleeps, and inside a testing/synctest bubble the bubble's.
func Client() Source {
	if inBubble() {
		return Monotonic()
	}
	return Boot()
}

// inBubble reports whether the caller's time is that of a testing/synctest bubble, which begins with the year 2000 and stands still while there is work: the kernel's is another. A wall clock that is set
// between the two readings is taken for one, and costs no more than that sleep is not counted.
func inBubble() bool {
	var kernel syscall.Timeval
	if syscall.Gettimeofday(&kernel) != nil {
		return false
	}
	return time.Since(time.Unix(kernel.Unix())).Abs() > time.Hour
}
