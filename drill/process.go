package drill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// process is a worker as the conductor sees it. Safe for concurrent use.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	to   *lines
	says *tail // on stderr

	ended  chan struct{} // closed when stdout has ended
	silent chan struct{} // closed when stderr has
	killed sync.Once

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply
	till    heldTill // the last that was acknowledged to it
	claim   fence.Claim
}

// launch starts a worker, which is handed files beside its three; the caller ends it with kill.
func launch(self []string, s setup, files ...*os.File) (*process, error) {
	p := &process{name: s.Name, ended: make(chan struct{}), silent: make(chan struct{}), waiting: map[int]chan reply{}, says: new(tail)}
	p.cmd = exec.Command(self[0], append(self[1:len(self):len(self)], "worker")...)
	p.cmd.ExtraFiles = files
	apart(p.cmd)
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProcess, err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProcess, err)
	}
	words, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProcess, err)
	}
	p.in, p.to = in, &lines{to: in}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProcess, err)
	}
	go p.listen(out)
	go func() {
		defer close(p.silent)
		_, _ = io.Copy(p.says, words) // it ends with the worker
	}()
	if err := p.to.send(s); err != nil {
		p.kill()
		return nil, p.gone("setup", err)
	}
	return p, nil
}

// listen takes in what the worker says, until it says no more.
func (p *process) listen(out io.Reader) {
	defer close(p.ended)
	s := scanner(out, maxLine)
	for {
		var r reply
		if err := receive(s, &r); err != nil {
			return
		}
		p.mu.Lock()
		if r.Held != nil {
			p.till = *r.Held
		}
		if answer := p.waiting[r.ID]; answer != nil {
			delete(p.waiting, r.ID)
			answer <- r // of capacity 1
		}
		p.mu.Unlock()
	}
}

// order sends a command and returns where its answer will be.
func (p *process) order(c command) (<-chan reply, error) {
	p.mu.Lock()
	p.next++
	c.ID = p.next
	answer := make(chan reply, 1)
	p.waiting[c.ID] = answer
	p.mu.Unlock()
	if err := p.to.send(c); err != nil {
		return nil, p.gone(string(c.Op), err)
	}
	return answer, nil
}

// await waits for an answer. An answer that is an error comes as a [*workerError].
func (p *process) await(ctx context.Context, op op, answer <-chan reply) (reply, error) {
	var r reply
	select {
	case r = <-answer:
	case <-p.ended:
		select {
		case r = <-answer: // its last words
		default:
			return r, p.gone(string(op), io.EOF)
		}
	case <-ctx.Done():
		return r, fmt.Errorf("%s: %s: %w", p.name, op, context.Cause(ctx))
	}
	if r.Err != "" {
		return r, &workerError{worker: p.name, op: string(op), text: r.Err, code: r.Code}
	}
	if r.Claim != "" {
		claim, err := fence.ParseClaim(r.Claim)
		if err != nil {
			return r, fmt.Errorf("%s: %s: %w", p.name, op, err)
		}
		p.mu.Lock()
		p.claim = claim
		p.mu.Unlock()
	}
	return r, nil
}

// call is order and await.
func (p *process) call(ctx context.Context, c command) (reply, error) {
	answer, err := p.order(c)
	if err != nil {
		return reply{}, err
	}
	return p.await(ctx, c.Op, answer)
}

// gone says what is known of a worker that does not answer any more.
func (p *process) gone(op string, err error) error {
	p.hear()
	return fmt.Errorf("%w: %s has gone during %s: %w%s", ErrProcess, p.name, op, err, p.says.text())
}

// hear waits until the worker has said its last words, unless somebody else keeps its stderr.
func (p *process) hear() {
	bound := time.NewTimer(time.Second)
	defer bound.Stop()
	select {
	case <-p.silent:
	case <-bound.C:
	}
}

// heldTill is until when, by the last acknowledgement that the worker had, nobody else may be granted.
func (p *process) heldTill() (fence.Token, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claim.Token, p.till.at()
}

// claimText is the claim of its latest grant.
func (p *process) claimText() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claim.String()
}

// stopPoll is between two looks at whether a worker has stopped.
const stopPoll = time.Millisecond

// awaitStopped waits until the kernel says that the worker is stopped, or it has answered instead.
func (p *process) awaitStopped(ctx context.Context, answer <-chan reply) error {
	for {
		stopped, err := isStopped(p.cmd.Process.Pid)
		if stopped {
			return nil
		}
		if err != nil {
			return p.gone("stopping", err)
		}
		select {
		case r := <-answer:
			return &workerError{worker: p.name, op: string(opPause), text: "it did not stop: " + r.Err, code: r.Code}
		case <-p.ended:
			return p.gone("stopping", io.EOF)
		default:
		}
		if !sleep(ctx, stopPoll) {
			return fmt.Errorf("%s: waiting until it is stopped: %w", p.name, context.Cause(ctx))
		}
	}
}

// kill ends the worker at once (SIGKILL), stopped or not, and waits until nothing of it is left. Killing again does nothing.
func (p *process) kill() { p.killed.Do(p.killOnce) }

func (p *process) killOnce() {
	_ = p.cmd.Process.Kill()
	<-p.ended // everything it said is taken in before Wait closes the pipe
	_ = p.in.Close()
	var exit *exec.ExitError
	p.hear() // Wait closes what it is heard by
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		_, _ = p.says.Write([]byte(err.Error())) // it keeps all it can
	}
}

// tail keeps the last of what a worker says on stderr.
type tail struct {
	mu   sync.Mutex
	last []byte
}

const maxTail = 4096

// Write is for exec.Cmd.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	if extra := len(t.last) - maxTail; extra > 0 {
		t.last = t.last[extra:]
	}
	return len(b), nil
}

// text is what was said, for the end of an error.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	said := bytes.TrimSpace(t.last)
	if len(said) == 0 {
		return ""
	}
	return "; its last words: " + string(said)
}
