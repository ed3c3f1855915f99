//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/memory"
)

// stepWord is the first argument of a process that is `tenure run` up to a step, where it says so and waits to be killed.
const stepWord = "once-step"

// runToStep is that process. A step of "twin" is none: the operations are kept in the process alone, a deliberately broken store.
func runToStep(step string, args []string) int {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, env: environment{getenv: os.Getenv, uid: os.Getuid()},
		opener: func(ctx context.Context, l location, o openOptions) (store, error) {
			s, err := openStore(ctx, l, o)
			if err != nil {
				return nil, err
			}
			ops, err := operationsOf(s)
			if step == "twin" {
				ops = memory.NewOperations(memory.Options{})
			}
			return steppedStore{s, &steppedOps{ops, step}}, err
		}}
	return a.run(context.Background(), args)
}

type steppedStore struct {
	store
	ops *steppedOps
}

func (s steppedStore) Operations() operation.Backend { return s.ops }

func (s steppedStore) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	grants, err := s.store.Acquire(ctx, req)
	s.ops.reach("acquired")
	return grants, err
}

func (s steppedStore) Release(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
	s.ops.reach("before release")
	released, err := s.store.Release(ctx, req)
	s.ops.reach("after release")
	return released, err
}

type steppedOps struct {
	operation.Backend
	step string
}

// reach stops the process for good where the test wants it.
func (s *steppedOps) reach(step string) {
	if s.step == step {
		fmt.Println("at", step)
		_, _ = io.Copy(io.Discard, os.Stdin) // until killed
	}
}

func (s *steppedOps) Submit(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
	s.reach("before submit")
	sub, err := s.Backend.Submit(ctx, req)
	s.reach("after submit")
	return sub, err
}

func (s *steppedOps) Claim(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
	s.reach("before claim")
	jobs, err := s.Backend.Claim(ctx, req)
	s.reach("after claim")
	if s.step == "lost claim" { // its reply
		return nil, &operation.UnknownError{Op: "claim", Err: errors.New("the connection broke")}
	}
	return jobs, err
}

func (s *steppedOps) Complete(ctx context.Context, all []operation.Completion) ([]error, error) {
	s.reach("before complete")
	errs, err := s.Backend.Complete(ctx, all)
	s.reach("after complete")
	if s.step == "lost completion" {
		s.step = ""
		return nil, &operation.UnknownError{Op: "complete", Err: errors.New("the connection broke")}
	}
	return errs, err
}

// stepped starts `tenure run` as a process that stops at a step.
func (w *world) stepped(step string, args ...string) *process {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(self, append([]string{stepWord, step, "run"}, args...)...)
	cmd.Env, cmd.Dir = w.env, w.dir
	stdin, stdinW := w.pipe()
	w.t.Cleanup(func() { stdinW.Close() })
	cmd.Stdin = stdin
	return w.startCommand(cmd)
}

// effects is how often the command of these tests has had its effect.
func (w *world) effects() int {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "effects"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	return strings.Count(string(text), "done")
}

// effect is a command that has an effect, says so and ends.
func effect() []string { return []string{"sh", "-c", "echo done >> effects; echo ran"} }

func onceArgs(more ...string) []string {
	return append([]string{"job", "--once", "k", "--ttl", "2s", "--wait", "30s"}, more...)
}

// onceStep is where a run is killed, and what follows for others under its key.
type onceStep struct {
	step   string
	before int // effects before the successors
	after  int
	code   int // of a successor
}

func onceStepsOf() []onceStep {
	return []onceStep{
		{"acquired", 0, 1, 0},
		{"before submit", 0, 1, 0},
		{"after submit", 0, 1, 0},
		{"before claim", 0, 1, 0},
		{"after claim", 0, 0, exitUncertain},
		{"running", 1, 1, exitUncertain},
		{"before complete", 1, 1, exitUncertain},
		{"after complete", 1, 1, 0},
		{"before release", 1, 1, 0},
		{"after release", 1, 1, 0},
	}
}

