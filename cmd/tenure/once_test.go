//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/sqlite"
)

// operations are those of the world's file, opened in the test's own process.
func (w *world) operations() operation.Backend {
	w.t.Helper()
	s, err := sqlite.Open(w.t.Context(), sqlite.Config{Path: strings.TrimPrefix(w.store, "sqlite:")})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	return s.Operations()
}

// once is a run of the occurrence k of job.
func (w *world) once(args ...string) ended {
	w.t.Helper()
	return w.do(append([]string{"run", "job", "--once", "k"}, args...)...)
}

// TestOnce: an occurrence that was done is not run again, and says by whom; another key, and another name, is another one.
func TestOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if got := w.once("--owner", "host a", "--", "sh", "-c", "echo $TENURE_OPERATION $TENURE_ATTEMPT"); got.code != 0 || !strings.HasPrefix(got.stdout, "job@k ") || !strings.Contains(got.last(), `occurrence "k" of "job" is done`) {
		t.Errorf("the first: %+v", got)
	}
	got := w.once("--owner", "host b", "--json-status", "s", "--", "sh", "-c", "another command")
	if got.code != 0 || got.stdout != "" || !strings.Contains(got.last(), `was done `) || !strings.Contains(got.last(), `by "host a `) {
		t.Errorf("again: %+v", got)
	}
	if s := w.status("s"); s.Outcome != "done_before" || *s.ExitCode != 0 || s.CommandExitCode != nil || *s.Occurrence != (occurrenceStatus{"job@k", "succeeded"}) {
		t.Errorf("status: %+v", s)
	}
	for _, other := range [][]string{{"job", "--once", "l"}, {"job 2", "--once", "k"}, {"job@k", "--once", "k"}, {"job"}} {
		if got := w.ok(append(append([]string{"run"}, other...), "--", "sh", "-c", "echo ran ${TENURE_OPERATION-none}")...); !strings.HasPrefix(got, "ran ") || len(other) == 1 && got != "ran none\n" {
			t.Errorf("%q: %q", other, got)
		}
	}
}

// TestOnceOuter: an inner run without --once does not hand on the occurrence of the outer one.
func TestOnceOuter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.once("--", binary, "run", "inner", "--store", w.store, "--", "sh", "-c", "echo ${TENURE_OPERATION-none}, ${TENURE_ATTEMPT-none}")
	if got.stdout != "none, none\n" {
		t.Errorf("got %+v", got)
	}
}

// TestOnceContention: of many at the same time, one runs, and all others find that it was done.
func TestOnceContention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all []*process
	for range 6 {
		all = append(all, w.start(append([]string{"run", "job", "--once", "k", "--"}, effect()...)...))
	}
	found := 0
	for _, p := range all {
		got := p.wait()
		if got.code != 0 {
			t.Errorf("exit %d\n%s", got.code, got.stderr)
		}
		found += strings.Count(got.stderr, "nothing was run")
	}
	if n := w.effects(); n != 1 || found != 5 {
		t.Errorf("%d effects, and %d found it done; want 1 and 5", n, found)
	}
}

// TestOnceInProgress: an occurrence in progress elsewhere is as a lease that is held.
func TestOnceInProgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gate("go")
	p := w.start("run", "job", "--once", "k", "--", "sh", "-c", "echo done >> effects; echo ran; read x < "+g.path)
	p.line()
	if got := w.once("--try", "--", "true"); got.code != exitNotAcquired || !strings.Contains(got.last(), "held by") {
		t.Errorf("--try: %+v", got)
	}
	waiter := w.start(append([]string{"run", "job", "--once", "k", "--"}, effect()...)...)
	waiter.await("waiting:")
	g.open()
	if got := waiter.wait(); got.code != 0 || w.effects() != 1 {
		t.Errorf("the waiter: exit %d, %d effects\n%s", got.code, w.effects(), got.stderr)
	}
	p.wait()
}

