//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/operation"
)

// deskWorld has operations in every state, made by a worker that is the test.
func deskWorld(t *testing.T) (*world, operation.Backend) {
	t.Helper()
	w := newWorld(t)
	w.ok("migrate")
	ops := w.operations()
	for _, id := range []string{"c-attempting", "c-conflict", "c-done", "c-failed", "c-uncertain", "c-wished"} {
		w.ok("op", "submit", "charge", id, "--request", `{"cents": 4200}`)
		j := w.attempt(ops, id, 0)
		switch id {
		case "c-attempting":
		case "c-failed":
			w.answer(ops, j, operation.Answer{Known: operation.Refused, Reason: "no funds", Final: true})
		case "c-done", "c-conflict":
			w.answer(ops, j, operation.Answer{Known: operation.Effective, Result: []byte(`{"receipt":"secret-7"}`)})
		default:
			w.answer(ops, j, operation.Answer{Known: operation.NoAnswer, Reason: "timeout"})
		}
	}
	if _, err := ops.Respond(t.Context(), operation.Response{ID: "c-conflict", Answer: operation.Answer{Known: operation.Effective, Result: []byte(`{"receipt":"8"}`)}}); err == nil {
		t.Error("no conflict")
	}
	if got := w.do("op", "cancel", "c-wished", "--reason", "withdrawn"); got.code != exitUncertain {
		t.Errorf("cancel: %+v", got)
	}
	w.ok("op", "submit", "charge", "c-pending", "--run-in", "1h")
	w.ok("op", "submit", "report", "r-1")
	return w, ops
}

// attempt begins one attempt.
func (w *world) attempt(ops operation.Backend, id string, window time.Duration) operation.Job {
	w.t.Helper()
	jobs, err := ops.Claim(w.t.Context(), operation.ClaimRequest{Worker: "w1", TTL: time.Minute, Limit: 1, ID: id,
		Kinds: []operation.KindClaim{{Kind: "charge", Limit: 1, Timeout: time.Hour, MaxAttempts: 9, Window: window}}})
	if err != nil || len(jobs) != 1 || jobs[0].ID != id {
		w.t.Fatalf("claiming %s: %+v, %v", id, jobs, err)
	}
	return jobs[0]
}

func (w *world) answer(ops operation.Backend, j operation.Job, a operation.Answer) {
	w.t.Helper()
	errs, err := ops.Complete(w.t.Context(), []operation.Completion{{Ref: j.Ref, Answer: a}})
	if err != nil || errs[0] != nil {
		w.t.Fatalf("completing %s: %v, %v", j.ID, errs, err)
	}
}

func (w *world) opList(args ...string) opListJSON {
	w.t.Helper()
	var out opListJSON
	if text := w.ok(append([]string{"op", "ls", "--json"}, args...)...); json.Unmarshal([]byte(text), &out) != nil {
		w.t.Fatalf("%s", text)
	}
	return out
}

// TestOpList: each filter, pages, and what is stuck in the whole store; never a body unless it is asked for.
func TestOpList(t *testing.T) {
	t.Parallel()
	w, _ := deskWorld(t)
	for args, want := range map[string]string{
		"":                                   "c-attempting c-conflict c-done c-failed c-pending c-uncertain c-wished r-1",
		"--kind report":                      "r-1",
		"--state uncertain":                  "c-uncertain c-wished",
		"--state pending,failed":             "c-failed c-pending r-1",
		"--state pending --state attempting": "c-attempting c-pending r-1",
		"--conflicts":                        "c-conflict",
		"--wished":                           "c-wished",
		"--prefix c-u":                       "c-uncertain",
		"--after c-pending":                  "c-uncertain c-wished r-1",
		"--limit 2":                          "c-attempting c-conflict",
		"--limit 8":                          "c-attempting c-conflict c-done c-failed c-pending c-uncertain c-wished r-1",
		"--kind none":                        "",
	} {
		got := w.opList(strings.Fields(args)...)
		var ids []string
		for _, o := range got.Operations {
			ids = append(ids, o.ID)
		}
		if strings.Join(ids, " ") != want || got.More != (args == "--limit 2") {
			t.Errorf("%q: %v, more %v; want %s", args, ids, got.More, want)
		}
	}
	var stats []string
	for _, s := range w.opList().Stats {
		stats = append(stats, fmt.Sprintf("%s/%s/%d/%d", s.Kind, s.State, s.Count, s.Stuck))
	}
	if got := strings.Join(stats, " "); got != "charge/conflicts/1/0 charge/pending/1/0 charge/attempting/1/0 charge/uncertain/2/2 report/pending/1/0" {
		t.Errorf("stats: %s", got)
	}
	text := w.do("op", "ls", "--limit", "6").stdout
	for _, want := range []string{"ID            KIND    STATE       NEXT", "c-pending     charge  pending     work in ", "c-uncertain   charge  uncertain   verdict ", "charge: 2 uncertain", "2 stuck", " 1 conflicts\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if got := w.do("op", "ls", "--limit", "2"); !strings.Contains(got.last(), "--after c-conflict") {
		t.Errorf("no way on: %s", got.last())
	}
	for _, args := range [][]string{{"op", "ls"}, {"op", "ls", "--json"}, {"op", "show", "c-done"}, {"op", "show", "c-done", "--json"}, {"op", "wait", "c-done", "--json"}} {
		if got := w.ok(args...); strings.Contains(got, "secret-7") || strings.Contains(got, "4200") {
			t.Errorf("%q shows bodies:\n%s", args, got)
		}
		if got := w.ok(append(args, "--bodies")...); !strings.Contains(got, "secret-7") || !strings.Contains(got, "4200") {
			t.Errorf("%q --bodies does not:\n%s", args, got)
		}
	}
}

