//go:build unix

package sql_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tenure-go/tenure/internal/testdb"
)

const page = "../../docs/sql.md"

var update = flag.Bool("update", false, "write the generated parts of docs/sql.md")

// terminal is a psql of one worker, with all that it prints in the order in which it prints it.
type terminal struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Scanner
}

// shownTTL is what the page says; ranTTL, as long in characters, is what the test waits for.
const (
	shownTTL, shownInterval = "30 seconds", "00:00:30"
	ranTTL, ranInterval     = "3 seconds", "00:00:03"
)

func openTerminal(t *testing.T, psql, url string) *terminal {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{cmd: exec.CommandContext(ctx, psql, "-X", "-v", "ttl="+ranTTL, url), out: bufio.NewScanner(read)}
	term.cmd.Stdout, term.cmd.Stderr = write, write
	term.cmd.Env = append(os.Environ(), "LC_ALL=C")
	if term.stdin, err = term.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := term.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close() // psql has its own
	t.Cleanup(func() {
		cancel()
		_ = term.cmd.Wait() // it was killed
		_ = read.Close()
	})
	return term
}

// run types one command and returns what comes out.
func (term *terminal) run(t *testing.T, command string) string {
	t.Helper()
	const done = "-- done --"
	if _, err := io.WriteString(term.stdin, command+"\n\\echo "+done+"\n"); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for term.out.Scan() {
		if term.out.Text() == done {
			return out.String()
		}
		out.WriteString(term.out.Text() + "\n")
	}
	t.Fatalf("psql ended at %q after %s", command, out.String())
	return ""
}

// commands splits what is typed: a command ends with a semicolon or \gset, or is one line that begins with a backslash.
func commands(text string) (all []string) {
	var command string
	for line := range strings.Lines(text) {
		command += line
		end := strings.TrimSpace(command)
		if strings.HasPrefix(end, `\`) || strings.HasSuffix(end, ";") || strings.HasSuffix(end, `\gset`) {
			all = append(all, end)
			command = ""
		}
	}
	return all
}

// steady gives ids, times and rulers a form that does not change from run to run. Ids get theirs in the order in which they appear.
type steady struct{ seen []string }

func (s *steady) text(out string) string {
	ids := []string{"6f1c2e0a-3b5d-4c8e-9a47-d20b6c1e8f35", "019c0b7e-51c2-7a31-8d0f-5b9a6e27c414", "019c0b7e-6a07-7c58-9b3e-0f84d1a6723b"}
	out = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).ReplaceAllStringFunc(out, func(id string) string {
		at := slices.Index(s.seen, id)
		if at < 0 {
			at = len(s.seen)
			s.seen = append(s.seen, id)
		}
		return ids[at]
	})
	out = regexp.MustCompile(`\d\d:\d\d:\d\d(\.\d+)?`).ReplaceAllStringFunc(out, func(interval string) string {
		switch interval {
		case ranInterval:
			return shownInterval
		case "00:01:00":
			return interval
		}
		return "00:00:29.9954"
	})
	out = regexp.MustCompile(`(?m)^(-\[ RECORD \d+ \])[-+]*$`).ReplaceAllString(out, "$1") // as long as the longest value
	out = regexp.MustCompile(`(?m) +$`).ReplaceAllString(out, "")
	return strings.TrimSpace(out)
}

// play types a step of the session and returns it as the page shows it: why, what is typed, and what comes out.
func play(t *testing.T, step string, terminals map[string]*terminal, s *steady) string {
	t.Helper()
	head, body, _ := strings.Cut(step, "\n")
	who, act, _ := strings.Cut(head, " ")
	term := terminals[who]
	if term == nil {
		t.Fatalf("no terminal %q", who)
	}
	var why, typed []string
	for line := range strings.Lines(strings.TrimSpace(body)) {
		if comment, ok := strings.CutPrefix(line, "-- "); ok {
			why = append(why, strings.TrimSpace(comment))
		} else {
			typed = append(typed, line)
		}
	}
	var shown strings.Builder
	switch act {
	case "stops":
		shown.WriteString("^Z\n")
		if err := term.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	case "goes on":
		shown.WriteString("$ fg\n")
		if err := term.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	case "":
	default:
		t.Fatalf("%q is no act", act)
	}
	for _, command := range commands(strings.Join(typed, "")) {
		fmt.Fprintf(&shown, "%s=> %s\n", strings.ToLower(who), command)
		if out := s.text(term.run(t, command)); out != "" {
			shown.WriteString(out + "\n")
		}
	}
	return fmt.Sprintf("**%s.** %s\n\n```text\n%s```\n", who, strings.Join(why, "\n"), shown.String())
}

// playAll types a whole session and returns it as the page shows it. It is an error if it does not show all that is wanted.
func playAll(t *testing.T, file string, terminals map[string]*terminal, wants []string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var s steady
	var shown []string
	for _, step := range strings.Split(string(text), "\n--- ")[1:] {
		shown = append(shown, play(t, step, terminals, &s))
	}
	all := strings.Join(shown, "\n")
	for _, want := range wants {
		if !strings.Contains(all, want) {
			t.Errorf("%s does not show %q:\n%s", file, want, all)
		}
	}
	return all
}

// TestSession plays session.sql in two terminals and holds the page to what comes out.
func TestSession(t *testing.T) {
	t.Parallel()
	url := testdb.Shared(t).URLAs("worker", database(t))
	psql := program(t, []string{"psql"}, "--version")
	terminals := map[string]*terminal{"A": openTerminal(t, psql, url), "B": openTerminal(t, psql, url)}
	hold(t, "session", "\n"+playAll(t, "session.sql", terminals, []string{
		"outcome   | held", "refused token 1", "superseded, newer token 2", "\nTN010\n", "outcome | expired\nover    | session",
		"line    | 1\nmade_by | worker-a\ntoken   | 1\n-[ RECORD 2 ]\nline    | 2\nmade_by | worker-b\ntoken   | 2\n```",
	}))
}

// writing keeps two tests from updating the page at once.
var writing sync.Mutex

// hold compares a generated part of the page with what it should be, or writes it.
func hold(t *testing.T, part, want string) {
	t.Helper()
	writing.Lock()
	defer writing.Unlock()
	begin, end := "<!-- "+part+" begins -->\n", "<!-- "+part+" ends -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("docs/sql.md has no part %q", part)
	}
	want += "\n"
	if *update && got != want {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want {
		t.Errorf("the part %q of docs/sql.md is old; run: go test ./examples/sql -update\nit has\n%s\nwant\n%s", part, got, want)
	}
}
