//go:build unix && !linux

package file

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockByte takes the one lock that there is, if nobody has it: flock knows no ranges, so nobody is next, and a busy process may starve others.
func lockByte(side *os.File, which int) (bool, error) {
	if which != lockMain {
		return true, nil
	}
	for {
		err := unix.Flock(int(side.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		default:
			return err == nil, err
		}
	}
}

func unlockByte(side *os.File, which int) error {
	if which != lockMain {
		return nil
	}
	return unix.Flock(int(side.Fd()), unix.LOCK_UN)
}

func mountedAlone(string, string) (bool, error) { return false, nil } // a mount is a folder here

func processState(int) string { return "" }
