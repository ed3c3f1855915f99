package worker

import (
	"context"
	"errors"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/operation"
)

// known is what an error of Perform tells of the attempt, and whether it is a refusal for good. local: the only effect stood in a transaction that did not complete the attempt.
func known(err error, local bool) (operation.Known, bool) {
	var mark *finalError
	final := errors.As(err, &mark)
	if local {
		return operation.Refused, final
	}
	if final && !proven(err) {
		return operation.Refused, true
	}
	switch budget.ClassOf(err) {
	case budget.NotSent:
		return operation.NotSent, false
	case budget.Refused:
		return operation.Refused, final
	case budget.Unknown:
	}
	return operation.NoAnswer, false
}

// proven reports whether an error that is marked as final says itself that the outcome is unknown.
func proven(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return budget.ClassOf(err) == budget.Unknown
	}
	var one *budget.Error
	var gaveUp *budget.GaveUpError
	return (errors.As(err, &one) || errors.As(err, &gaveUp)) && budget.ClassOf(err) == budget.Unknown
}

// pushMost bounds what the other side can ask for: an operation is not put off for a year by a mistake of its.
const pushMost = 24 * time.Hour

// pushBack is how long the other side has asked to be left alone.
func pushBack(err error) time.Duration {
	var one *budget.Error
	if errors.As(err, &one) {
		return min(max(one.RetryAfter, 0), pushMost)
	}
	return 0
}
