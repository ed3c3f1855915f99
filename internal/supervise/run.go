//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-go/tenure/internal/clock"
)

const (
	guardFD   = 64               // the guard's end of the socket is at least this: lower ones may be the caller's
	startWait = 30 * time.Second // for a guard to report for the first time, if so much is left
	lastLook  = time.Second      // for a group to vanish after SIGKILL when no guard reaps it
)

// supervisor is the state of one Run.
type supervisor struct {
	cfg      Config
	now      clock.Source
	link     *link
	guard    *os.Process
	deadline time.Duration // the latest that the guard knows
	tty      *terminal
	signals  *Signals
	result   Result
	exited   bool
}

// Run runs the command until nothing of its process group is left, and stops the group when its time runs
// out: SIGTERM in time, SIGKILL cfg.Reserve before the end of the last cfg.Left.
//
// It starts the command only when more than Grace and Reserve are left, for which it waits until Ended.
// What the command leaves running in its group when it ends is stopped in the same way. If standard
// input and output are the terminal that this process has the foreground of, the command's group gets the foreground;
// when the command is stopped by the terminal, so is this process, until the shell continues it.
//
// Run returns a [*NotStartedError], a [*GuardError] or [ErrLate]; nothing is running then. Not for
// concurrent use: a process has one terminal.
func Run(cfg Config) (Result, error) {
	if cfg.Say == nil {
		cfg.Say = func(Incident) {}
	}
	s := &supervisor{cfg: cfg, now: sharedClock(), tty: openTerminal(), signals: cfg.Signals}
	defer s.tty.close()
	adoptOrphans() // should the guard be killed
	tick := s.tick()
	if err := s.awaitTime(tick); err != nil {
		return Result{}, err
	}
	if err := s.startGuard(); err != nil {
		return Result{}, &GuardError{Err: err}
	}
	defer s.link.end()
	s.signals.all()
	s.tty.hold()
	defer s.tty.release()
	reports := receive[report](s.link)
	s.deadline = s.now() + cfg.Left()
	s.link.send(order{Op: opStart, Deadline: s.deadline, Grace: cfg.Grace, Reserve: cfg.Reserve,
		Terminal: s.tty.ours(cfg.Files[0], cfg.Files[1])})
	if err := s.started(reports); err != nil {
		return Result{}, err
	}
	s.supervise(reports, tick)
	return s.result, nil
}

// tick is how often Left is asked: often enough that a renewal reaches the guard long before it matters.
func (s *supervisor) tick() time.Duration {
	return min(max(s.cfg.Left()/40, 5*time.Millisecond), 250*time.Millisecond)
}

// awaitTime waits until enough time is left to start and to stop again.
func (s *supervisor) awaitTime(tick time.Duration) error {
	for s.cfg.Left() <= s.cfg.Grace+s.cfg.Reserve {
		select {
		case <-s.cfg.Ended:
			return ErrLate
		case <-time.After(tick):
		}
	}
	return nil
}