// TestOpListEmpty: in an empty store.
func TestOpListEmpty(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("migrate")
	if got := w.ok("op", "ls"); got != "in the store: nothing undecided, no conflicts\n" {
		t.Errorf("got %q", got)
	}
	if got := w.ok("op", "ls", "--json"); !strings.Contains(got, `"operations": []`) || !strings.Contains(got, `"stats": []`) {
		t.Errorf("got %q", got)
	}
}

// TestOpShow: the attempts with what is known of each, conflicts, and what is to be done.
func TestOpShow(t *testing.T) {
	t.Parallel()
	w, ops := deskWorld(t)
	w.ok("op", "submit", "refund", "f-1", "--compensates", "c-done")
	for id, wants := range map[string][]string{
		"c-uncertain":  {"c-uncertain: uncertain: an attempt may have had its effect; only", "no answer", "w1", "timeout"},
		"c-conflict":   {"c-conflict: succeeded, ", "conflict, of an inquiry:", "effective"},
		"c-failed":     {"c-failed: failed, ", "reason  no funds", "refused"},
		"c-attempting": {"attempting", "watch in ", "open"},
		"c-wished":     {"cancel  was wished for"},
		"f-1":          {"compensates  c-done"},
	} {
		got := w.ok("op", "show", id)
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", id, want, got)
			}
		}
	}
	var out operationJSON
	if err := json.Unmarshal([]byte(w.ok("op", "show", "c-uncertain", "--json")), &out); err != nil || !out.Stuck || out.DecidedAgoMS != nil || len(out.Attempts) != 1 || out.Attempts[0].Known != "no answer" || out.Attempts[0].EndedAgoMS == nil {
		t.Errorf("%+v, %v", out, err)
	}
	if got := w.do("op", "show", "none"); got.code != exitFailed || !strings.Contains(got.last(), `"none" is not known`) {
		t.Errorf("an unknown id: %+v", got)
	}
	w.ok("op", "submit", "report", "bin", "--request", w.file("bin", "\xff\x00"))
	if got := w.ok("op", "show", "bin", "--bodies"); !strings.Contains(got, "2 bytes that are no text") {
		t.Errorf("binary: %s", got)
	}
	if got := w.ok("op", "show", "bin", "--bodies", "--json"); !strings.Contains(got, `"base64": "/wA="`) {
		t.Errorf("binary: %s", got)
	}
	if _, err := ops.Get(t.Context(), "f-1"); err != nil {
		t.Error(err)
	}
}

