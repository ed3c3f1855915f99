package tenure_test

import (
	"strings"
	"testing"
)

// badSource is a small tree that breaks one rule, and what the check must say of it. An empty want
// means that nothing may be found: the good twin.
type badSource struct {
	name  string
	check func([]*source) []finding
	files map[string]string
	want  string
}

func badSources() []badSource {
	long := "func f() {\n" + strings.Repeat("\tg()\n", maxFunctionLines) + "}\n"
	fits := "func f() {\n" + strings.Repeat("\tg()\n", maxFunctionLines-2) + "}\n"
	eight := "A()\nB()\nC()\nD()\nE()\nF()\nG()\nH()\n"
	row := func(pkg string, imports ...string) []importRow { return []importRow{{pkg, imports, "why"}} }
	none := []importRow(nil)
	const errorsNew = "import \"errors\"\n"
	return []badSource{
		{"package without a row", importCheck(none, none), files("a/a.go", "package a"), "package a has no row"},
		{"row without a package", importCheck(row("b"), none), nil, "row of the import table without a package"},
		{"upward import", importCheck(row("a"), none), files("a/a.go", "package a\nimport _ \""+module+"/lease\""), "package a may not import " + module + "/lease"},
		{"sibling by prefix", importCheck(row("a", "lease"), none), files("a/a.go", "package a\nimport _ \""+module+"/leasetest\""), "may not import"},
		{"folder below", importCheck(row("a", "lease"), none), files("a/a.go", "package a\nimport _ \""+module+"/lease/leasetest\""), "may not import"},
		{"other module", importCheck(row("a", "lease"), none), files("a/a.go", "package a\nimport _ \"github.com/spf13/cobra\""), "may not import github.com/spf13/cobra"},
		{"for another platform", importCheck(row("a"), none), files("a/a_windows.go", "//go:build windows\n\npackage a\nimport _ \"golang.org/x/sys/windows\""), "may not import golang.org"},
		{"test library outside tests", importCheck(row("a"), row("...", "pgregory.net/rapid")), files("a/a.go", "package a\nimport _ \"pgregory.net/rapid\""), "may not import pgregory.net"},
		{"allowed imports", importCheck(row("a", "lease", "golang.org/x/sys"), none), files("a/a.go", "package a\nimport (\n_ \"errors\"\n_ \""+module+"/lease\"\n_ \"golang.org/x/sys/unix\"\n)"), ""},
		{"test library in tests", importCheck(row("a"), row("...", "pgregory.net/rapid")), files("a/a_test.go", "package a\nimport _ \"pgregory.net/rapid\""), ""},
		{"no package comment", checkPackageComments, files("a/a.go", "// About.\npackage a"), "package a has no package comment"},
		{"package comment", checkPackageComments, files("a/a.go", "package a", "a/doc.go", "// Package a is one.\npackage a"), ""},
		{"no command comment", checkPackageComments, files("a/main.go", "package main"), "package a has no package comment"},
		{"command comment", checkPackageComments, files("a/main.go", "// Command a is one.\npackage main"), ""},
		{"init", checkNoInit, files("a/a.go", "package a\nfunc init() {}"), "func init"},
		{"method named init", checkNoInit, files("a/a.go", "package a\nfunc (t T) init() {}"), ""},
		{"variable", checkNoPackageVars, files("a/a.go", "package a\nvar count int"), "package variable count"},
		{"variable in a group", checkNoPackageVars, files("a/a.go", "package a\n"+errorsNew+"var (\nErrA = errors.New(\"a\")\ncache = map[string]int{}\n)"), "package variable cache"},
		{"own errors.New", checkNoPackageVars, files("a/a.go", "package a\nimport errors \"example.org/errors\"\nvar ErrA = errors.New(\"a\")"), "package variable ErrA"},
		{"harmless variables", checkNoPackageVars, files("a/a.go", "package a\n"+errorsNew+"var ErrA = errors.New(\"a\")\nvar _ I = T{}\n//go:embed schema.sql\nvar schema string"), ""},
		{"sentinel elsewhere", checkSentinelsInErrorsFile, files("a/a.go", "package a\n"+errorsNew+"var ErrA = errors.New(\"a\")"), "sentinel ErrA"},
		{"error type elsewhere", checkSentinelsInErrorsFile, files("a/a.go", "package a\nfunc (e *BadError) Error() string { return \"\" }"), "error type BadError"},
		{"sentinel in errors.go", checkSentinelsInErrorsFile, files("a/errors.go", "package a\n"+errorsNew+"var ErrA = errors.New(\"a\")"), ""},
		{"long function", checkFunctionSize, files("a/a.go", "package a\n"+long), "function f is longer"},
		{"function of the limit", checkFunctionSize, files("a/a.go", "package a\n"+fits), ""},
		{"long file", checkFileSize, files("a/a.go", "package a\n"+strings.Repeat("\n", maxFileLines)), "file is longer"},
		{"file of the limit", checkFileSize, files("a/a.go", "package a\n"+strings.Repeat("\n", maxFileLines-1)), ""},
		{"wide interface", checkInterfaceSize, files("a/a.go", "package a\ntype I interface {\n"+eight+"}"), "interface I has more than 7 methods"},
		{"wide by embedding", checkInterfaceSize, files("a/a.go", "package a\ntype I interface {\nJ\nA()\nB()\nC()\nD()\n}", "a/b.go", "package a\ntype J interface {\nE()\nF()\nG()\nH()\n}"), "interface I has more than 7 methods"},
		{"interface of the limit", checkInterfaceSize, files("a/a.go", "package a\ntype I interface {\n"+strings.TrimPrefix(eight, "A()\n")+"}"), ""},
		{"sleep", checkNoSleepInTests, files("a/a_test.go", "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }"), "time.Sleep"},
		{"sleep under another name", checkNoSleepInTests, files("a/a_test.go", "package a\nimport t \"time\"\nvar f = t.Sleep"), "time.Sleep"},
		{"sleep in the suite", checkNoSleepInTests, files("lease/leasetest/a.go", "package leasetest\nimport \"time\"\nfunc f() { time.Sleep(1) }"), "time.Sleep"},
		{"sleep outside tests", checkNoSleepInTests, files("a/a.go", "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }"), ""},
		{"skip", checkNoSkip, files("a/a_test.go", "package a\nimport \"testing\"\nfunc TestA(t *testing.T) { t.Skip() }"), "t.Skip"},
		{"skip in a subtest", checkNoSkip, files("a/a_test.go", "package a\nimport \"testing\"\nfunc TestA(t *testing.T) { t.Run(\"x\", func(u *testing.T) { t.SkipNow() }) }"), "t.SkipNow"},
		{"skip in a helper", checkNoSkip, files("a/a_test.go", "package a\nimport \"testing\"\nfunc help(tb testing.TB) { tb.Skipf(\"no server\") }"), "tb.Skipf"},
		{"rapid's skip", checkNoSkip, files("a/a_test.go", "package a\nimport (\n\"testing\"\n\"pgregory.net/rapid\"\n)\nfunc TestA(t *testing.T) { rapid.Check(t, func(t *rapid.T) { t.Skip() }) }"), ""},
	}
}

