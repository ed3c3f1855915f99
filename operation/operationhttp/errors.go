package operationhttp

import "errors"

// ErrTooLarge is what a handler's Write returns when its answer is larger than can be kept ([MaxAnswer]). The caller is told that the work was done and the answer was not kept.
var ErrTooLarge = errors.New("operationhttp: the answer is larger than can be kept")

// ErrOptions says that the options make no sense: no middleware was made.
var ErrOptions = errors.New("operationhttp: invalid options")