// TestOnceFailed: a run that failed may be repeated, with a command line that was mended; with --once-final it may not.
func TestOnceFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 2 {
		if got := w.once("--", "sh", "-c", "exit 3"); got.code != 3 || !strings.Contains(got.last(), "may be run again") {
			t.Errorf("failing: %+v", got)
		}
	}
	notProgram := filepath.Join(w.dir, "garbage")
	if err := os.WriteFile(notProgram, []byte("\x00\x01"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := w.once("--", notProgram); got.code != exitCannotRun || !strings.Contains(got.last(), "may be run again") {
		t.Errorf("not a program: %+v", got)
	}
	if got := w.once("--once-final", "--", "sh", "-c", "exit 4"); got.code != 4 || !strings.Contains(got.last(), "is failed") {
		t.Errorf("for good: %+v", got)
	}
	if got := w.once("--json-status", "s", "--", "touch", "ran"); got.code != exitFailed || !strings.Contains(got.last(), "is failed, since") || w.status("s").Outcome != "decided_before" {
		t.Errorf("afterwards: %+v", got)
	}
	rec, err := w.operations().Get(t.Context(), "job@k")
	if err != nil || fmt.Sprint(known(rec)) != "[refused refused not sent refused]" {
		t.Errorf("attempts %v, %v", known(rec), err)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "ran")); err == nil {
		t.Error("the command was run")
	}
}

func known(rec operation.Record) (all []operation.Known) {
	for _, a := range rec.Attempts {
		all = append(all, a.Known)
	}
	return all
}

// TestOnceCancelled: an occurrence that an operator has cancelled is not run.
func TestOnceCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.once("--", "false")
	w.ok("op", "cancel", "job@k", "--reason", "holiday\x1b[2J") // a reason is anybody's text, and no command to a terminal
	if got := w.once("--", "touch", "ran"); got.code != exitFailed || !strings.Contains(got.last(), "is cancelled") || !strings.Contains(got.last(), "holiday") || strings.Contains(got.stderr, "\x1b") {
		t.Errorf("%+v", got)
	}
}

// TestOnceAgain: a command that may run twice is run again though a run of it ended without an answer, if that one said so too.
func TestOnceAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kill := []string{"--again", "--", "sh", "-c", "echo done >> effects; kill -KILL $$"}
	if got := w.once(kill...); got.code != 137 || !strings.Contains(got.last(), "is uncertain") {
		t.Errorf("killed: %+v", got)
	}
	if got := w.once("--", "touch", "ran"); got.code != exitUncertain || !strings.Contains(got.last(), "--again if it may safely run twice") {
		t.Errorf("without --again: %+v", got)
	}
	if got := w.once("--again", "--", "false"); got.code != 1 || !strings.Contains(got.last(), "is uncertain") {
		t.Errorf("a failure proves nothing of the first run: %+v", got)
	}
	if got := w.once(append([]string{"--again", "--"}, effect()...)...); got.code != 0 || w.effects() != 2 {
		t.Errorf("again: %+v, %d effects", got, w.effects())
	}
	if got := w.do("run", "job", "--once", "l", "--", "sh", "-c", "kill -KILL $$"); got.code != 137 {
		t.Errorf("without --again: %+v", got)
	}
	if got := w.do("run", "job", "--once", "l", "--again", "--", "touch", "ran"); got.code != exitUncertain || !strings.Contains(got.last(), "began without --again") {
		t.Errorf("--again too late: %+v", got)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "ran")); err == nil {
		t.Error("the command was run")
	}
}

// TestOnceLostLease: a command that is stopped because its lease was lost may have done its work.
func TestOnceLostLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("run", "job", "--once", "k", "--ttl", "2s", "--", "sh", "-c", "trap 'exit 0' TERM; echo $TENURE_TOKEN; while :; do sleep 0.05; done")
	w.ok("lease", "revoke", "job", "--token", p.line(), "--reason", "stuck")
	if got := p.wait(); got.code != exitLost || !strings.Contains(got.last(), "is uncertain: look whether it was") {
		t.Errorf("exit %d\n%s", got.code, got.stderr)
	}
	if got := w.once("--", "true"); got.code != exitUncertain {
		t.Errorf("the next: %+v", got)
	}
}