// startGuard starts this program again, in a group of its own and with one end of a socket.
func (s *supervisor) startGuard() error {
	fds, err := socketPair()
	if err != nil {
		return fmt.Errorf("making a socket pair: %w", err)
	}
	own, theirs := newLink(fds[0], "guard"), os.NewFile(uintptr(fds[1]), "guard's end")
	defer func() { _ = theirs.Close() }()
	passed, err := passable(fds[1])
	if err != nil {
		own.end()
		return fmt.Errorf("duplicating a descriptor: %w", err)
	}
	defer func() { _ = syscall.Close(passed) }()
	argv := append(append([]string{}, s.cfg.Guard...), strconv.Itoa(passed), s.cfg.Path)
	s.guard, err = os.StartProcess(s.cfg.Guard[0], append(argv, s.cfg.Args...), &os.ProcAttr{
		Env:   s.cfg.Env,
		Files: s.cfg.Files[:],
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		own.end()
		return err
	}
	s.link = own
	return nil
}

// started waits for the guard's first report.
func (s *supervisor) started(reports <-chan report) error {
	var r report
	select {
	case r = <-reports:
	case <-time.After(min(s.cfg.Left(), startWait)):
	}
	switch r.Op {
	case opStarted:
		s.result.PID = r.PID
		return nil
	case opFailed:
		s.guardEnded()
		errno := syscall.Errno(r.Errno)
		return &NotStartedError{Path: s.cfg.Path, Err: errno, Found: errno != syscall.ENOENT && errno != syscall.ENOTDIR}
	case opLate:
		s.guardEnded()
		return ErrLate
	}
	// It died, or hangs. It may have started the command without having said so.
	since := startOf(s.guard.Pid)
	_ = s.guard.Kill()
	s.guardEnded()
	if s.result.PID = orphanedGroup(since); s.result.PID == 0 {
		return &GuardError{Err: errors.New("it did not report")}
	}
	return nil
}

// guardEnded reaps the guard. What it had to say it has reported, so its own exit status says nothing.
func (s *supervisor) guardEnded() { _, _ = s.guard.Wait() }

// supervise keeps the guard informed until it reports that nothing of the group is left.
func (s *supervisor) supervise(reports <-chan report, tick time.Duration) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	ended := s.cfg.Ended
	for {
		select {
		case r, ok := <-reports:
			if !ok {
				s.withoutGuard()
				return
			}
			if r.Op == opOver {
				s.guardEnded()
				return
			}
			s.note(r)
		case <-ended:
			ended = nil
			s.link.send(order{Op: opStop})
		case sig := <-s.signals.out:
			s.link.send(order{Op: opSignal, Signal: int(sig)})
		case <-ticker.C:
			s.tell()
		}
	}
}

// tell passes on a deadline that has moved. Past it the guard has killed the group long ago; if it could not,
// being stopped itself, this process does it.
func (s *supervisor) tell() {
	now := s.now() // before Left is read: what the reading takes is not added to it
	if deadline := now + s.cfg.Left(); deadline > s.deadline+time.Millisecond {
		s.deadline = deadline
		s.link.send(order{Op: opExtend, Deadline: deadline})
	}
	if now >= s.deadline && !s.exited {
		_ = syscall.Kill(-s.result.PID, syscall.SIGKILL) // until the command is reaped its group's id is its own
	}
}

func (s *supervisor) note(r report) {
	switch r.Op {
	case opTerm:
		s.result.Stopped = s.result.Stopped || !s.exited
		s.result.Left = s.result.Left || s.exited
		if !s.exited {
			s.cfg.Say(Stopping)
		}
	case opKill:
		s.result.Stopped = s.result.Stopped || !s.exited
		s.result.Killed = true
		s.cfg.Say(Killing)
	case opDenied:
		s.result.Denied = true
		s.cfg.Say(Denied)
	case opStopped:
		if s.tty.handOver(syscall.Signal(r.Status), s.result.PID) {
			s.tell() // nothing is continued past the deadline
			s.link.send(order{Op: opSignal, Signal: int(syscall.SIGCONT)})
		}
	case opExited:
		s.exited = true
		s.result.take(syscall.WaitStatus(r.Status))
	}
}

func (r *Result) take(status syscall.WaitStatus) {
	r.Code = status.ExitStatus()
	if status.Signaled() {
		r.Signal = status.Signal()
		r.Code = 128 + int(r.Signal)
	}
}

// withoutGuard ends what a guard that was killed has left. The kernel has killed the command itself where it can.
func (s *supervisor) withoutGuard() {
	s.cfg.Say(GuardDied)
	s.guardEnded()
	s.result.Guard, s.result.Killed = true, true
	if !s.exited {
		s.result.take(syscall.WaitStatus(syscall.SIGKILL))
	}
	for deadline := s.now() + lastLook; ; {
		for pid := 1; pid > 0; { // they are this process's children now, see adoptOrphans
			pid, _ = syscall.Wait4(-s.result.PID, nil, syscall.WNOHANG, nil)
		}
		if errors.Is(syscall.Kill(-s.result.PID, syscall.SIGKILL), syscall.ESRCH) {
			return
		}
		if s.now() >= deadline {
			s.result.Remains = true
			return
		}
		<-time.After(goneTick)
	}
}

// socketPair makes two connected sockets that no child inherits.
func socketPair() ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return fds, err
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	return fds, nil
}

// passable duplicates fd as one that children inherit, at guardFD or above.
func passable(fd int) (int, error) {
	return unix.FcntlInt(uintptr(fd), syscall.F_DUPFD, guardFD)
}
