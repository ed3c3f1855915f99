package memory

import "errors"

// errTokensUsedUp is met only after an epoch was raised nearly to the highest token there is.
var errTokensUsedUp = errors.New("no token is left above those granted")
