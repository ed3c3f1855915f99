//go:build unix

package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

const (
	sigStop     = syscall.SIGSTOP
	sigContinue = syscall.SIGCONT
	sigKill     = syscall.SIGKILL
	sigFast     = syscall.SIGINT  // PostgreSQL's fast shutdown
	sigNow      = syscall.SIGQUIT // PostgreSQL's and PgBouncer's immediate shutdown
)

// owner is the user as whom servers run; the zero value is the caller itself.
type owner struct {
	change   bool
	uid, gid uint32
}

func serverUser() (owner, error) {
	if os.Geteuid() != 0 {
		return owner{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(found.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(found.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return owner{}, fmt.Errorf("pgserver: user %s: %w", name, err)
		}
		return owner{change: true, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return owner{}, errors.New("pgserver: PostgreSQL refuses to run as root, and there is no user postgres nor nobody to run it as")
}

func (o owner) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if o.change {
		attr.Credential = &syscall.Credential{Uid: o.uid, Gid: o.gid}
	}
	return attr
}

// ownSession is for a program that keeps the caller's user.
func (owner) ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func (o owner) give(name string) error {
	if !o.change {
		return nil
	}
	return os.Chown(name, int(o.uid), int(o.gid))
}

// send signals one process; that it is gone already is no error.
func send(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("pgserver: signal %v to process %d: %w", sig, pid, err)
	}
	return nil
}
