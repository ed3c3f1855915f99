package tenure_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeCodeIsTheExample holds README's Go code, block by block, to code that tests compile and run.
func TestReadmeCodeIsTheExample(t *testing.T) {
	files := []string{"example_test.go", "store/postgres/readme_test.go", "worker/readme_test.go"}
	blocks := strings.Split(read(t, "README.md"), "```go\n")[1:]
	if len(blocks) != len(files) {
		t.Fatalf("README.md has %d blocks of Go, and tests run %d", len(blocks), len(files))
	}
	for i, file := range files {
		shown, _, _ := strings.Cut(blocks[i], "```\n")
		run := between(t, read(t, file), "// README begins.\n", "// README ends.\n")
		if a, b := strings.TrimSpace(dedent(shown)), strings.TrimSpace(dedent(run)); a != b {
			t.Errorf("README.md shows\n%s\n\n%s runs\n%s", a, file, b)
		}
	}
}

// TestLinksResolve follows every link between the documents of the repository.
func TestLinksResolve(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, file := range loadTexts(t, ".") {
		if path.Ext(file.name) != ".md" {
			continue
		}
		for _, match := range link.FindAllStringSubmatch(file.text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(file.name), match[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", file.name, match[1])
			}
		}
	}
}

// TestReadmeNamesRealTargets holds the commands of README and CONTRIBUTING to the Makefile.
func TestReadmeNamesRealTargets(t *testing.T) {
	makefile := read(t, "Makefile")
	command := regexp.MustCompile("(?m)(?:^|`)make ([a-z]+)")
	for _, name := range []string{"README.md", "CONTRIBUTING.md"} {
		for _, match := range command.FindAllStringSubmatch(read(t, name), -1) {
			if !strings.Contains(makefile, "\n"+match[1]+": ##") {
				t.Errorf("%s says make %s, which the Makefile does not have", name, match[1])
			}
		}
	}
}

// TestEveryStoreStatesItsGuarantees looks for a heading for each store.
func TestEveryStoreStatesItsGuarantees(t *testing.T) {
	stores, err := filepath.Glob("store/*")
	if err != nil || len(stores) == 0 {
		t.Fatalf("stores: %v, %v", stores, err)
	}
	text := read(t, "docs/guarantees.md")
	for _, store := range stores {
		if !strings.Contains(text, "\n## "+filepath.ToSlash(store)) {
			t.Errorf("docs/guarantees.md has no section on %s", store)
		}
	}
}

// TestEveryDependencyHasAReason looks for each direct requirement in docs/decisions.md.
func TestEveryDependencyHasAReason(t *testing.T) {
	text := read(t, "docs/decisions.md")
	required := regexp.MustCompile(`(?m)^(?:require |\t)([a-z0-9.]+/[^ ]+) v[^ ]+$`)
	for _, match := range required.FindAllStringSubmatch(read(t, "go.mod"), -1) {
		if !strings.Contains(text, "| "+match[1]+" |") {
			t.Errorf("docs/decisions.md gives no reason for %s", match[1])
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func between(t *testing.T, text, begin, end string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, begin)
	if !ok {
		t.Fatalf("no %q", begin)
	}
	inner, _, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("no %q after %q", end, begin)
	}
	return inner
}

// dedent takes away the indentation of the first line from every line.
func dedent(text string) string {
	lines := strings.Split(text, "\n")
	indent := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], "\t"))]
	for i, line := range lines {
		lines[i] = strings.TrimRight(strings.TrimPrefix(line, indent), " \t")
	}
	return strings.Join(lines, "\n")
}
