//go:build unix && !linux

package drill

import (
	"errors"
	"fmt"
	"syscall"
)

// isStopped reports whether the child pid has stopped.
func isStopped(pid int) (bool, error) {
	var status syscall.WaitStatus
	for {
		got, err := syscall.Wait4(pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || got == 0:
			return false, err
		case !status.Stopped():
			return false, fmt.Errorf("%w: it ended instead of stopping", ErrProcess)
		default:
			return true, nil
		}
	}
}

// dieWithParent does nothing: this system has no parent-death signal. A worker ends with its stdin.
func dieWithParent(*syscall.SysProcAttr) {}
