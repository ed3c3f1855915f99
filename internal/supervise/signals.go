//go:build unix

package supervise

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Signals catches the signals that a supervisor gets, from before it has anything to supervise until after. No
// signal falls between: one that comes before the command runs is seen by Context or handed on to the command,
// or both.
type Signals struct {
	caught  chan os.Signal
	out     chan syscall.Signal // to be handed on; what nobody takes while it is full is dropped
	ctx     context.Context
	cancel  context.CancelCauseFunc
	stop    chan struct{}
	stopped sync.WaitGroup
}

// Catch begins to catch the signals that end a process: INT, TERM, HUP and QUIT. What is ignored from the start (nohup)
// stays ignored, here and in the command. [Signals.Stop] ends it.
func Catch() *Signals {
	s := &Signals{caught: make(chan os.Signal, 32), out: make(chan syscall.Signal, 32), stop: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	// PIPE is caught and dropped: a reader of standard error that went away must not end the supervisor.
	s.also(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	s.stopped.Go(s.relay)
	return s
}

// Context ends with the first signal of those that end a process. The cause is an [*InterruptedError].
func (s *Signals) Context() context.Context { return s.ctx }

// Stop gives all signals back their effect.
func (s *Signals) Stop() {
	signal.Stop(s.caught)
	close(s.stop)
	s.stopped.Wait()
	s.cancel(nil)
}

func (s *Signals) also(sigs ...os.Signal) {
	for _, sig := range sigs {
		if !signal.Ignored(sig) {
			signal.Notify(s.caught, sig)
		}
	}
}

// all also catches what is for the command alone.
func (s *Signals) all() {
	s.also(syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
}

func (s *Signals) relay() {
	for {
		select {
		case caught := <-s.caught:
			sig, ok := caught.(syscall.Signal)
			if !ok || sig == syscall.SIGPIPE {
				continue
			}
			select {
			case s.out <- sig:
			default:
			}
			if ends(sig) {
				s.cancel(&InterruptedError{Signal: sig})
			}
		case <-s.stop:
			return
		}
	}
}

func ends(sig syscall.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGHUP || sig == syscall.SIGQUIT
}
