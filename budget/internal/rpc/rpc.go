// Package rpc holds what gRPC and Connect have in common: what a status code says of its call, and how a failure is told by one. The two number their codes alike.
package rpc

import (
	"context"
	"errors"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

// Domain and NotStarted are the ErrorInfo of a call that was refused before its handler ran, for want of time.
const (
	Domain     = "tenure-go.github.com" // as in package fencehttp
	NotStarted = "BUDGET_NOT_STARTED"
)

// Code is a status code of gRPC or Connect.
type Code uint32

// The codes that something is decided by.
const (
	Canceled           Code = 1
	Unknown            Code = 2
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5
	AlreadyExists      Code = 6
	PermissionDenied   Code = 7
	ResourceExhausted  Code = 8
	FailedPrecondition Code = 9
	Aborted            Code = 10
	OutOfRange         Code = 11
	Unimplemented      Code = 12
	Internal           Code = 13
	Unavailable        Code = 14
	DataLoss           Code = 15
	Unauthenticated    Code = 16
)

// Carried is what travels with a call beside its deadline, as it is sent; "" for what does not.
type Carried struct {
	Attempt string // the number of its attempt
	NoRetry string // the mark that it is not to be repeated below
}

// Answer is what the other side has said of a call that failed. What a client made up itself is none.
type Answer struct {
	Code       Code
	Begun      bool          // the answer had begun before: headers or messages came first
	NotStarted bool          // an ErrorInfo says so
	Hint       bool          // a RetryInfo is there, whatever its delay
	RetryAfter time.Duration // of it
	NoRetry    bool
}

const maxRetryAfter = 24 * time.Hour

// Proves is what is known after the answer, as an error about err. A code by which a handler refuses is a refusal. RESOURCE_EXHAUSTED and UNAVAILABLE are one that another attempt may find
// otherwise if a RetryInfo comes with it. Bare they prove nothing: UNAVAILABLE is also what proxies and libraries say when a connection broke in the middle, and RESOURCE_EXHAUSTED what a server's library says
// instead of an answer that is too large to be sent, after the handler has done its work. Where the answer had begun, codes that
// libraries make up too (such as RESOURCE_EXHAUSTED for an answer that is too large) prove nothing either.
func (a Answer) Proves(err error) *budget.Error {
	e := &budget.Error{Class: budget.Unknown, Phase: budget.PhaseReading, RetryAfter: min(max(0, a.RetryAfter), maxRetryAfter), NoRetry: a.NoRetry, Err: err}
	switch a.Code {
	case InvalidArgument, NotFound, AlreadyExists, PermissionDenied, FailedPrecondition, Aborted, OutOfRange, Unauthenticated:
		e.Class = budget.Refused
	case Unimplemented:
		if !a.Begun {
			e.Class = budget.Refused
		}
	case ResourceExhausted, Unavailable:
		if !a.Begun && a.Hint {
			e.Class, e.Again = budget.Refused, true
		}
	case DeadlineExceeded:
		if a.NotStarted {
			e.Class = budget.Refused
		}
	case Canceled, Unknown, Internal, DataLoss:
	}
	if e.Class == budget.Refused && !e.Again {
		e.RetryAfter = 0 // it would be taken for the wish to be asked again
	}
	return e
}

// Told is how a failed call is answered.
type Told struct {
	Code       Code
	Text       string
	NotStarted bool
	Hint       bool
	RetryAfter time.Duration
	NoRetry    bool
}

// Tell says how to answer a call whose work failed with err.
func Tell(err error) Told {
	class := budget.ClassOf(err)
	t := Told{Code: Unknown, Text: "what is known of this request: " + class.String(), NoRetry: budgethttp.NoRetry(err)}
	var known *budget.Error
	errors.As(err, &known)
	switch {
	case known != nil && (class == budget.NotSent || class == budget.Refused && (known.Again || known.RetryAfter > 0)):
		t.Code, t.Hint, t.RetryAfter = Unavailable, true, known.RetryAfter
	case class == budget.Refused:
		t.Code = FailedPrecondition
	case class == budget.NotSent: // for want of time, and by nobody's answer
		t.Code, t.NotStarted = DeadlineExceeded, true
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, budget.ErrNoTime):
		t.Code = DeadlineExceeded
	case errors.Is(err, context.Canceled):
		t.Code = Canceled
	}
	return t
}

// Refusal is how a call is answered that was not started, because err says that its time does not suffice.
func Refusal(err error) Told {
	return Told{Code: DeadlineExceeded, Text: err.Error(), NotStarted: true, NoRetry: true}
}

// Start begins the budget of a call whose deadline is that of ctx, as the protocol has read it, and which came with that.
func Start(ctx context.Context, l budgethttp.Limits, method string, came Carried) (context.Context, *budget.Budget, error) {
	asked, wait := budget.Absent, time.Duration(0)
	if deadline, ok := ctx.Deadline(); ok {
		asked, wait = budget.Positive, time.Until(deadline)
		if wait <= 0 {
			asked = budget.Expired
		}
	}
	b, err := l.Start(ctx, method, asked, wait)
	if err != nil {
		return nil, nil, err
	}
	return budgethttp.WithCallersMark(budgethttp.WithCallersAttempt(b.Context(), came.Attempt), came.NoRetry), b, nil
}

// Outgoing is what to send with a call. The error is classified: the call must not be sent.
func Outgoing(ctx context.Context) (Carried, error) {
	wire, err := budget.Outgoing(ctx)
	var ended *budget.Error
	switch {
	case errors.As(err, &ended):
		return Carried{}, &budget.Error{Class: budget.NotSent, Err: ended.Err}
	case err != nil:
		return Carried{}, &budget.Error{Class: budget.NotSent, Err: err}
	}
	return Carried{Attempt: wire.Number(), NoRetry: wire.Mark()}, nil
}
