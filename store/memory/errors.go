package memory

import "errors"

// errTokensUsedUp is met only after an epoch was raised nearly to the highest token there is.
var errTokensUsedUp = errors.New("no token is left above those granted")

// What the seed model answers. After each of them nothing has changed.
var (
	errStepBack  = errors.New("the clock never goes back")
	errTTL       = errors.New("a TTL must be positive")
	errHeld      = errors.New("held")
	errNotHolder = errors.New("refused: not the holder")
)
