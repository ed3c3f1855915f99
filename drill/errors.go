package drill

import (
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/lease"
)

// The kinds of error of [Run]. None satisfies another.
var (
	// ErrUnknownScenario: there is no drill of that name. Nothing was done.
	ErrUnknownScenario = errors.New("unknown drill")
	// ErrOption: the options contradict each other or the scenario. Nothing was done.
	ErrOption = errors.New("options do not fit")
	// ErrUnsupported: this system has no signal that stops a process. Nothing was done.
	ErrUnsupported = errors.New("not on this system")
	// ErrInterrupted: the drill was ended before its verdict. Its processes were killed and its tables removed.
	ErrInterrupted = errors.New("interrupted")
	// ErrProcess: a process of the drill could not be started or controlled.
	ErrProcess = errors.New("process of the drill")
)

// errLost is what a client sees of a connection that the drill cuts.
var errLost = errors.New("the drill lost the reply")

// errTooSlow: in the story, a lease ran out although its holder was to do something yet.
var errTooSlow = errors.New("too slow for this scale of time")

// errOtherwise: an operation was decided otherwise than its round was to go, which the judge looks into.
var errOtherwise = errors.New("the operation went another way")

// errNoRole: a variant needs a role beside the tables' owner.
var errNoRole = errors.New("the drill's role may not create roles, so no other role wrote; give it CREATEROLE, or play the drill with a role that has it")

// What a payer answers instead of having the effect.
var (
	// errProvider: a provider did not do what it was asked.
	errProvider = errors.New("the provider refused")
	// errNotWanted: the charge was called off before anything left.
	errNotWanted = errors.New("it is not wanted any more, and was not sent")
	// errSoldOut: nothing is charged for what cannot be had.
	errSoldOut = errors.New("sold out")
	// errByHand: what was to be undone by an operation was undone without one.
	errByHand = errors.New("it was given back by hand")
)

// workerError is what a worker answered instead of doing what it was told.
type workerError struct {
	worker, op, text string
	code             lease.Code
}

func (e *workerError) Error() string { return fmt.Sprintf("%s: %s: %s", e.worker, e.op, e.text) }

// Is makes the error match the kind that its code stands for.
func (e *workerError) Is(target error) bool {
	kind := lease.KindOf(e.code)
	return kind != nil && errors.Is(kind, target)
}
