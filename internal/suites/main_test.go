package main

import (
	"strings"
	"testing"
)

func read(t *testing.T, lines ...string) (string, bool) {
	t.Helper()
	var out strings.Builder
	r := &reader{out: &out, held: map[string][]string{}, suites: map[string]*suite{}}
	if err := r.read(strings.NewReader(strings.Join(lines, "\n"))); err != nil {
		t.Fatal(err)
	}
	r.summary()
	return out.String(), r.failed
}

func TestTheStoresAreListed(t *testing.T) {
	got, failed := read(t,
		`{"Action":"output","Package":"x/store/memory","Test":"TestConformance/a","Output":"secret\n"}`,
		`{"Action":"pass","Package":"x/store/memory","Test":"TestConformance/a"}`,
		`{"Action":"pass","Package":"x/store/memory","Test":"TestConformance/b"}`,
		`{"Action":"pass","Package":"x/store/memory","Test":"TestConformance/b/part"}`,
		`{"Action":"pass","Package":"x/store/memory","Test":"TestConformance"}`,
		`{"Action":"pass","Package":"x/store/sql","Test":"TestOperatorConformance/a"}`,
		`{"Action":"pass","Package":"x/store/sql","Test":"TestOther/a"}`,
		`{"Action":"output","Package":"x/store/sql","Output":"PASS\n"}`,
		`{"Action":"output","Package":"x/store/sql","Output":"ok  \tx/store/sql\t1s\n"}`)
	want := "ok  \tx/store/sql\t1s\n" +
		"conformance suite on memory      2 cases passed: core 2\n" +
		"conformance suite on sql         1 cases passed: operator 1\n"
	if got != want || failed {
		t.Errorf("got %v\n%s\nwant\n%s", failed, got, want)
	}
}

func TestAFailureIsShown(t *testing.T) {
	got, failed := read(t,
		`# a compiler's words`,
		`{"Action":"output","Package":"x/store/sql","Test":"TestConformance/a","Output":"why\n"}`,
		`{"Action":"fail","Package":"x/store/sql","Test":"TestConformance/a"}`,
		`{"ImportPath":"y","Action":"build-output","Output":"y.go:1: no\n"}`,
		`{"Action":"fail","Package":"y"}`)
	want := "# a compiler's words\nwhy\ny.go:1: no\nconformance suite on sql         0 cases passed: core 0 (1 FAILED)\n"
	if got != want || !failed {
		t.Errorf("got %v\n%s\nwant\n%s", failed, got, want)
	}
}
