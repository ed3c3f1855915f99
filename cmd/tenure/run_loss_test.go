//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/sqlite"
)

// stubborn is a command that survives SIGTERM, with a grandchild that does too; both hold the gate open.
func stubborn(g gate) []string {
	return []string{"sh", "-c", `exec 9>` + g.path + `; trap 'echo asked' TERM; (trap '' TERM; while :; do sleep 60; done) &
		echo ready; while :; do sleep 0.05; done`}
}

// TestRunRevoked: SIGTERM, the grace, SIGKILL, and an exit code of its own (L30).
func TestRunRevoked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gate("group")
	p := w.start(append([]string{"run", "job", "--ttl", "3s", "--grace", "300ms", "--json-status", "s", "--"}, stubborn(g)...)...)
	over := make(chan struct{})
	go func() { defer close(over); g.over() }()
	p.line()
	out := w.ok("lease", "revoke", "job", "--token", w.status("s").Tokens[0].String(), "--reason", "host is gone")
	if !strings.Contains(out, "may still be running, and may believe that it holds until") {
		t.Errorf("revoke said %q", out)
	}
	if got := p.line(); got != "asked" {
		t.Errorf("before the end the command said %q, want that it was asked to stop", got)
	}
	<-over
	got := p.wait()
	if got.code != 76 || !strings.Contains(got.last(), "exit 76: the lease was lost while the command was running") || !strings.Contains(got.last(), "revoked (host is gone)") {
		t.Errorf("exit %d, last line %q", got.code, got.last())
	}
	if s := w.status("s"); s.Outcome != "lost" || *s.ExitCode != 76 || s.Lost.How != "revoked" || s.Lost.Reason != "host is gone" || !s.Killed || *s.CommandExitCode != 137 {
		t.Errorf("status %+v", s)
	}
}

// TestRunRevokedGracefully: a command that ends at SIGTERM is not killed, and whatever its own status, the lease was lost.
func TestRunRevokedGracefully(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("run", "job", "--ttl", "3s", "--json-status", "s", "--", "sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")
	p.line()
	w.ok("lease", "revoke", "job", "--token", w.status("s").Tokens[0].String(), "--reason", "x")
	if got := p.wait(); got.code != 76 {
		t.Errorf("exit %d\n%s", got.code, got.stderr)
	}
	if s := w.status("s"); s.Killed || *s.CommandExitCode != 0 || s.Lost.How != "revoked" {
		t.Errorf("status %+v", s)
	}
}

// TestRunRevokedUnnoticed: a lease that was revoked after the last renewal is lost, although the command ended by itself
// before anybody here knew: it may have gone on under a successor.
func TestRunRevokedUnnoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, g := w.holder("job")
	token := p.line()
	w.ok("lease", "revoke", "job", "--token", token, "--reason", "x")
	g.open()
	if got := p.wait(); got.code != 76 || !strings.Contains(got.last(), "maybe while the command was running") {
		t.Errorf("exit %d, last line %q", got.code, got.last())
	}
}

// TestRunStopHook: a stop hook that sleeps for a minute does not outlive the lease (L33).
func TestRunStopHook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gate("group")
	const ttl = 3 * time.Second
	p := w.start("run", "job", "--ttl", ttl.String(), "--json-status", "s", "--", "sh", "-c", "exec 9>"+g.path+"; trap 'echo hook; sleep 60; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
	over := make(chan struct{})
	go func() { defer close(over); g.over() }()
	p.line()
	begin := time.Now()
	w.ok("lease", "revoke", "job", "--token", w.status("s").Tokens[0].String(), "--reason", "x")
	if got := p.line(); got != "hook" {
		t.Fatalf("the command said %q", got)
	}
	<-over
	if took := time.Since(begin); took > ttl {
		t.Errorf("the hook ran for %v after the revocation, with a TTL of %v", took, ttl)
	}
	if got := p.wait(); got.code != 76 {
		t.Errorf("exit %d\n%s", got.code, got.stderr)
	}
}

// holdWriter is a process that takes the writer's turn, says so, and is stopped inside it. It is the authority being away:
// nothing on the file can be written until it is continued or killed.
func holdWriter(path string) int {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	session := lease.NewID()
	_, err = s.Open(ctx, lease.OpenRequest{ID: session, TTL: time.Hour})
	var grants []lease.Grant
	if err == nil {
		grants, err = s.Acquire(ctx, lease.AcquireRequest{Session: session, ID: lease.NewID(), Names: []string{"blocker"}})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	err = s.Fenced(ctx, grants[0].Claim, func(context.Context, *sqlite.Tx) error {
		continued := make(chan os.Signal, 1)
		signal.Notify(continued, syscall.SIGCONT)
		fmt.Println("inside")
		err := syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-continued // the stop may take other threads first
		return err
	})
	fmt.Println("outside", err)
	return 0
}

// blocker is a holdWriter process.
type blocker struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Reader
}

