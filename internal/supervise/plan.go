package supervise

import "time"

// Act is what is to be done to a command's process group now.
type Act int

// The acts. The zero Act is none.
const (
	Wait Act = iota + 1 // nothing yet
	Term                // ask it to stop: SIGTERM, then SIGCONT in case it is stopped
	Kill                // make it stop: SIGKILL; repeated for as long as anything is left
)

// Escalation decides when a command is asked to stop and when it is made to. It is a value without I/O or
// clock; instants are readings of one clock that never goes back.
type Escalation struct {
	Deadline time.Duration // the instant by which nothing of the command may be running any more
	Grace    time.Duration // from Term to Kill, where there is time for it
	Reserve  time.Duration // from Kill to the deadline: what the kernel needs to carry it out

	begun bool          // Term was given,
	since time.Duration // at this instant
	over  bool          // Kill was given
}

// Extend moves the deadline on. It never moves it back, and takes back no stop that has begun: the command
// may already have acted on it.
func (e Escalation) Extend(deadline time.Duration) Escalation {
	e.Deadline = max(e.Deadline, deadline)
	return e
}

// Cut moves the deadline back, to instant; never on.
func (e Escalation) Cut(instant time.Duration) Escalation {
	e.Deadline = min(e.Deadline, instant)
	return e
}

// Step says what is to be done at now, and until when it may wait before it asks again. stop is true
// when the command is to end whatever the deadline.
//
// Kill is due Reserve before the deadline, or Grace after Term if that is sooner. Term is due at once when a
// stop is asked for, and otherwise early enough to leave Grace. At equality an act is due.
func (e Escalation) Step(now time.Duration, stop bool) (next Escalation, act Act, until time.Duration) {
	last := e.Deadline - e.Reserve
	if e.over || now >= last || e.begun && now >= e.since+e.Grace {
		e.over = true
		return e, Kill, now
	}
	if e.begun {
		return e, Wait, min(last, e.since+e.Grace)
	}
	if stop || now >= last-e.Grace {
		e.begun, e.since = true, now
		return e, Term, min(last, now+e.Grace)
	}
	return e, Wait, last - e.Grace
}

// DefaultGrace is the time from Term to Kill for a right of which at least room is left when all is well:
// a third of room, so that two thirds bridge an outage of the authority; at most 10 s.
func DefaultGrace(room time.Duration) time.Duration { return min(room/3, 10*time.Second) }

// DefaultReserve is the time from Kill to the deadline for the same right: a twentieth of room, within
// 10 ms and 500 ms.
func DefaultReserve(room time.Duration) time.Duration {
	return min(max(room/20, 10*time.Millisecond), 500*time.Millisecond)
}
