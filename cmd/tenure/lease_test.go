//go:build unix

package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// holder is a run that holds names until its gate is opened.
func (w *world) holder(names ...string) (*process, gate) {
	w.t.Helper()
	g := w.gate("gate-" + strings.ReplaceAll(names[0], "/", "-"))
	args := append(append([]string{"run"}, names...), "--owner", "the <holder>", "--", "sh", "-c", "echo $TENURE_TOKEN_1; read x <"+g.path)
	return w.start(args...), g
}

type listing struct {
	Leases []infoJSON `json:"leases"`
	More   bool       `json:"more"`
}

func (w *world) list(args ...string) listing {
	w.t.Helper()
	var l listing
	text := w.ok(append([]string{"lease", "ls", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		w.t.Fatalf("%v\n%s", err, text)
	}
	return l
}

// TestLeaseList: what is held, with holder, token and time left, in byte order (L88).
func TestLeaseList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("migrate")
	if got := w.list(); len(got.Leases) != 0 || got.More {
		t.Errorf("in an empty store: %+v", got)
	}
	if text := w.ok("lease", "ls", "--json"); !strings.Contains(text, `"leases": []`) {
		t.Errorf("an empty list is %q", text)
	}
	w.ok("run", "b/free", "--", "true")
	p, g := w.holder("b/1", "b/2", "a")
	token := p.line()
	got := w.list()
	var names []string
	for _, i := range got.Leases {
		names = append(names, i.Name)
		if !i.Held || i.Owner != "the <holder>" || i.Acquisition.IsZero() || i.Session.IsZero() || i.RemainingMS <= 0 || i.RemainingMS > 15000 || i.End != "" {
			t.Errorf("listed as %+v", i)
		}
	}
	if strings.Join(names, " ") != "a b/1 b/2" || got.Leases[1].Token.String() != token {
		t.Errorf("listed %q with tokens of %+v, want a b/1 b/2 and %s", names, got.Leases, token)
	}
	for want, args := range map[string][]string{
		"b/1 b/2":          {"b/"},
		"b/1 b/2 b/free":   {"b/", "--all"},
		"":                 {"c"},
		"a b/1 more":       {"--limit", "2"},
		"a b/1 b/2":        {"--limit", "3"},
		"a b/1 b/2 more":   {"--limit", "3", "--all"},
		"a b/1 b/2 b/free": {"--limit", "4", "--all"},
	} {
		var names []string
		l := w.list(args...)
		for _, i := range l.Leases {
			names = append(names, i.Name)
		}
		if l.More {
			names = append(names, "more")
		}
		if strings.Join(names, " ") != want {
			t.Errorf("ls %q: %q, want %q", args, names, want)
		}
	}
	table := w.ok("lease", "ls", "--all")
	if !regexp.MustCompile(`(?m)^b/free +\d+ +released +- `).MatchString(table) || !regexp.MustCompile(`(?m)^a +\d+ +held +\d`).MatchString(table) {
		t.Errorf("the table is\n%s", table)
	}
	if raw := w.ok("lease", "ls", "--json"); !strings.Contains(raw, `"token": "`+token+`"`) {
		t.Errorf("tokens are not strings:\n%s", raw)
	}
	g.open()
	p.wait()
}

// TestLeaseShow: one name in each of its states.
func TestLeaseShow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("migrate")
	if got := w.ok("lease", "show", "job"); !strings.Contains(got, "never acquired") {
		t.Errorf("before: %q", got)
	}
	p, g := w.holder("job")
	token := p.line()
	var i infoJSON
	if err := json.Unmarshal([]byte(w.ok("lease", "show", "job", "--json")), &i); err != nil || !i.Held || i.Token.String() != token {
		t.Errorf("while held: %+v, %v", i, err)
	}
	if got := w.ok("lease", "show", "job"); !strings.Contains(got, `held by "the <holder>" for at most`) || !strings.Contains(got, token) {
		t.Errorf("while held: %q", got)
	}
	g.open()
	p.wait()
	if got := w.ok("lease", "show", "job"); !strings.Contains(got, "free; the latest lease is over: released") {
		t.Errorf("after: %q", got)
	}
}

