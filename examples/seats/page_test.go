package seats

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const page = "../../docs/holds.md"

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

// TestPageShowsThisCode holds docs/holds.md to this folder: its code is compiled here, and the tests that it names are there.
func TestPageShowsThisCode(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```go\n")[1:]
	if len(blocks) < 4 {
		t.Errorf("the page has %d blocks of Go", len(blocks))
	}
	code := lines(all.String())
	for _, block := range blocks {
		shown, _, _ := strings.Cut(block, "```\n")
		if !strings.Contains(code, lines(shown)) {
			t.Errorf("the page shows what no file has:\n%s", shown)
		}
		if strings.Contains(code, lines(shown+"\nnever()\n")) {
			t.Error("the check cannot fail")
		}
	}
	for _, found := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(all.String(), "func "+found[1]+"(") {
			t.Errorf("there is no %s", found[1])
		}
	}
}