// blocker starts a process that blocks the authority once it is told to.
func (w *world) blocker() *blocker {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(self, "hold-writer", strings.TrimPrefix(w.store, "sqlite:"))
	cmd.Env = w.env
	inR, in := w.pipe()
	out, outW := w.pipe()
	cmd.Stdin, cmd.Stdout = inR, outW
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	outW.Close()
	w.t.Cleanup(func() { in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	b := &blocker{w.t, cmd, in, bufio.NewReader(out)}
	b.expect("ready")
	return b
}

func (b *blocker) expect(want string) {
	b.t.Helper()
	if line, err := b.out.ReadString('\n'); err != nil || strings.TrimSpace(line) != want {
		b.t.Fatalf("the blocking process said %q, %v; want %q", line, err, want)
	}
}

// block returns once nothing can be written any more.
func (b *blocker) block() {
	b.t.Helper()
	if _, err := b.in.WriteString("block\n"); err != nil {
		b.t.Fatal(err)
	}
	b.expect("inside")
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(b.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		b.t.Fatalf("the blocking process is not stopped: %v, %v", status, err)
	}
}

func (b *blocker) unblock() {
	b.t.Helper()
	if err := b.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		b.t.Fatal(err)
	}
}

// TestRunBlackHole: behind an authority that answers nothing the whole group is stopped before the TTL has passed (L26).
func TestRunBlackHole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gate("group")
	const ttl = 3 * time.Second
	b := w.blocker()
	p := w.start(append([]string{"run", "job", "--ttl", ttl.String(), "--json-status", "s", "--"}, stubborn(g)...)...)
	over := make(chan struct{})
	go func() { defer close(over); g.over() }()
	p.line()
	b.block()
	begin := time.Now()
	if got := p.line(); got != "asked" {
		t.Errorf("the command said %q, want that it was asked to stop", got)
	}
	<-over
	if took := time.Since(begin); took >= ttl {
		t.Errorf("the group lived for %v, with a TTL of %v", took, ttl)
	}
	if got := p.wait(); got.code != 76 || !strings.Contains(got.last(), "uncertain") {
		t.Errorf("exit %d, last line %q", got.code, got.last())
	}
	if took := time.Since(begin); took > ttl+3*time.Second {
		t.Errorf("tenure itself ended only after %v", took)
	}
	if s := w.status("s"); s.Outcome != "lost" || s.Lost.How != "uncertain" || !s.Killed {
		t.Errorf("status %+v", s)
	}
	b.unblock()
}

// TestRunShortOutage: an authority that is away for 2 s does not touch a command with a TTL of 15 s (L29), nor does an outage
// of a sixth of a shorter TTL that certainly meets a renewal.
func TestRunShortOutage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ttl, outage time.Duration }{{15 * time.Second, 2 * time.Second}, {3 * time.Second, 1200 * time.Millisecond}} {
		t.Run(c.ttl.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			g := w.gate("go")
			b := w.blocker()
			p := w.start("run", "job", "--ttl", c.ttl.String(), "--", "sh", "-c", "trap 'echo asked' TERM; echo ready; read x <"+g.path+"; echo alive")
			p.line()
			b.block()
			<-time.After(c.outage) // the outage itself: there is nothing to wait for in it
			b.unblock()
			w.ok("lease", "show", "job")
			g.open()
			if got := p.rest(); got != "alive\n" {
				t.Errorf("the command said %q", got)
			}
			if got := p.wait(); got.code != 0 || strings.Contains(got.stderr, "SIGTERM") {
				t.Errorf("exit %d\n%s", got.code, got.stderr)
			}
		})
	}
}

// TestRunStoreBlocked: a store that cannot be opened because a stopped process is in the way is 77, with the process named.
func TestRunStoreBlocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.blocker()
	b.block()
	got := w.do("run", "job", "--wait", "500ms", "--", "true")
	if got.code != 77 || !strings.Contains(got.last(), fmt.Sprint(b.cmd.Process.Pid)) {
		t.Errorf("exit %d, last line %q; want 77 naming process %d", got.code, got.last(), b.cmd.Process.Pid)
	}
	b.unblock()
}

// TestRunInterruptedOpening: a signal also ends the wait for a store that cannot be opened.
func TestRunInterruptedOpening(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.blocker()
	b.block()
	p := w.start("run", "job", "--json-status", "s", "--", "true")
	await(t, func() bool { _, err := os.Stat(w.dir + "/s"); return err == nil })
	p.signal(syscall.SIGTERM)
	if got := p.wait(); got.code != 143 || !strings.Contains(got.last(), "nothing is held") {
		t.Errorf("exit %d\n%s", got.code, got.stderr)
	}
	b.unblock()
}

