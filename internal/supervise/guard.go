//go:build unix

package supervise

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/tenure-go/tenure/internal/clock"
)

const (
	guardTick = 250 * time.Millisecond // so late at most after a suspend, during which timers stand still
	goneTick  = 10 * time.Millisecond  // between two looks whether the group is gone

	zombieLooks = 20 // of these looks, every how many reads the list of all processes
)

// guard is the command's parent.
type guard struct {
	link   *link
	now    clock.Source
	pgid   int
	plan   Escalation
	stop   bool // the command is to end whatever the deadline
	ended  bool // the command was reaped
	killed bool // opKill was reported
	denied bool // opDenied was reported
	looks  int  // after SIGKILL, whether the group is gone
}

// Guard is the guard's whole program: args are FD PATH ARGV0 ARG..., as [Run] hands them over after the words of
// Config.Guard. It returns the exit code when nothing of the command is left. The process must have been
// started by Run and do nothing else.
func Guard(args []string) int {
	// The parent-death signal is bound to the thread that starts the command, so this one must live on.
	runtime.LockOSThread()
	if len(args) < 3 {
		return 2
	}
	fd, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	syscall.CloseOnExec(fd)
	g := &guard{link: newLink(fd, "supervisor"), now: sharedClock()}
	orders := receive[order](g.link)
	first, ok := <-orders
	if !ok || first.Op != opStart {
		return 2
	}
	g.plan = Escalation{Deadline: first.Deadline, Grace: first.Grace, Reserve: first.Reserve}
	deafen()
	adoptOrphans()
	if _, act, _ := g.plan.Step(g.now(), false); act != Wait {
		g.link.send(report{Op: opLate})
		return 0
	}
	pid, err := startCommand(args[1], args[2:], first.Terminal)
	if err != nil {
		var errno syscall.Errno
		errors.As(err, &errno)
		g.link.send(report{Op: opFailed, Errno: int(errno)})
		return 0
	}
	g.pgid = pid
	g.link.send(report{Op: opStarted, PID: pid})
	g.watch(orders, reap())
	return 0
}

// deafen keeps the signals that end a process from ending the guard: `pkill tenure` reaches it too. They are
// caught, not ignored, because what is ignored stays so in the command; what was ignored from the start
// (nohup) is left alone.
func deafen() {
	sink := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGPIPE} {
		if !signal.Ignored(sig) {
			signal.Notify(sink, sig)
		}
	}
}

// startCommand executes path at the head of a process group of its own.
func startCommand(path string, argv []string, terminal bool) (pid int, err error) {
	attr := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attr)
	if terminal {
		tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err == nil {
			defer func() { _ = tty.Close() }()
			attr.Foreground, attr.Ctty = true, int(tty.Fd())
		}
	}
	return syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: attr})
}

// waited is one answer of wait4.
type waited struct {
	pid    int
	status syscall.WaitStatus
}

// reap collects the command and the orphans that it left to the guard, and closes the channel when there is
// nobody left to wait for.
func reap() <-chan waited {
	out := make(chan waited)
	go func() {
		defer close(out)
		for {
			var w waited
			var err error
			w.pid, err = syscall.Wait4(-1, &w.status, syscall.WUNTRACED, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil {
				return
			}
			out <- w
		}
	}()
	return out
}

// watch keeps the plan until nothing of the group is left.
func (g *guard) watch(orders <-chan order, waits <-chan waited) {
	for {
		if g.ended && g.gone() {
			g.link.send(report{Op: opOver})
			return
		}
		until := g.act()
		timer := time.NewTimer(min(max(until-g.now(), 0), guardTick))
		select {
		case o, ok := <-orders:
			if !ok {
				// The supervisor is dead, and with it the renewals.
				g.plan, orders = g.plan.Cut(g.now()), nil
				break
			}
			g.obey(o)
		case w, ok := <-waits:
			if !ok {
				waits = nil
				break
			}
			g.note(w)
		case <-timer.C:
		}
		timer.Stop()
	}
}

// act does what is due and returns the instant at which to look again.
func (g *guard) act() time.Duration {
	now := g.now()
	var act Act
	var until time.Duration
	g.plan, act, until = g.plan.Step(now, g.stop)
	switch act {
	case Wait:
	case Term:
		g.link.send(report{Op: opTerm})
		g.signal(syscall.SIGTERM)
		g.signal(syscall.SIGCONT)
	case Kill:
		if !g.killed {
			g.killed = true
			g.link.send(report{Op: opKill})
		}
		g.signal(syscall.SIGKILL)
	}
	if g.killed || g.ended {
		until = now + goneTick
	}
	return until
}

func (g *guard) obey(o order) {
	switch o.Op {
	case opExtend:
		g.plan = g.plan.Extend(o.Deadline)
	case opStop:
		g.stop = true
	case opSignal:
		g.signal(syscall.Signal(o.Signal))
	}
}

// note takes in what became of a child. Orphans are only reaped: a zombie would keep the group alive.
func (g *guard) note(w waited) {
	switch {
	case w.pid != g.pgid:
	case w.status.Stopped():
		g.link.send(report{Op: opStopped, Status: int(w.status.StopSignal())})
	default:
		// What the command leaves behind in its group is stopped: the right ends with the command.
		g.ended, g.stop = true, true
		g.link.send(report{Op: opExited, Status: int(w.status)})
	}
}

// signal reaches the whole group. While a member lives no other process can get the group's id, and once gone
// has seen that none does, no signal is sent any more.
func (g *guard) signal(sig syscall.Signal) {
	err := syscall.Kill(-g.pgid, sig)
	if errors.Is(err, syscall.EPERM) && !g.denied {
		g.denied = true
		g.link.send(report{Op: opDenied, Errno: int(syscall.EPERM)})
	}
}

// gone reports whether nothing of the group runs any more. After SIGKILL that may be true of a group that still has
// members: zombies whose parent left the group and never waits for them.
func (g *guard) gone() bool {
	err := syscall.Kill(-g.pgid, 0)
	if errors.Is(err, syscall.ESRCH) {
		return true
	}
	if !g.killed || err != nil {
		return false
	}
	g.looks++
	return g.looks%zombieLooks == 0 && onlyZombies(g.pgid)
}