// TestLeaseRevoke: with the expected token only, all names of the acquisition, told as often as it is asked.
func TestLeaseRevoke(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, _ := w.holder("a", "b")
	token, err := fence.ParseToken(p.line())
	if err != nil {
		t.Fatal(err)
	}
	wrong := w.do("lease", "revoke", "a", "--token", (token + 100).String(), "--reason", "x")
	if wrong.code != 1 || !strings.Contains(wrong.last(), "nothing was changed") {
		t.Errorf("with another token: exit %d, %q", wrong.code, wrong.last())
	}
	var out struct {
		Already          bool     `json:"already"`
		Names            []string `json:"names"`
		BelievesAtMostMS int64    `json:"believes_at_most_ms"`
		Former           infoJSON `json:"former"`
	}
	text := w.ok("lease", "revoke", "a", "--token", token.String(), "--reason", "x", "--json")
	if err := json.Unmarshal([]byte(text), &out); err != nil || out.Already || strings.Join(out.Names, " ") != "a b" ||
		out.BelievesAtMostMS <= 0 || out.BelievesAtMostMS > 15000 || out.Former.Owner != "the <holder>" {
		t.Errorf("got %+v, %v\n%s", out, err, text)
	}
	again := w.ok("lease", "revoke", "a", "--token", token.String(), "--reason", "x")
	if !strings.Contains(again, "was revoked already") || !strings.Contains(again, "may still be running") {
		t.Errorf("again: %q", again)
	}
	if got := p.wait(); got.code != 76 {
		t.Errorf("the holder: exit %d", got.code)
	}
	w.ok("run", "a", "--", "true")
	if got := w.do("lease", "revoke", "a", "--token", token.String(), "--reason", "x"); got.code != 1 {
		t.Errorf("a former token: exit %d\n%s", got.code, got.stderr)
	}
}

// TestLeaseBadInput: command lines that make no sense are exit 64.
func TestLeaseBadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("migrate")
	for _, args := range [][]string{
		{}, {"lease"}, {"epoch"}, {"bogus"}, {"lease", "bogus"}, {"lease", "ls", "a", "b"}, {"lease", "ls", "--limit", "0"}, {"lease", "ls", "--bogus"},
		{"lease", "ls", strings.Repeat("x", 513)}, {"lease", "show"}, {"lease", "show", ""}, {"lease", "show", "a#1"}, {"lease", "show", "a", "b"},
		{"lease", "revoke", "a"}, {"lease", "revoke", "a", "--token", "0", "--reason", "x"}, {"lease", "revoke", "a", "--token", "-1", "--reason", "x"},
		{"lease", "revoke", "a", "--token", "1.5", "--reason", "x"}, {"lease", "revoke", "a", "--token", "9223372036854775808", "--reason", "x"},
		{"lease", "revoke", "a", "--token", "1"}, {"lease", "revoke", "a", "--token", "1", "--reason", strings.Repeat("x", 513)},
		{"lease", "revoke", "--token", "1", "--reason", "x"}, {"lease", "prune", "--age", "59m"}, {"lease", "prune", "--age", "x"}, {"lease", "prune", "a"},
		{"epoch", "raise", "--above", "0"}, {"epoch", "raise", "--above", "x"}, {"epoch", "raise", "--above", "9223372036854775807"},
		{"migrate", "x"}, {"version", "x"}, {"lease", "ls", "--store", "redis:"},
	} {
		if got := w.do(args...); got.code != 64 || !strings.HasPrefix(got.last(), "tenure: ") || got.stdout != "" {
			t.Errorf("%.80q: exit %d, want 64\n%s%s", args, got.code, got.stdout, got.stderr)
		}
	}
}

// TestLeasePrune: prune deletes nothing that is young.
func TestLeasePrune(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("run", "job", "--", "true")
	if got := w.ok("lease", "prune", "--age", "1h", "--json"); !strings.Contains(got, `"deleted": 0`) {
		t.Errorf("got %q", got)
	}
	if got := w.list("--all"); len(got.Leases) != 1 {
		t.Errorf("after pruning: %+v", got)
	}
}

// TestEpochRaise: later tokens are above what was given.
func TestEpochRaise(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("migrate")
	const above = "70368744177664"
	var out struct {
		Above fence.Token `json:"above"`
	}
	if err := json.Unmarshal([]byte(w.ok("epoch", "raise", "--above", above, "--json")), &out); err != nil {
		t.Fatal(err)
	}
	next, err := fence.ParseToken(strings.TrimSpace(w.ok("run", "job", "--", "sh", "-c", "echo $TENURE_TOKEN")))
	if err != nil || next <= out.Above || out.Above.String() < above {
		t.Errorf("raised to %v, the next token is %v, %v", out.Above, next, err)
	}
}

// TestMigrate: a store is made, said to be there, and not made by --print; another program's database needs --adopt.
func TestMigrate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := strings.TrimPrefix(w.store, "sqlite:")
	if got := w.ok("migrate", "--print"); !strings.Contains(got, "CREATE TABLE tenure_lease") {
		t.Errorf("--print: %q", got)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("--print made the file")
	}
	first, again := w.ok("migrate"), w.ok("migrate", "--json")
	id := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).FindString(first)
	if id == "" || !strings.Contains(again, id) {
		t.Errorf("first %q, then %q", first, again)
	}
}