// TestRunWaitOutage: who waits without limit waits through an outage that ends every session, its own too.
func TestRunWaitOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gate("go")
	b := w.blocker()
	holder := w.start("run", "job", "--ttl", "3s", "--", "sh", "-c", "echo held; read x <"+g.path)
	holder.line()
	waiter := w.start("run", "job", "--ttl", "3s", "--", "echo", "got it")
	waiter.await("waiting:")
	b.block()
	if got := holder.wait(); got.code != 76 {
		t.Errorf("the holder: exit %d\n%s", got.code, got.stderr)
	}
	<-time.After(3 * time.Second) // by now the waiter's session is over too, as long as nothing can be written
	b.unblock()
	if got := waiter.line(); got != "got it" {
		t.Errorf("the waiter said %q", got)
	}
	if got := waiter.wait(); got.code != 0 {
		t.Errorf("the waiter: exit %d\n%s", got.code, got.stderr)
	}
}

// TestRunSupervisorKilled: with tenure killed by SIGKILL its command dies, grandchildren included; renewals stop, and the name
// comes free within the TTL (L45).
func TestRunSupervisorKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gate("group")
	p := w.start(append([]string{"run", "job", "--ttl", "2s", "--"}, stubborn(g)...)...)
	over := make(chan struct{})
	go func() { defer close(over); g.over() }()
	p.line()
	begin := time.Now()
	p.signal(syscall.SIGKILL)
	<-over
	if got := w.do("run", "job", "--wait", "10s", "--", "true"); got.code != 0 {
		t.Errorf("the successor: exit %d\n%s", got.code, got.stderr)
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("the successor got the name only after %v", took)
	}
	if rest := p.rest(); rest != "" { // ends when the guard is gone too
		t.Errorf("the command said %q", rest)
	}
}

// TestRunSupervisorStopped: with tenure stopped by SIGSTOP nothing is renewed, and its guard stops the command in time.
func TestRunSupervisorStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gate("group")
	const ttl = 2 * time.Second
	p := w.start(append([]string{"run", "job", "--ttl", ttl.String(), "--"}, stubborn(g)...)...)
	over := make(chan struct{})
	go func() { defer close(over); g.over() }()
	p.line()
	begin := time.Now()
	p.signal(syscall.SIGSTOP)
	<-over
	if took := time.Since(begin); took >= ttl {
		t.Errorf("the group lived for %v, with a TTL of %v", took, ttl)
	}
	p.signal(syscall.SIGCONT)
	if got := p.wait(); got.code != 76 {
		t.Errorf("exit %d\n%s", got.code, got.stderr)
	}
}

// TestRunMaxHold: the longest hold stops the command like any other end of the lease.
func TestRunMaxHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	begin := time.Now()
	got := w.do("run", "job", "--ttl", "1s", "--max-hold", "2s", "--json-status", "s", "--", "sleep", "60")
	if took := time.Since(begin); got.code != 76 || took > 3*time.Second {
		t.Errorf("exit %d after %v\n%s", got.code, took, got.stderr)
	}
	if s := w.status("s"); s.Lost == nil || s.Lost.How != "max_hold" {
		t.Errorf("status %+v, lost %+v", s, s.Lost)
	}
}

// TestRunSignals: signals reach the command, which decides what to make of them (L89).
func TestRunSignals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH} {
		p := w.start("run", "job", "--", "sh", "-c", fmt.Sprintf("trap 'echo caught' %d; echo ready; read x <go%d || read x <go%d", sig, sig, sig))
		g := w.gate(fmt.Sprintf("go%d", sig))
		p.line()
		p.signal(sig)
		if got := p.line(); got != "caught" {
			t.Errorf("%v: the command said %q", sig, got)
		}
		g.open()
		if got := p.wait(); got.code != 0 {
			t.Errorf("%v: exit %d\n%s", sig, got.code, got.stderr)
		}
	}
	p := w.start("run", "job", "--", "sh", "-c", "echo ready; exec sleep 60")
	p.line()
	p.signal(syscall.SIGTERM)
	if got := p.wait(); got.code != 143 {
		t.Errorf("without a trap: exit %d, want 143\n%s", got.code, got.stderr)
	}
}

// TestRunFencedChild: the claim in the environment is what a resource accepts while the lease lasts and refuses afterwards.
func TestRunFencedChild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	s, err := sqlite.Open(ctx, sqlite.Config{Path: strings.TrimPrefix(w.store, "sqlite:")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	}()
	g := w.gate("go")
	p := w.start("run", "job", "--", "sh", "-c", "echo $TENURE_CLAIM; read x <"+g.path)
	claim, err := fence.ParseClaim(p.line())
	if err != nil {
		t.Fatal(err)
	}
	nothing := func(context.Context, *sqlite.Tx) error { return nil }
	if err := s.Fenced(ctx, claim, nothing); err != nil {
		t.Errorf("while it holds: %v", err)
	}
	g.open()
	p.wait()
	if err := s.Fenced(ctx, claim, nothing); lease.CodeOf(err) != "refused" {
		t.Errorf("afterwards: %v, want a refusal", err)
	}
}