// file makes a file in the world's folder.
func (w *world) file(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// TestOpWait: an exit code for each end, and the operation as it stands.
func TestOpWait(t *testing.T) {
	t.Parallel()
	w, ops := deskWorld(t)
	for id, code := range map[string]int{"c-done": 0, "c-failed": 1, "c-uncertain": 78, "c-attempting": 75, "c-pending": 75, "none": 1} {
		got := w.do("op", "wait", id, "--timeout", "100ms")
		if got.code != code || id != "none" && !strings.HasPrefix(got.stdout, id+": ") {
			t.Errorf("%s: %+v; want %d", id, got, code)
		}
		if (code == 75 || code == 78) && !strings.Contains(got.last(), "says nothing of the operation") {
			t.Errorf("%s: %s", id, got.last())
		}
	}
	w.ok("op", "cancel", "r-1", "--reason", "not needed")
	if got := w.do("op", "wait", "r-1", "--json"); got.code != 1 || !strings.Contains(got.stdout, `"state": "cancelled"`) || !strings.Contains(got.last(), "was cancelled") {
		t.Errorf("cancelled: %+v", got)
	}
	w.ok("op", "submit", "charge", "c-late")
	j := w.attempt(ops, "c-late", 0)
	p := w.start("op", "wait", "c-late", "--json")
	w.answer(ops, j, operation.Answer{Known: operation.Effective})
	if got := p.wait(); got.code != 0 {
		t.Errorf("decided while waiting: %+v", got)
	}
}

// TestOpSubmit: the same again is the same, another request under the id is refused, and JSON has one form.
func TestOpSubmit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("migrate")
	if got := w.ok("op", "submit", "charge", "c1", "--request", `{"b": 1, "a": [2]}`, "--priority", "3", "--order", "o"); got != "c1: submitted; next: work now\n" {
		t.Errorf("got %q", got)
	}
	file := w.file("r.json", "{\n \"a\": [2],\n \"b\": 1\n}\n")
	if got := w.ok("op", "submit", "charge", "c1", "--request", file); !strings.Contains(got, "was submitted") || !strings.Contains(got, "is pending") {
		t.Errorf("from a file: %q", got)
	}
	cmd := w.command("op", "submit", "charge", "c1", "--request", "-", "--json")
	cmd.Stdin = strings.NewReader(`{"a":[2],"b":1}`)
	if got := w.run(cmd); got.code != 0 || !strings.Contains(got.stdout, `"known": true`) {
		t.Errorf("from standard input: %+v", got)
	}
	kind := operation.Kind[map[string]any, struct{}]{Name: "charge"}
	if out, err := kind.Submit(t.Context(), w.operations(), "c1", map[string]any{"a": []int{2}, "b": 1}); err != nil || out.Priority != 3 || out.Order != "o" {
		t.Errorf("from Go: %+v, %v", out, err)
	}
	for _, args := range [][]string{{"charge", "c1"}, {"charge", "c1", "--request", "{}"}, {"refund", "c1", "--request", file}} {
		if got := w.do(append([]string{"op", "submit"}, args...)...); got.code != exitFailed || !strings.Contains(got.last(), "an id is for one request, ever") {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if got := w.do("op", "submit", "refund", "f1", "--compensates", "c1"); got.code != exitFailed || !strings.Contains(got.last(), "a compensation is refused") {
		t.Errorf("a compensation of what is undecided: %+v", got)
	}
	if got := w.do("op", "submit", "refund", "f1", "--compensates", "none"); got.code != exitFailed {
		t.Errorf("a compensation of nothing: %+v", got)
	}
	if got := w.do("op", "show", "f1"); got.code != exitFailed {
		t.Errorf("it was recorded: %+v", got)
	}
}

// TestOpCancel: cancelled, a wish, or refused.
func TestOpCancel(t *testing.T) {
	t.Parallel()
	w, _ := deskWorld(t)
	for _, c := range []struct {
		id, said string
		code     int
	}{
		{"c-pending", "cancelled; it will not happen", 0},
		{"c-pending", "cancelled; it will not happen", 0},
		{"c-attempting", "the wish is recorded", 75},
		{"c-uncertain", "the wish is recorded", 78},
		{"c-done", "cancelling is refused", 1},
		{"none", "is not known", 1},
	} {
		got := w.do("op", "cancel", c.id, "--reason", "withdrawn")
		if got.code != c.code || !strings.Contains(got.stdout+got.stderr, c.said) {
			t.Errorf("%s: %+v", c.id, got)
		}
	}
	if got := w.do("op", "cancel", "c-uncertain", "--reason", "x", "--json"); got.code != 78 || !strings.Contains(got.stdout, `"cancel_wished": true`) || !strings.Contains(got.last(), "not cancelled") {
		t.Errorf("JSON: %+v", got)
	}
}

// TestOpResolve: only what is uncertain, only with --yes, after what is known was shown.
func TestOpResolve(t *testing.T) {
	t.Parallel()
	w, ops := deskWorld(t)
	resolve := func(id string, args ...string) ended {
		return w.do(append([]string{"op", "resolve", id, "--reason", "looked"}, args...)...)
	}
	if got := resolve("c-uncertain", "--succeeded"); got.code != exitUsage || got.stdout != "" || !strings.Contains(got.stderr, "no answer") || !strings.Contains(got.last(), "--yes") {
		t.Errorf("without --yes: %+v", got)
	}
	if rec, err := ops.Get(t.Context(), "c-uncertain"); err != nil || rec.State != operation.Uncertain {
		t.Errorf("without --yes: %+v, %v", rec, err)
	}
	for _, id := range []string{"c-done", "c-pending", "c-attempting", "none"} {
		if got := resolve(id, "--failed", "--yes"); got.code != exitFailed || got.stdout != "" {
			t.Errorf("%s: %+v", id, got)
		}
	}
	if got := resolve("c-uncertain", "--succeeded", "--result", `{"receipt": 9}`, "--yes"); got.code != 0 || got.stdout != "c-uncertain: succeeded\n" {
		t.Errorf("succeeded: %+v", got)
	}
	if rec, err := ops.Get(t.Context(), "c-uncertain"); err != nil || string(rec.Result) != `{"receipt":9}` || rec.Reason != "looked" {
		t.Errorf("succeeded: %+v, %v", rec, err)
	}
	if got := resolve("c-wished", "--not-done", "--yes", "--json"); got.code != 0 || !strings.Contains(got.stdout, `"state": "cancelled"`) {
		t.Errorf("what was wished to be cancelled, and was not done: %+v", got)
	}
	w.ok("op", "submit", "charge", "c-two")
	w.answer(ops, w.attempt(ops, "c-two", operation.Forever), operation.Answer{Known: operation.NoAnswer})
	w.answer(ops, w.attempt(ops, "c-two", operation.Forever), operation.Answer{Known: operation.NoAnswer})
	if got := resolve("c-two", "--not-done", "--yes"); got.code != 0 || got.stdout != "c-two: pending\n" {
		t.Errorf("two attempts: %+v", got)
	}
	w.answer(ops, w.attempt(ops, "c-two", 0), operation.Answer{Known: operation.NoAnswer})
	if got := resolve("c-two", "--failed", "--yes"); got.code != 0 || got.stdout != "c-two: failed\n" {
		t.Errorf("failed: %+v", got)
	}
}

// TestOpPrune: nothing that is young, and never what is undecided.
func TestOpPrune(t *testing.T) {
	t.Parallel()
	w, _ := deskWorld(t)
	if got := w.ok("op", "prune", "--forget", "24h"); got != "bodies of 0 operations forgotten, records of 0, 0 operations as a whole\n" {
		t.Errorf("young: %q", got)
	}
	await(t, func() bool { return !strings.Contains(w.ok("op", "show", "c-failed", "--json"), `"decided_ago_ms": 0`) })
	if got := w.ok("op", "prune", "--bodies", "1us", "--json"); !strings.Contains(got, `"bodies": 3`) {
		t.Errorf("bodies: %q", got)
	}
	if got := w.ok("op", "prune", "--records", "1us"); !strings.Contains(got, "records of 3") {
		t.Errorf("records: %q", got)
	}
	if got := w.ok("op", "show", "c-done", "--bodies"); !strings.Contains(got, "verdict only") || strings.Contains(got, "secret-7") {
		t.Errorf("afterwards: %s", got)
	}
}

// TestOpBadInput: command lines that make no sense are exit 64, and nothing is changed.
func TestOpBadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("migrate")
	long := strings.Repeat("x", 257)
	for _, args := range [][]string{
		{}, {"ls", "x"}, {"ls", "--limit", "0"}, {"ls", "--state", "done"}, {"ls", "--kind", "a\tb"}, {"ls", "--prefix", long}, {"ls", "--after", "\xff"},
		{"show"}, {"show", ""}, {"show", long}, {"show", "a", "b"}, {"wait"}, {"wait", "a", "--timeout", "0s"}, {"wait", "a", "--timeout", "-1s"}, {"wait", "a\nb"},
		{"submit", "k"}, {"submit", "", "a"}, {"submit", "k", ""}, {"submit", "k", long}, {"submit", strings.Repeat("k", 129), "a"}, {"submit", "k", "a", "--priority", "4"},
		{"submit", "k", "a", "--priority", "-1"}, {"submit", "k", "a", "--run-in", "-1s"}, {"submit", "k", "a", "--run-in", "8785h"}, {"submit", "k", "a", "--order", long},
		{"submit", "k", "a", "--compensates", "a"}, {"submit", "k", "a", "--request", "{"}, {"submit", "k", "a", "--request", ""}, {"submit", "k", "a", "--request", w.dir},
		{"submit", "k", "a", "--request", w.file("large", strings.Repeat("x", operation.MaxBody+1))},
		{"cancel", "a"}, {"cancel", "a", "--reason", " "}, {"cancel", "--reason", "x"}, {"cancel", "a", "--reason", strings.Repeat("x", 2049)},
		{"resolve", "a", "--reason", "x"}, {"resolve", "a", "--succeeded", "--failed", "--reason", "x"}, {"resolve", "a", "--succeeded"}, {"resolve", "a", "--failed", "--reason", "x", "--result", "1"},
		{"resolve", "a", "--succeeded", "--reason", "x", "--result", "no-such-file"}, {"resolve", "--failed", "--reason", "x"},
		{"prune"}, {"prune", "--forget", "23h"}, {"prune", "--bodies", "-1h"}, {"prune", "--bodies", "0s", "--records", "1h"}, {"prune", "--bodies", "2h", "--records", "1h"}, {"prune", "x"},
		{"ls", "--store", "redis:"},
	} {
		if got := w.do(append([]string{"op"}, args...)...); got.code != exitUsage || !strings.HasPrefix(got.last(), "tenure: ") || got.stdout != "" {
			t.Errorf("%.90q: exit %d, want 64\n%s%s", args, got.code, got.stdout, got.stderr)
		}
	}
	if got := w.opList(); len(got.Operations) != 0 {
		t.Errorf("recorded: %+v", got)
	}
}

// TestOpMakesNoStore: a mistyped store is told, not made; completing is silent.
func TestOpMakesNoStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, args := range [][]string{
		{"ls"}, {"show", "a"}, {"wait", "a"}, {"submit", "k", "a"}, {"cancel", "a", "--reason", "x"}, {"resolve", "a", "--failed", "--reason", "x", "--yes"}, {"prune", "--bodies", "1h"},
	} {
		if got := w.do(append([]string{"op"}, args...)...); got.code != exitNoStore || !strings.Contains(got.last(), "no store at ") {
			t.Errorf("%q: exit %d, %s", args, got.code, got.last())
		}
	}
	w.ok("__complete", "op", "show", "")
	if files, err := os.ReadDir(w.dir); err != nil || len(files) != 0 {
		t.Errorf("made: %v, %v", files, err)
	}
}

