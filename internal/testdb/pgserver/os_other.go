//go:build !unix

package pgserver

import (
	"errors"
	"fmt"
	"syscall"
)

// The signals that Unix has; send refuses them all here.
const (
	sigStop     = syscall.SIGTERM
	sigContinue = syscall.SIGTERM
	sigKill     = syscall.SIGKILL
	sigFast     = syscall.SIGINT
	sigNow      = syscall.SIGQUIT
)

type owner struct{}

func serverUser() (owner, error) {
	return owner{}, fmt.Errorf("pgserver: private servers need a Unix system: %w", errors.ErrUnsupported)
}

func (owner) attributes() *syscall.SysProcAttr { return nil }

func (owner) ownSession() *syscall.SysProcAttr { return nil }

func (owner) give(string) error { return errors.ErrUnsupported }

func send(int, syscall.Signal) error { return errors.ErrUnsupported }
