package admission

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// Priority is which goes first. What a request is follows from the service's own routes, never from what its caller says of it.
type Priority int

// The priorities, first to last. The zero value is none. Whatever waits goes before all that is later in this list, so what is first must be little.
const (
	Renewal Priority = iota + 1 // of a session or lease: refused, its holder loses what it has, and others begin to take over
	Status                      // what became of something: refused, somebody does it again, or gives up what was done
	Work                        // everything else, retries and hedges included
)

const priorities = 3

// String is the priority as texts and metrics use it.
func (p Priority) String() string {
	switch p {
	case Renewal:
		return "renewal"
	case Status:
		return "status"
	case Work:
		return "work"
	}
	return fmt.Sprintf("Priority(%d)", int(p))
}

// Outcome is how something that was let in ended.
type Outcome int

// The outcomes. The zero value counts as Failed.
const (
	Succeeded Outcome = iota + 1 // how long it took says how busy the service is
	TimedOut                     // so does it here
	Failed                       // before its time: how long it took says nothing, and a service that fails at once is not a fast one
)

// Options are the numbers of a [Limiter]; 0 is the default of each.
type Options struct {
	// Least, First and Most bound how many may run at a time, and say how many at first; 4, 20 and 1,000. First is between the others; where it is 0 it follows them. The limit moves by a place or two a second at most, and only while at least 50 pieces of work end between two steps, so a service that does hundreds
	// of things at a time says so in First.
	Least, First, Most int
	// Kept is how many renewals and status queries run beyond that, so that they need not wait for work that hangs; 4.
	Kept int
	// Queue is how many of each priority may wait; 128.
	Queue int
	// Wait is how long one waits at most; 1 s. None waits longer than a quarter of the time that its caller has left: what got in too late to be answered would be work for nobody.
	Wait time.Duration
	// Minimum is the least time that a caller must have left for its request to be started; 1 ms.
	Minimum time.Duration
	// RetryAfter is the least pause that is asked for; 1 s. The hint is between that and three times as much, at random, so that those who were shed together do not come back together.
	RetryAfter time.Duration
}

const (
	maxNumber   = 1_000_000
	maxDuration = time.Hour
	share       = 4 // one part in so many of a caller's time may be waited
)

// settled fills in the defaults, and checks.
func (o Options) settled() (Options, error) {
	for _, x := range []struct {
		name  string
		value *int
		usual int
	}{{"least", &o.Least, 4}, {"most", &o.Most, max(1000, o.Least, o.First)}, {"first", &o.First, 0}, {"kept", &o.Kept, 4}, {"queue", &o.Queue, 128}} {
		if *x.value < 0 || *x.value > maxNumber {
			return o, &budget.InvalidError{Field: x.name, Problem: fmt.Sprintf("%d; want 0 to %d", *x.value, maxNumber)}
		}
		if *x.value == 0 {
			*x.value = x.usual
		}
	}
	if o.First == 0 {
		o.First = min(max(20, o.Least), o.Most)
	}
	if o.Least > o.First || o.First > o.Most {
		return o, &budget.InvalidError{Field: "limits", Problem: fmt.Sprintf("least %d, first %d, most %d; want them in that order", o.Least, o.First, o.Most)}
	}
	for _, x := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{{"wait", &o.Wait, time.Second}, {"minimum", &o.Minimum, time.Millisecond}, {"retry after", &o.RetryAfter, time.Second}} {
		if *x.value < 0 || *x.value > maxDuration {
			return o, &budget.InvalidError{Field: x.name, Problem: fmt.Sprintf("%v; want 0 to %v", *x.value, maxDuration)}
		}
		if *x.value == 0 {
			*x.value = x.usual
		}
	}
	return o, nil
}
