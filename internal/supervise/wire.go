//go:build unix

package supervise

import (
	"encoding/json"
	"os"
	"syscall"
	"time"

	"github.com/tenure-go/tenure/internal/clock"
)

// order is what the supervisor tells the guard, one JSON value a line. Instants are readings of sharedClock.
type order struct {
	Op       string        `json:"op"`
	Deadline time.Duration `json:"deadline_ns,omitempty"` // start, extend
	Grace    time.Duration `json:"grace_ns,omitempty"`    // start
	Reserve  time.Duration `json:"reserve_ns,omitempty"`  // start
	Terminal bool          `json:"terminal,omitempty"`    // start: give the command the terminal
	Signal   int           `json:"signal,omitempty"`      // signal
}

// The orders. The end of the stream is one too: kill.
const (
	opStart  = "start"  // the first, once
	opExtend = "extend" // the deadline moved on
	opStop   = "stop"   // end the command, with the grace that the deadline leaves
	opSignal = "signal" // hand a signal to the group
)

// report is what the guard tells the supervisor.
type report struct {
	Op     string `json:"op"`
	PID    int    `json:"pid,omitempty"`    // started: of the command, and so of its group
	Errno  int    `json:"errno,omitempty"`  // failed, denied
	Status int    `json:"status,omitempty"` // exited: the raw wait status; stopped: the signal
}

// The reports.
const (
	opStarted = "started"
	opFailed  = "failed"  // the command could not be executed; nothing is running
	opLate    = "late"    // the time was over before the command was started
	opStopped = "stopped" // the command was stopped by a signal
	opTerm    = "term"    // the group was asked to stop
	opKill    = "kill"    // the group is made to stop
	opDenied  = "denied"  // a signal to the group was refused
	opExited  = "exited"  // the command ended; others of its group may go on
	opOver    = "over"    // nothing of the group is left
)

// sendWait bounds a write to the other process, which may be stopped while the socket's buffer is full.
const sendWait = 100 * time.Millisecond

// link is one end of the socket between supervisor and guard. Send is for one goroutine, receive for another.
type link struct {
	file *os.File
	enc  *json.Encoder
	dec  *json.Decoder
}

func newLink(fd int, name string) *link {
	_ = syscall.SetNonblock(fd, true) // so that os.File can give up a write
	file := os.NewFile(uintptr(fd), name)
	return &link{file: file, enc: json.NewEncoder(file), dec: json.NewDecoder(file)}
}

// send writes one value. After a failure, half a value may be on its way, so that is the end of this direction: the
// other side reads it as such. What the other side said before stays readable.
func (l *link) send(v any) {
	err := l.file.SetWriteDeadline(time.Now().Add(sendWait))
	if err == nil {
		err = l.enc.Encode(v)
	}
	if err == nil {
		return
	}
	if raw, err := l.file.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_WR) })
	}
}

// end gives up this side of the link. There is nothing in it that closing could still lose.
func (l *link) end() { _ = l.file.Close() }

// receive decodes values of one type until the link ends, then closes the channel.
func receive[T any](l *link) <-chan T {
	out := make(chan T, 16)
	go func() {
		defer close(out)
		for {
			var v T
			if l.dec.Decode(&v) != nil {
				return
			}
			out <- v
		}
	}()
	return out
}

// sharedClock is a clock whose readings mean the same in the supervisor and in the guard, and which goes on
// while the machine sleeps.
func sharedClock() clock.Source {
	source, _, err := clock.Kernel()
	if err != nil {
		return clock.Boot() // on Linux, the only system where Kernel fails, that too is the kernel's own
	}
	return source
}
