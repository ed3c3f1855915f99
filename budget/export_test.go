package budget

import "time"

// Asleep is the choice of a machine that has slept for so long, for tests of packages above.
func Asleep(slept *time.Duration) Option {
	begun := time.Now()
	return func(b *Budget) {
		b.asleep.boot = func() time.Duration { return time.Since(begun) + *slept }
		b.asleep.wall = func(t time.Time) int64 { return t.Add(*slept).UnixNano() }
	}
}
