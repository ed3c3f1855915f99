package payments_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const page = "../../docs/payments.md"

// lines are those of a text that say something, without their indentation.
func lines(text string) string {
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return "\n" + strings.Join(all, "\n") + "\n"
}

// shown reports whether a block of the page is code of this folder: line by line, in one file and in its order; "// ..." stands for what is left out.
func shown(block string, files map[string]string) bool {
	for _, text := range files {
		rest, found := text, true
		for _, part := range strings.Split(lines(block), "\n// ...\n") {
			part = strings.Trim(part, "\n")
			var ok bool
			if _, rest, ok = strings.Cut(rest, "\n"+part+"\n"); !ok {
				found = false
				break
			}
			rest = "\n" + rest
		}
		if found {
			return true
		}
	}
	return false
}

// TestPageShowsThisCode holds docs/payments.md to this folder: its code is compiled here, and the tests that it names are there.
func TestPageShowsThisCode(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = lines(string(text))
		all.Write(text)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```go\n")[1:]
	if len(blocks) < 5 {
		t.Errorf("the page has %d blocks of Go", len(blocks))
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```\n")
		if !shown(code, files) {
			t.Errorf("the page shows what no file has:\n%s", code)
		}
		if shown(code+"\nnever()\n", files) {
			t.Error("the check cannot fail")
		}
	}
	for _, found := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(all.String(), "func "+found[1]+"(") {
			t.Errorf("there is no %s", found[1])
		}
	}
}
