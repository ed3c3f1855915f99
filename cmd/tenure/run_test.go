//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// TestRunExitCodes is the table of `tenure run --help`, each with its last line.
func TestRunExitCodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	notExecutable := filepath.Join(w.dir, "data")
	noFormat := filepath.Join(w.dir, "garbage")
	for file, mode := range map[string]os.FileMode{notExecutable: 0o600, noFormat: 0o700} {
		if err := os.WriteFile(file, []byte("\x00\x01\x02"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		last string
	}{
		{"success", []string{"run", "a", "--", "true"}, 0, "exit 0: the command exited with 0"},
		{"its own", []string{"run", "a", "--", "sh", "-c", "exit 41"}, 41, "exit 41: the command exited with 41"},
		{"its own 75", []string{"run", "a", "--", "sh", "-c", "exit 75"}, 75, "exit 75: the command exited with 75"},
		{"signal", []string{"run", "a", "--", "sh", "-c", "kill -KILL $$"}, 137, "exit 137: the command was ended by signal 9"},
		{"another signal", []string{"run", "a", "--", "sh", "-c", "kill -USR1 $$"}, 128 + int(syscall.SIGUSR1), "ended by signal"},
		{"not found", []string{"run", "a", "--", "no-such-command"}, 127, "exit 127: command not found"},
		{"not found by path", []string{"run", "a", "--", "./no-such-command"}, 127, "exit 127: command not found"},
		{"not executable", []string{"run", "a", "--", notExecutable}, 126, "exit 126: the command cannot be run"},
		{"no program", []string{"run", "a", "--", noFormat}, 126, "exit 126: the command cannot be run"},
		{"a folder", []string{"run", "a", "--", w.dir}, 126, "exit 126: the command cannot be run"},
		{"store in a missing place", []string{"run", "a", "--store", "sqlite:/proc/nowhere/t.db", "--", "true"}, 77, "exit 77: the store was not reached"},
		{"store of another program", []string{"run", "a", "--store", "sqlite:" + notExecutable, "--", "true"}, 77, "exit 77: the store was not reached"},
		{"unknown store", []string{"run", "a", "--store", "redis://x", "--", "true"}, 64, "known are sqlite:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := w.do(c.args...)
			if got.code != c.code || !strings.Contains(got.last(), c.last) {
				t.Errorf("exit %d, last line %q; want %d and %q", got.code, got.last(), c.code, c.last)
			}
		})
	}
	if free := w.ok("lease", "ls"); free != "" {
		t.Errorf("still held:\n%s", free)
	}
}

// TestRunBadInput: command lines that make no sense are exit 64, and nothing is run.
func TestRunBadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ran := filepath.Join(w.dir, "ran")
	for name, args := range map[string][]string{
		"no name":             {"--"},
		"empty name":          {"", "--"},
		"reserved":            {"a#1", "--"},
		"control":             {"a\tb", "--"},
		"not UTF-8":           {"a\xff", "--"},
		"too long":            {strings.Repeat("x", 513), "--"},
		"too many":            append(manyNames(129), "--"),
		"twice":               {"a", "a", "--"},
		"no TTL":              {"a", "--ttl", "0s", "--"},
		"negative TTL":        {"a", "--ttl", "-1s", "--"},
		"TTL below 1 ms":      {"a", "--ttl", "500us", "--"},
		"short TTL":           {"a", "--ttl", "999ms", "--"},
		"long TTL":            {"a", "--ttl", "25h", "--"},
		"TTL without unit":    {"a", "--ttl", "15", "--"},
		"TTL that overflows":  {"a", "--ttl", "9223372036854775808ns", "--"},
		"TTL in words":        {"a", "--ttl", "1e9s", "--"},
		"negative wait":       {"a", "--wait", "-1s", "--"},
		"no wait":             {"a", "--wait", "0s", "--"},
		"wait and try":        {"a", "--wait", "1s", "--try", "--"},
		"negative min-hold":   {"a", "--min-hold", "-1s", "--"},
		"negative max-hold":   {"a", "--max-hold", "-1s", "--"},
		"max-hold too short":  {"a", "--max-hold", "2s", "--"},
		"max below min":       {"a", "--max-hold", "20s", "--min-hold", "21s", "--"},
		"grace does not fit":  {"a", "--grace", "7s", "--"},
		"negative grace":      {"a", "--grace", "-1s", "--"},
		"busy-exit":           {"a", "--busy-exit", "256", "--"},
		"negative busy-exit":  {"a", "--busy-exit", "-1", "--"},
		"long owner":          {"a", "--owner", strings.Repeat("x", 257), "--"},
		"unknown flag":        {"a", "--bogus", "--"},
		"status in no folder": {"a", "--json-status", filepath.Join(w.dir, "none", "f"), "--"},
		"status is a folder":  {"a", "--json-status", w.dir, "--"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append(append([]string{"run"}, args...), "touch", ran)
			if got := w.do(args...); got.code != 64 || !strings.HasPrefix(got.last(), "tenure: ") {
				t.Errorf("exit %d, want 64\n%s", got.code, got.stderr)
			}
		})
	}
	for name, args := range map[string][]string{"no --": {"run", "a", "touch", ran}, "no command": {"run", "a", "--"}, "empty command": {"run", "a", "--", ""}} {
		if got := w.do(args...); got.code != 64 {
			t.Errorf("%s: exit %d, want 64\n%s", name, got.code, got.stderr)
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the command was run")
	}
}