// files makes a tree from names and texts in turn.
func files(namesAndTexts ...string) map[string]string {
	tree := map[string]string{}
	for i := 0; i+1 < len(namesAndTexts); i += 2 {
		tree[namesAndTexts[i]] = namesAndTexts[i+1]
	}
	return tree
}

// TestChecksCanFail gives each check a source that breaks its rule, and the good twin.
func TestChecksCanFail(t *testing.T) {
	for _, bad := range badSources() {
		t.Run(bad.name, func(t *testing.T) {
			var sources []*source
			for name, text := range bad.files {
				s, err := parse(name, text)
				if err != nil {
					t.Fatal(err)
				}
				sources = append(sources, s)
			}
			found := bad.check(sources)
			switch {
			case bad.want == "" && len(found) > 0:
				t.Errorf("found %v in a good source", found)
			case bad.want != "" && len(found) != 1:
				t.Errorf("found %v, want one finding with %q", found, bad.want)
			case bad.want != "" && !strings.Contains(found[0].String(), bad.want):
				t.Errorf("found %q, want %q in it", found[0], bad.want)
			}
		})
	}
}

// TestWordCheckCanFail puts each forbidden word into a text.
func TestWordCheckCanFail(t *testing.T) {
	for _, w := range forbiddenWords() {
		found := checkWords("a.md", "first line\nsee "+w.word+" there\n", forbiddenWords())
		if len(found) != 1 || found[0].line != 2 {
			t.Errorf("%q: found %v, want one finding on line 2", w.word, found)
		}
	}
	if found := checkWords("a.sh", "mktemp -d t."+strings.Repeat("X", 6), forbiddenWords()); len(found) > 0 {
		t.Errorf("found %v in a longer word", found)
	}
}