// TestOnceKilledAtEachStep: a run is killed by SIGKILL at each step, and others come under the same key, two at once: an occurrence is never run twice,
// one that was done is not run again, and one that may have been is not either (L67).
func TestOnceKilledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, c := range onceStepsOf() {
		t.Run(c.step, func(t *testing.T) {
			t.Parallel()
			newWorld(t).killedAtStep(c)
		})
	}
}

// TestPostgresOnceKilledAtEachStep: the same on PostgreSQL.
func TestPostgresOnceKilledAtEachStep(t *testing.T) {
	t.Parallel()
	s := testdb.Shared(t)
	for _, c := range onceStepsOf() {
		t.Run(c.step, func(t *testing.T) {
			t.Parallel()
			w, _ := postgresWorld(t, s)
			w.killedAtStep(c)
		})
	}
}

func (w *world) killedAtStep(c onceStep) {
	w.t.Helper()
	command := effect()
	if c.step == "running" {
		command[2] += "; echo at running; read x < " + w.gate("never").path
	}
	p := w.stepped(c.step, append(onceArgs("--"), command...)...)
	for p.line() != "at "+c.step {
	}
	p.signal(syscall.SIGKILL)
	p.wait()
	if n := w.effects(); n != c.before {
		w.t.Fatalf("%d effects before the successors, want %d", n, c.before)
	}
	again := append(append([]string{"run"}, onceArgs("--")...), effect()...)
	for _, p := range []*process{w.start(again...), w.start(again...)} {
		if got := p.wait(); got.code != c.code {
			w.t.Errorf("a successor: exit %d, want %d\n%s", got.code, c.code, got.stderr)
		}
	}
	if n := w.effects(); n != c.after {
		w.t.Errorf("%d effects, want %d", n, c.after)
	}
	if c.code == exitUncertain {
		w.settle(c.before)
	}
}

// settle decides an uncertain occurrence as an operator who has looked does, and runs it again.
func (w *world) settle(was int) {
	w.t.Helper()
	verdict := map[bool]string{true: "--succeeded", false: "--not-done"}[was > 0]
	w.ok("op", "resolve", "job@k", verdict, "--reason", "looked at the effects", "--yes")
	w.ok(append(append([]string{"run"}, onceArgs("--")...), effect()...)...)
	if n := w.effects(); n != 1 {
		w.t.Errorf("%d effects after the verdict, want 1", n)
	}
}

// killedAndRunAgain kills a run in its command, runs the occurrence again, and says how many effects there were.
func (w *world) killedAndRunAgain(step string) int {
	w.t.Helper()
	p := w.stepped(step, append(onceArgs("--"), "sh", "-c", "echo done >> effects; echo begun; read x < "+w.gate("never").path)...)
	p.line()
	p.signal(syscall.SIGKILL)
	p.wait()
	w.do(append(append([]string{"run"}, onceArgs("--")...), effect()...)...)
	return w.effects()
}

// TestOnceTwinWithoutRecord: a twin that records its attempt nowhere but in its own memory is seen to run an occurrence twice, by what shows that the command does not.
func TestOnceTwinWithoutRecord(t *testing.T) {
	t.Parallel()
	if n := newWorld(t).killedAndRunAgain(""); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
	if n := newWorld(t).killedAndRunAgain("twin"); n != 2 {
		t.Errorf("the twin: %d effects, want 2: nothing here would catch it", n)
	}
}

// TestOnceLostReplies: a reply that is lost stops nothing: the attempt is known for the run's own, and the outcome is recorded once.
func TestOnceLostReplies(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"lost claim", "lost completion"} {
		w := newWorld(t)
		p := w.stepped(step, append(onceArgs("--json-status", "s", "--"), effect()...)...)
		if got := p.wait(); got.code != 0 || w.effects() != 1 {
			t.Errorf("%s: exit %d, %d effects\n%s", step, got.code, w.effects(), got.stderr)
		}
		if s := w.status("s"); s.Occurrence == nil || s.Occurrence.State != "succeeded" || s.Occurrence.ID != "job@k" {
			t.Errorf("%s: %+v", step, s.Occurrence)
		}
	}
}
