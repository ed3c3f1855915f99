package model

import "errors"

// What the serial model answers besides success. None satisfies another, and none changes anything.
var (
	// ErrHeld: somebody holds it, be it the one who asks.
	ErrHeld = errors.New("held")
	// ErrStale: owner and token are not those of the holder, or the lease is over.
	ErrStale = errors.New("stale")
	// ErrInvalid: a duration that is not positive, or a clock that goes back.
	ErrInvalid = errors.New("invalid")
)