// TestMigrateAdopt: an application's database is left alone until --adopt installs Tenure's tables beside its own.
func TestMigrateAdopt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	application := func(statement string) {
		t.Helper()
		db, err := sql.Open("sqlite", strings.TrimPrefix(w.store, "sqlite:")) // the driver that the store brings along
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	application("CREATE TABLE seats (name TEXT)")
	for _, args := range [][]string{{"migrate"}, {"run", "job", "--", "true"}} {
		if got := w.do(args...); got.code != 77 || !strings.Contains(got.last(), "--adopt") {
			t.Errorf("%q: exit %d, %q", args, got.code, got.last())
		}
	}
	application("SELECT count(*) FROM seats")
	w.ok("migrate", "--adopt")
	w.ok("run", "job", "--", "true")
	application("INSERT INTO seats SELECT name FROM tenure_lease")
}

// TestDefaultStore: without a store one line says which file is used and what it guards.
func TestDefaultStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	state := filepath.Join(w.dir, "state")
	w.env = append(w.env, "TENURE_STORE=", "XDG_STATE_HOME="+state)
	file := filepath.Join(state, "tenure", "tenure.db")
	got := w.do("run", "job", "--", "true")
	if got.code != 0 || strings.Count(got.stderr, file) != 1 || !strings.Contains(got.stderr, "guards this user on this machine only") {
		t.Errorf("exit %d\n%s", got.code, got.stderr)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if got := w.do("lease", "ls", "--store", "sqlite:"); got.stderr != "" {
		t.Errorf("with the default by name: %q", got.stderr)
	}
}

// TestVersion: as text and as JSON.
func TestVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var v version
	if err := json.Unmarshal([]byte(w.ok("version", "--json")), &v); err != nil || v.Version == "" || v.Commit == "" || !strings.HasPrefix(v.Go, "go") {
		t.Errorf("got %+v, %v", v, err)
	}
	if got := w.ok("version"); !strings.HasPrefix(got, "tenure ") {
		t.Errorf("got %q", got)
	}
}

// TestCompletion: scripts for the shells, and names of the store; completing makes no store.
func TestCompletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := w.ok("completion", shell); !strings.Contains(got, "tenure") {
			t.Errorf("%s: %q", shell, got)
		}
	}
	if got := w.ok("__complete", "lease", "show", ""); strings.Contains(got, "job") {
		t.Errorf("without a store: %q", got)
	}
	if _, err := os.Stat(strings.TrimPrefix(w.store, "sqlite:")); err == nil {
		t.Error("completing made the store")
	}
	w.ok("run", "job-1", "other", "--", "true")
	if got := w.ok("__complete", "lease", "revoke", "jo"); !strings.HasPrefix(got, "job-1\n") || strings.Contains(got, "other") {
		t.Errorf("got %q", got)
	}
}

// TestLeaseBlockedStore: an operator's command beside a stopped writer answers within its bound, and names what is in the way.
func TestLeaseBlockedStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.blocker()
	b.block()
	begin := time.Now()
	got := w.do("lease", "ls")
	if got.code != 77 || !strings.Contains(got.last(), fmt.Sprint(b.cmd.Process.Pid)) || time.Since(begin) > openWait+5*time.Second {
		t.Errorf("exit %d after %v, last line %q", got.code, time.Since(begin), got.last())
	}
	b.unblock()
}

// TestGuardByHand: the guard's word is not a command.
func TestGuardByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, args := range [][]string{{guardWord}, {guardWord, "x"}, {guardWord, "0", "/bin/true", "true"}, {guardWord, "99", "/bin/true", "true"}} {
		if got := w.do(args...); got.code == 0 {
			t.Errorf("%q: exit 0\n%s", args, got.stderr)
		}
	}
	if out, err := exec.Command(binary, "help").CombinedOutput(); err != nil || strings.Contains(string(out), guardWord) {
		t.Errorf("help shows the guard: %v\n%s", err, out)
	}
}

// TestNoStoreIsMadeByLooking: a mistyped store is told, not made, by the commands that look or repair.
func TestNoStoreIsMadeByLooking(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	missing := filepath.Join(t.TempDir(), "folder", "t.db")
	for _, args := range [][]string{
		{"lease", "ls"}, {"lease", "show", "job"}, {"lease", "revoke", "job", "--token", "1", "--reason", "x"}, {"lease", "prune"}, {"epoch", "raise"},
	} {
		got := w.do(append(args, "--store", "sqlite:"+missing)...)
		if got.code != 77 || !strings.Contains(got.last(), "no store at "+missing) {
			t.Errorf("%q: exit %d, %s", args, got.code, got.last())
		}
	}
	if _, err := os.Stat(filepath.Dir(missing)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder was made: %v", err)
	}
}