func manyNames(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	return names
}

// TestRunNames: names that look like paths, patterns or quotes are names like any other, and do not collide (L87).
func TestRunNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	names := []string{"a", "a/", "a/b", "..", "%", "%2e", `"'`, "ü", "u\u0308", strings.Repeat("x", 512), "-"}
	args := append([]string{"run"}, names...)
	var shown struct {
		Leases []infoJSON `json:"leases"`
	}
	if err := json.Unmarshal([]byte(w.ok(append(args, "--", binary, "lease", "ls", "--json", "--store", w.store)...)), &shown); err != nil {
		t.Fatal(err)
	}
	if len(shown.Leases) != len(names) {
		t.Errorf("%d of %d names are held", len(shown.Leases), len(names))
	}
}

// TestRunEnvironment: what the command learns of its lease.
func TestRunEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env = append(w.env, "TENURE_CLAIM_2=stale", "TENURE_TOKEN=stale", "TENURE_OTHER=kept")
	one := environ(w.ok("run", "a b", "--", "env"))
	claim, err := fence.ParseClaim(one["TENURE_CLAIM"])
	if err != nil {
		t.Fatalf("TENURE_CLAIM %q: %v", one["TENURE_CLAIM"], err)
	}
	for name, want := range map[string]string{
		"TENURE_NAME": "a b", "TENURE_NAME_1": "a b", "TENURE_TOKEN": claim.Token.String(), "TENURE_TOKEN_1": claim.Token.String(),
		"TENURE_CLAIM_1": claim.String(), "TENURE_COUNT": "1", "TENURE_OTHER": "kept", "TENURE_CLAIM_2": "", "TENURE_STORE": "",
	} {
		if one[name] != want {
			t.Errorf("%s=%q, want %q", name, one[name], want)
		}
	}
	if claim.Name != "a b" {
		t.Errorf("the claim is to %q", claim.Name)
	}
	two := environ(w.ok("run", "z", "b", "--pass-store", "--", "env"))
	for name, want := range map[string]string{
		"TENURE_COUNT": "2", "TENURE_NAME_1": "z", "TENURE_NAME_2": "b", "TENURE_NAME": "", "TENURE_TOKEN": "", "TENURE_CLAIM": "",
		"TENURE_STORE": w.store,
	} {
		if two[name] != want {
			t.Errorf("two names: %s=%q, want %q", name, two[name], want)
		}
	}
	if two["TENURE_TOKEN_1"] == "" || two["TENURE_TOKEN_1"] == two["TENURE_TOKEN_2"] {
		t.Errorf("two names: tokens %q and %q", two["TENURE_TOKEN_1"], two["TENURE_TOKEN_2"])
	}
}

func environ(text string) map[string]string {
	env := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	return env
}

// TestRunStreams: the command has the caller's standard input and output, and descriptors that it was to inherit.
func TestRunStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := w.command("run", "a", "--", "sh", "-c", "cat; echo extra >&3; echo err >&2; exit 6")
	cmd.Stdin = strings.NewReader("through\n")
	extra, extraW := w.pipe()
	cmd.ExtraFiles = []*os.File{extraW}
	got := w.run(cmd)
	extraW.Close()
	text := make([]byte, 16)
	n, _ := extra.Read(text)
	if got.code != 6 || got.stdout != "through\n" || !strings.HasPrefix(got.stderr, "err\n") || string(text[:n]) != "extra\n" {
		t.Errorf("got %+v, and %q on descriptor 3", got, text[:n])
	}
}

