package rpc

import "errors"

// errTest is any cause.
var errTest = errors.New("test")
