// Command suites reads what `go test -json` prints, shows it as go test would, and ends with the stores that ran the
// conformance suite: a store that fell out of it would otherwise look like one that passed.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, ImportPath string
}

// suite is one conformance suite on one store.
type suite struct {
	store, name    string
	passed, failed int
}

type reader struct {
	out    io.Writer
	held   map[string][]string // output of tests that are under way, by package and test
	suites map[string]*suite
	failed bool
}

func main() {
	r := &reader{out: os.Stdout, held: map[string][]string{}, suites: map[string]*suite{}}
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
	r.summary()
	if r.failed {
		os.Exit(1)
	}
}

func (r *reader) read(in io.Reader) error {
	const longest = 16 << 20 // bytes of a line
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(r.out, lines.Text()) // not of go test: a compiler's, say
			continue
		}
		r.take(e)
	}
	return lines.Err()
}

// take shows what go test would show: lines about packages, and everything about a test that failed.
func (r *reader) take(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		if e.Test == "" && !noise(e.Output) || e.Action == "build-output" {
			fmt.Fprint(r.out, e.Output)
		} else if e.Test != "" {
			r.held[key] = append(r.held[key], e.Output)
		}
	case "fail", "build-fail":
		r.failed = true
		if e.Test != "" {
			fmt.Fprint(r.out, strings.Join(r.held[key], ""))
		}
		r.count(e, false)
	case "pass":
		r.count(e, true)
	}
	if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
		delete(r.held, key)
	}
}

// noise is what go test -json says of a package and go test does not.
func noise(output string) bool {
	return output == "PASS\n" || strings.HasPrefix(output, "coverage: ")
}

func (r *reader) count(e event, passed bool) {
	test, name, ok := strings.Cut(e.Test, "/") // TestOperatorConformance/some-case
	before, after, isSuite := strings.Cut(strings.TrimPrefix(test, "Test"), "Conformance")
	if !ok || !isSuite || strings.Contains(name, "/") {
		return
	}
	store, kind := path.Base(e.Package), before+after
	if store == "leasetest" { // the oracle is tried where the suite stands
		store, kind = strings.ToLower(kind), ""
	}
	key := store + " " + kind
	if r.suites[key] == nil {
		r.suites[key] = &suite{store: store, name: strings.ToLower(kind)}
	}
	if passed {
		r.suites[key].passed++
	} else {
		r.suites[key].failed++
	}
}

// summary has a line for each store.
func (r *reader) summary() {
	byStore := map[string][]*suite{}
	for _, s := range r.suites {
		byStore[s.store] = append(byStore[s.store], s)
	}
	for _, store := range slices.Sorted(maps.Keys(byStore)) {
		of := byStore[store]
		slices.SortFunc(of, func(a, b *suite) int { return strings.Compare(a.name, b.name) })
		total, parts := 0, []string{}
		for _, s := range of {
			name := s.name
			if name == "" {
				name = "core"
			}
			text := fmt.Sprintf("%s %d", name, s.passed)
			if s.failed > 0 {
				text += fmt.Sprintf(" (%d FAILED)", s.failed)
			}
			total += s.passed
			parts = append(parts, text)
		}
		fmt.Fprintf(r.out, "conformance suite on %-9s %3d cases passed: %s\n", store, total, strings.Join(parts, ", "))
	}
}