// TestRunBrokenPipe: nobody reading what tenure says is no reason to end its command.
func TestRunBrokenPipe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := w.command("run", "a", "--json-status", "s", "--", "sh", "-c", "(trap '' TERM; sleep 60) & exit 4")
	r, stderr := w.pipe()
	cmd.Stderr = stderr
	r.Close()
	err := cmd.Run()
	stderr.Close()
	if cmd.ProcessState.ExitCode() != 4 {
		t.Errorf("exit %v", err)
	}
	if s := w.status("s"); s.Outcome != "exited" || !s.Released {
		t.Errorf("status %+v", s)
	}
}

// TestRunTwice: a second run of a name waits for the first, or with --try or --wait gives up with 75.
func TestRunTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gate("go")
	first := w.start("run", "job", "--owner", "the first", "--", "sh", "-c", "echo $TENURE_TOKEN; read x <"+g.path)
	token := first.line()
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"--try":       {[]string{"--try"}, 75},
		"--wait":      {[]string{"--wait", "300ms"}, 75},
		"--busy-exit": {[]string{"--try", "--busy-exit", "0"}, 0},
	} {
		got := w.do(append(append([]string{"run", "job"}, c.args...), "--", "touch", "ran")...)
		want := fmt.Sprintf("tenure: exit %d: not acquired: ", c.code)
		if got.code != c.code || !strings.HasPrefix(got.last(), want) || !strings.Contains(got.last(), `held by "the first" under token `+token) {
			t.Errorf("%s: exit %d, last line %q", name, got.code, got.last())
		}
	}
	second := w.start("run", "job", "--", "sh", "-c", "echo $TENURE_TOKEN")
	second.await(`waiting: "job" is held by "the first"`)
	g.open()
	if got := first.wait(); got.code != 0 {
		t.Errorf("the first: exit %d\n%s", got.code, got.stderr)
	}
	a, errA := fence.ParseToken(token)
	b, errB := fence.ParseToken(second.line())
	if errA != nil || errB != nil || b <= a {
		t.Errorf("tokens %v and %v: want rising ones", a, b)
	}
	if got := second.wait(); got.code != 0 {
		t.Errorf("the second: exit %d\n%s", got.code, got.stderr)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "ran")); err == nil {
		t.Error("a command was run without the lease")
	}
}

// TestRunContention: many runs of one name, none at the same time as another, and no word of locks or corruption (L91).
func TestRunContention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all []*process
	for range 8 {
		all = append(all, w.start("run", "one", "--", "sh", "-c", "mkdir busy && echo $TENURE_TOKEN >> tokens && rmdir busy"))
	}
	scary := regexp.MustCompile(`(?i)locked|corrupt|malformed|busy`)
	for _, p := range all {
		got := p.wait()
		if got.code != 0 || scary.MatchString(got.stderr) {
			t.Errorf("exit %d\n%s", got.code, got.stderr)
		}
	}
	text, err := os.ReadFile(filepath.Join(w.dir, "tokens"))
	if err != nil {
		t.Fatal(err)
	}
	last := fence.Token(0)
	for _, line := range strings.Fields(string(text)) {
		token, err := fence.ParseToken(line)
		if err != nil || token <= last {
			t.Errorf("token %q after %v (%v)", line, last, err)
		}
		last = token
	}
}

// TestRunInterruptedWait: a signal ends the wait, and nothing is held afterwards.
func TestRunInterruptedWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gate("go")
	holder := w.start("run", "job", "--", "sh", "-c", "echo held; read x <"+g.path)
	holder.line()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		waiter := w.start("run", "job", "--", "true")
		waiter.await("waiting:")
		waiter.signal(sig)
		if got := waiter.wait(); got.code != 128+int(sig) || !strings.Contains(got.last(), "while waiting; nothing is held") {
			t.Errorf("%v: exit %d, last line %q", sig, got.code, got.last())
		}
	}
	g.open()
	holder.wait()
	if got := w.do("run", "job", "--try", "--", "true"); got.code != 0 {
		t.Errorf("not free afterwards: %s", got.stderr)
	}
}

