package budget

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Header names of what travels with a request, and with its answer. Adapters of protocols that have a deadline of their own (Connect, gRPC) use that for the first.
const (
	HeaderRemaining = "Tenure-Budget-Ms" // of a request: how long the caller still waits, in whole milliseconds, rounded down
	HeaderAttempt   = "Tenure-Attempt"   // of a request: which attempt it is, from 1
	// HeaderNoRetry is "1", of an answer: it was repeated below already, or is not to be repeated; of a request: it is repeated above, if at all. Anything else says nothing.
	HeaderNoRetry = "Tenure-No-Retry"
	// HeaderNotStarted is "1", of an answer 504: nothing was started, for want of time.
	HeaderNotStarted = "Tenure-Not-Started"
	maxHeader        = 32               // bytes of a number: more is garbage
	maxAsked         = maxTotal         // what may be asked for at all
	leastSent        = time.Millisecond // less than this is not sent: it would be no millisecond, and Connect's client would send a whole one, which leaves its handler more than its caller waits
)

// Wire is what travels with a request. Durations cross borders, instants never do.
type Wire struct {
	Remaining time.Duration // how long the caller still waits; 0: it has not said
	Attempt   int           // 0: it has not said
	NoRetry   bool          // who serves it must not repeat what it calls: see [NoRetry]
}

// Outgoing is what to send with a request made under ctx: what is left of ctx's own deadline, which [Do] and [Budget.Attempt] set before the reserve. It returns an error
// matching [ErrNoTime] if less than a millisecond is left, and a [*Error] with the cause of ctx if that has ended: the request must not be sent, because an answer
// could not be waited for.
func Outgoing(ctx context.Context) (Wire, error) {
	w := Wire{Attempt: AttemptNumber(ctx), NoRetry: ForbidsRetry(ctx)}
	deadline, ok := ctx.Deadline()
	left := rest(ctx, time.Until(deadline)) // also where there is no deadline: see there
	if ctx.Err() != nil {
		return w, &Error{Class: NotSent, Err: context.Cause(ctx)}
	}
	if !ok {
		return w, nil
	}
	if w.Remaining = left; w.Remaining < leastSent {
		return w, &NoTimeError{What: "a request", Needs: leastSent, Left: w.Remaining}
	}
	return w, nil
}

// Millis is the remaining duration as it is sent, or "" where nothing is known.
func (w Wire) Millis() string {
	if w.Remaining <= 0 {
		return ""
	}
	return strconv.FormatInt(w.Remaining.Milliseconds(), 10)
}

// Number is the number of the attempt as it is sent, or "" where there is none.
func (w Wire) Number() string {
	if w.Attempt <= 0 {
		return ""
	}
	return strconv.Itoa(w.Attempt)
}

// Mark is the mark as it is sent, or "" where there is none.
func (w Wire) Mark() string {
	if w.NoRetry {
		return "1"
	}
	return ""
}

// Asked is what a caller has said of its remaining time. Absent, expired and positive are three different things.
type Asked int

// What a caller may have said. The zero value is nothing.
const (
	Absent   Asked = iota + 1 // it waits as long as it takes
	Expired                   // it does not wait any more: the answer would reach nobody
	Positive                  // it waits for so long
)

// ParseMillis reads what a caller has sent; present is whether it sent anything. The duration is 0 unless it is [Positive]. Values beyond a year count as a
// year. It returns an error matching [ErrInvalid] for what is no whole number, and for nothing where something is present.
func ParseMillis(text string, present bool) (Asked, time.Duration, error) {
	if !present {
		return Absent, 0, nil
	}
	bad := &InvalidError{HeaderRemaining, fmt.Sprintf("%.40q; want whole milliseconds", text)}
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || len(text) > maxHeader {
		return 0, 0, bad
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, 0, bad
		}
	}
	millis, err := strconv.ParseInt(text, 10, 64)
	if errors.Is(err, strconv.ErrRange) { // more, or less, than the type holds: millis is the nearest that it does
		err = nil
	}
	switch {
	case err != nil:
		return 0, 0, bad
	case millis <= 0:
		return Expired, 0, nil
	case millis > maxAsked.Milliseconds():
		return Positive, maxAsked, nil
	}
	return Positive, time.Duration(millis) * time.Millisecond, nil
}

// ParseNoRetry reads the mark that asks for no repetition, of a request or of an answer. What is not exactly "1" is none, as what is no number is no attempt number: it is there to spare
// work, so a call does not fail for it.
func ParseNoRetry(text string) bool { return text == "1" }

// ParseAttempt reads an attempt number; 0 for what is none.
func ParseAttempt(text string) int {
	n, err := strconv.ParseUint(text, 10, 31) // takes digits alone: no sign, no space
	if err != nil || n > 1_000_000 {
		return 0
	}
	return int(n)
}
