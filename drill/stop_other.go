//go:build !unix

package drill

import (
	"context"
	"os/exec"
)

func canStop() bool { return false }

func stopSelf(context.Context) error { return ErrUnsupported }

func isStopped(int) (bool, error) { return false, ErrUnsupported }

func resume(int) error { return ErrUnsupported }

func apart(*exec.Cmd) {}