// TestOpCompletion: ids of the store, and states.
func TestOpCompletion(t *testing.T) {
	t.Parallel()
	w, _ := deskWorld(t)
	if got := w.ok("__complete", "op", "resolve", "c-un"); !strings.HasPrefix(got, "c-uncertain\n") || strings.Contains(got, "r-1") {
		t.Errorf("ids: %q", got)
	}
	if got := w.ok("__complete", "op", "submit", "refund", "x", "--compensates", "c-d"); !strings.HasPrefix(got, "c-done\n") {
		t.Errorf("--compensates: %q", got)
	}
	if got := w.ok("__complete", "op", "ls", "--state", "unc"); !strings.Contains(got, "uncertain\n") {
		t.Errorf("states: %q", got)
	}
}

// TestPostgresOp: the same commands on PostgreSQL.
func TestPostgresOp(t *testing.T) {
	t.Parallel()
	w, _ := postgresWorld(t, testdb.Shared(t))
	w.ok("op", "submit", "charge", "c1", "--request", `{"cents": 1}`, "--order", "o")
	w.ok("op", "submit", "charge", "c2", "--order", "o")
	if out := w.ok("op", "ls", "--prefix", "c"); !strings.Contains(out, "charge: 2 pending") || !strings.Contains(out, "after another of its order") {
		t.Errorf("ls: %s", out)
	}
	if out := w.ok("op", "show", "c1", "--bodies"); !strings.Contains(out, `{"cents":1}`) {
		t.Errorf("show: %s", out)
	}
	w.fails(exitFailed, "another request", "op", "submit", "charge", "c1")
	w.fails(exitNotAcquired, "not decided yet", "op", "wait", "c1", "--timeout", "50ms")
	w.ok("op", "cancel", "c1", "--reason", "withdrawn")
	w.fails(exitFailed, "was cancelled", "op", "wait", "c1")
	w.fails(exitFailed, "a verdict is refused", "op", "resolve", "c1", "--failed", "--reason", "x", "--yes")
	w.ok("op", "prune", "--bodies", "1h", "--records", "1h", "--forget", "24h")
}