// TestRunMinHold: after a quick command the name stays held for the rest of --min-hold (L67).
func TestRunMinHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	begin := time.Now()
	p := w.start("run", "tick", "--min-hold", "1s", "--json-status", "status.json", "--", "sh", "-c", "echo done; exit 3")
	p.line()
	if got := w.do("run", "tick", "--try", "--", "true"); got.code != 75 {
		t.Errorf("within --min-hold: exit %d, want 75", got.code)
	}
	if got := p.wait(); got.code != 3 || time.Since(begin) < time.Second {
		t.Errorf("exit %d after %v, want 3 after 1 s", got.code, time.Since(begin))
	}
	if s := w.status("status.json"); s.HeldMS < 1000 || !s.Released {
		t.Errorf("status %+v", s)
	}
	if got := w.do("run", "tick", "--try", "--", "true"); got.code != 0 {
		t.Errorf("after --min-hold: exit %d\n%s", got.code, got.stderr)
	}
}

// TestRunMinHoldCut: a signal releases the lease before the end of --min-hold, and says so.
func TestRunMinHoldCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("run", "tick", "--min-hold", "1h", "--", "sh", "-c", "echo done; exec >&-")
	p.line()
	p.signal(syscall.SIGTERM)
	got := p.wait()
	if got.code != 0 && got.code != 128+int(syscall.SIGTERM) || !strings.Contains(got.stderr, "before the end of --min-hold") {
		t.Errorf("exit %d\n%s", got.code, got.stderr)
	}
	if got := w.do("run", "tick", "--try", "--", "true"); got.code != 0 {
		t.Errorf("not released: %s", got.stderr)
	}
}

// status reads a --json-status file.
func (w *world) status(name string) status {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		w.t.Fatal(err)
	}
	var s status
	if err := json.Unmarshal(text, &s); err != nil {
		w.t.Fatalf("%s: %v\n%s", name, err, text)
	}
	return s
}

// TestRunStatus: what --json-status says before, during and after.
func TestRunStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gate("go")
	p := w.start("run", "job", "other", "--json-status", "s.json", "--owner", "me", "--", "sh", "-c", "echo $TENURE_TOKEN_1; read x <"+g.path+"; exit 9")
	token := p.line()
	if s := w.status("s.json"); s.Outcome != "running" || s.ExitCode != nil || s.Tokens[0].String() != token {
		t.Errorf("while it runs: %+v", s)
	}
	waiter := w.start("run", "job", "--json-status", "w.json", "--", "true")
	waiter.await("waiting:")
	if s := w.status("w.json"); s.Outcome != "waiting" || s.ExitCode != nil {
		t.Errorf("while it waits: %+v", s)
	}
	g.open()
	p.wait()
	s := w.status("s.json")
	if s.Outcome != "exited" || *s.ExitCode != 9 || *s.CommandExitCode != 9 || !s.Released || s.Lost != nil || s.Owner != "me" ||
		strings.Join(s.Names, " ") != "job other" || len(s.Tokens) != 2 || s.Acquisition.IsZero() || s.Store != w.store || s.CommandPID == 0 {
		t.Errorf("at the end: %+v", s)
	}
	raw, err := os.ReadFile(filepath.Join(w.dir, "s.json"))
	if err != nil || !regexp.MustCompile(`"tokens": \[\s+"`+token+`"`).Match(raw) {
		t.Errorf("tokens are not strings: %s, %v", raw, err)
	}
	waiter.wait()
	if s := w.status("w.json"); s.Outcome != "exited" || *s.ExitCode != 0 {
		t.Errorf("after the wait: %+v", s)
	}
	entries, err := os.ReadDir(w.dir)
	for _, e := range entries {
		if err != nil || strings.HasPrefix(e.Name(), ".") {
			t.Errorf("left behind: %s, %v", e.Name(), err)
		}
	}
}

// TestRunStatusOutcomes: the other outcomes, by exit code.
func TestRunStatusOutcomes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gate("go")
	holder := w.start("run", "job", "--", "sh", "-c", "echo held; read x <"+g.path)
	holder.line()
	for outcome, args := range map[string][]string{
		"not_acquired": {"job", "--try", "--", "true"},
		"not_started":  {"free", "--", "no-such-command"},
		"no_store":     {"free", "--store", "sqlite:/proc/nowhere/t.db", "--", "true"},
		"signaled":     {"free", "--", "sh", "-c", "kill -TERM $$"},
	} {
		got := w.do(append([]string{"run", "--json-status", outcome}, args...)...)
		if s := w.status(outcome); s.Outcome != outcome || *s.ExitCode != got.code || !strings.Contains(got.last(), s.Text) {
			t.Errorf("%s: exit %d, last line %q, status %+v", outcome, got.code, got.last(), s)
		}
	}
	g.open()
	holder.wait()
}