// TestOnceStaleCompletion: what a command made of an attempt that was given up meanwhile is recorded all the same: it decides, or contradicts.
func TestOnceStaleCompletion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, said, state string
		verdict           operation.State
		conflicts         int
	}{
		{"given up", "is done", "succeeded", 0, 0},
		{"and decided otherwise", "settled otherwise meanwhile, and is failed", "failed", operation.Failed, 1},
	} {
		w := newWorld(t)
		g := w.gate("go")
		p := w.start("run", "job", "--once", "k", "--json-status", "s", "--", "sh", "-c", "echo $TENURE_ATTEMPT; read x < "+g.path)
		number, err := fence.ParseToken(p.line())
		if err != nil {
			t.Fatal(err)
		}
		ops := w.operations()
		if _, err := ops.Respond(t.Context(), operation.Response{ID: "job@k", Number: number, Answer: operation.Answer{Known: operation.NoAnswer}}); err != nil {
			t.Fatal(err)
		}
		if c.verdict != 0 {
			w.ok("op", "resolve", "job@k", "--failed", "--reason", "a mistake", "--yes")
		}
		g.open()
		if got := p.wait(); got.code != 0 || !strings.Contains(got.stderr, c.said) || w.status("s").Occurrence.State != c.state {
			t.Errorf("%s: exit %d\n%s", c.name, got.code, got.stderr)
		}
		if rec, err := ops.Get(t.Context(), "job@k"); err != nil || rec.State.String() != c.state || rec.ConflictCount != c.conflicts {
			t.Errorf("%s: %+v, %v", c.name, rec, err)
		}
	}
}

// TestOnceStoreAway: an outcome is recorded when the store is back.
func TestOnceStoreAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.blocker()
	g, ended := w.gate("go"), w.gate("ended")
	p := w.start("run", "job", "--once", "k", "--ttl", "60s", "--", "sh", "-c", "exec 9>"+ended.path+"; echo ran; read x < "+g.path)
	over := ended.watch()
	p.line()
	b.block()
	g.open()
	<-over
	b.unblock()
	if got := p.wait(); got.code != 0 || !strings.Contains(got.last(), "is done") {
		t.Errorf("exit %d\n%s", got.code, got.stderr)
	}
}

// TestOnceKeepsItsClaim: the claim is renewed while the command runs: nobody who ends what has expired takes the attempt for a dead one.
func TestOnceKeepsItsClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gate("go")
	p := w.start("run", "job", "--once", "k", "--ttl", "2s", "--", "sh", "-c", "echo ran; read x < "+g.path)
	p.line()
	ops, begin := w.operations(), time.Now()
	await(t, func() bool {
		if n, err := ops.Expire(t.Context(), 10); n != 0 || err != nil {
			t.Fatalf("%d expired, %v", n, err)
		}
		return time.Since(begin) > 3*time.Second
	})
	g.open()
	if got := p.wait(); got.code != 0 {
		t.Errorf("exit %d\n%s", got.code, got.stderr)
	}
}

// TestOnceOtherUse: an id that is in use for something else, and one that is not due, runs nothing.
func TestOnceOtherUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("migrate")
	w.ok("op", "submit", "charge", "job@k")
	if got := w.once("--", "touch", "ran"); got.code != exitFailed || !strings.Contains(got.last(), "another kind") {
		t.Errorf("another kind: %+v", got)
	}
	w.ok("op", "submit", "run", "job@l", "--request", `{"name": "job", "key": "l"}`, "--run-in", "1h")
	if got := w.do("run", "job", "--once", "l", "--", "touch", "ran"); got.code != exitNotAcquired || !strings.Contains(got.last(), "cannot begin now") {
		t.Errorf("not due: %+v", got)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "ran")); err == nil {
		t.Error("the command was run")
	}
}

// TestOnceBadInput: nothing is recorded, and nothing is run.
func TestOnceBadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, args := range [][]string{
		{"job", "--once", ""}, {"job", "--again"}, {"job", "--once-final"}, {"job", "other", "--once", "k"}, {"job", "--once", "a\nb"},
		{"job", "--once", "a\xff"}, {"job", "--once", strings.Repeat("x", 253)}, {strings.Repeat("@", 100), "--once", "k"},
	} {
		if got := w.do(append(append([]string{"run"}, args...), "--", "touch", "ran")...); got.code != exitUsage || !strings.HasPrefix(got.last(), "tenure: ") {
			t.Errorf("%.60q: exit %d\n%s", args, got.code, got.stderr)
		}
	}
	files, err := os.ReadDir(w.dir)
	if err != nil || len(files) != 0 {
		t.Errorf("made: %v, %v", files, err)
	}
}

// TestOnceID: no two pairs have one id.
func TestOnceID(t *testing.T) {
	seen := map[string][2]string{}
	parts := []string{"a", "@", "%", "a@", "@a", "%40", "40", "%25", "a@b", "%2540", "b@c", "c", "@@", ""}
	for _, name := range parts {
		for _, key := range parts {
			id := onceID(name, key)
			if was, ok := seen[id]; ok {
				t.Errorf("%q is of %q and of %q", id, was, [2]string{name, key})
			}
			seen[id] = [2]string{name, key}
		}
	}
	if id := onceID("nightly-report", "2026-11-30"); id != "nightly-report@2026-11-30" {
		t.Errorf("got %q", id)
	}
}

// TestShellWord: what the last line gives to copy is one word.
func TestShellWord(t *testing.T) {
	for text, want := range map[string]string{"job@k": "job@k", "a b": "'a b'", "-x": "'-x'", "it's": `'it'\''s'`, "$(x)": "'$(x)'"} {
		if got := shellWord(text); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// TestOnceFinish: a store that never answers again leaves the occurrence uncertain, with an exit code of its own.
func TestOnceFinish(t *testing.T) {
	var said bytes.Buffer
	code := 0
	r := &runner{app: &app{stderr: &said}, o: runOptions{names: []string{"job"}, once: onceOptions{key: "k"}},
		status: status{Outcome: "exited", Text: "the command exited with 0", CommandExitCode: &code, Occurrence: &occurrenceStatus{ID: "job@k"}}}
	ctx, cancel := context.WithCancel(t.Context())
	c := &occurrence{runner: r, ops: deadOps{cancel: cancel}, req: operation.SubmitRequest{ID: "job@k"}}
	c.record(ctx, operation.Answer{Known: operation.Effective})
	if r.status.Outcome != "unrecorded" || *r.status.ExitCode != exitUncertain || !strings.Contains(r.status.Text, "was not recorded") || !strings.Contains(r.status.Text, "op resolve job@k") {
		t.Errorf("got %+v", r.status)
	}
}

// deadOps do not answer.
type deadOps struct {
	operation.Backend
	cancel context.CancelFunc
}

func (d deadOps) Complete(context.Context, []operation.Completion) ([]error, error) {
	d.cancel()
	return nil, &operation.UnavailableError{Op: "complete", Err: errors.New("away")}
}

// TestPostgresOnce: an occurrence on PostgreSQL, seen from two hosts: done once, killed in its command, and over one connection to spare.
func TestPostgresOnce(t *testing.T) {
	t.Parallel()
	a, _ := postgresWorld(t, testdb.Shared(t))
	b := newWorld(t) // another folder: another host
	b.onStore(a.store)
	if got := a.once("--", "sh", "-c", "echo ran"); got.code != 0 || got.stdout != "ran\n" {
		t.Errorf("the first: %+v", got)
	}
	if got := b.once("--", "sh", "-c", "echo ran"); got.code != 0 || got.stdout != "" || strings.Contains(got.stderr, secret) {
		t.Errorf("the second: %+v", got)
	}
	p := a.start("run", "job", "--once", "l", "--ttl", "2s", "--store", a.store+"&pool_max_conns=1", "--", "sh", "-c", "echo $TENURE_ATTEMPT; read x < "+a.gate("never").path)
	p.line()
	p.signal(syscall.SIGKILL)
	p.wait()
	if got := b.do("run", "job", "--once", "l", "--ttl", "2s", "--", "sh", "-c", "echo ran"); got.code != exitUncertain || got.stdout != "" {
		t.Errorf("after the kill: %+v", got)
	}
	if out := b.ok("op", "ls", "--state", "uncertain"); !strings.Contains(out, "job@l") || !strings.Contains(out, "1 stuck") {
		t.Errorf("ls: %s", out)
	}
	b.ok("op", "resolve", "job@l", "--not-done", "--reason", "looked", "--yes")
	if got := b.do("run", "job", "--once", "l", "--store", b.store+"&pool_max_conns=1", "--", "sh", "-c", "echo ran"); got.code != 0 || got.stdout != "ran\n" {
		t.Errorf("after the verdict: %+v", got)
	}
	if out := a.ok("op", "wait", "job@l", "--timeout", "10s"); !strings.HasPrefix(out, "job@l: succeeded") {
		t.Errorf("wait: %s", out)
	}
}
