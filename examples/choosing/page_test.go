package choosing_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const docs = "../../docs/"

// table is one of a page's.
type table struct {
	head []string
	rows [][]string
}

// tables are those whose last column says what shows a row.
func tables(page string) (all []table) {
	var now *table
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			now = nil
			continue
		}
		var cells []string
		for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		switch {
		case now == nil:
			all = append(all, table{head: cells})
			now = &all[len(all)-1]
		case strings.Trim(line, "|-") != "":
			now.rows = append(now.rows, cells)
		}
	}
	return slices.DeleteFunc(all, func(t table) bool { return t.head[len(t.head)-1] != "shown by" })
}

// testsIn are the tests of a folder, those of its page left out, whatever platform they are built for.
func testsIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Base(file) == "page_test.go" {
			continue
		}
		for _, found := range regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz)\w*)\(`).FindAllStringSubmatch(read(t, file), -1) {
			if found[1] != "TestMain" {
				names = append(names, found[1])
			}
		}
	}
	return names
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const (
	lockTables = 8 // each has a row for each lock
	locks      = 7
)

// checkChoosing says what is wrong with docs/choosing.md, given the tests that there are.
func checkChoosing(page string, tests []string) (wrong []string) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	name := regexp.MustCompile("`(Test\\w+)`")
	var kinds []string
	ofLocks := 0
	for _, table := range tables(page) {
		var first []string
		for _, row := range table.rows {
			first = append(first, row[0])
			by := row[len(row)-1]
			unshown := by == "-" && (table.head[0] == "situation" || strings.HasPrefix(row[1], "does not apply"))
			if !unshown && !name.MatchString(by) {
				complain("no test shows the row %q: %q", row[0], row[1])
			}
		}
		if table.head[0] != "lock" {
			continue
		}
		ofLocks++
		if kinds == nil {
			kinds = first
		}
		if len(first) != locks || !slices.Equal(first, kinds) {
			complain("a table has the locks %q, want %q", first, kinds)
		}
	}
	if ofLocks != lockTables {
		complain("%d tables have locks, want %d", ofLocks, lockTables)
	}
	named := map[string]bool{}
	for _, found := range name.FindAllStringSubmatch(page, -1) {
		named[found[1]] = true
		if !slices.Contains(tests, found[1]) {
			complain("there is no %s", found[1])
		}
	}
	for _, test := range tests {
		if !named[test] {
			complain("%s shows what the page does not say", test)
		}
	}
	return wrong
}

// TestPageOfLocks holds docs/choosing.md to the tests of this folder: each row has one, and each has a row.
func TestPageOfLocks(t *testing.T) {
	for _, wrong := range checkChoosing(read(t, docs+"choosing.md"), testsIn(t, ".")) {
		t.Error(wrong)
	}
}

// TestBrokenPageOfLocks demands that the check finds what was broken on purpose.
func TestBrokenPageOfLocks(t *testing.T) {
	page, tests := read(t, docs+"choosing.md"), testsIn(t, ".")
	const one = "TestRWMutexIsShared"
	row := regexp.MustCompile("(?m)^\\| mutex .*`" + one + "` \\|\n").FindString(page)
	for broken, c := range map[string]struct {
		page  string
		tests []string
		want  string
	}{
		"a row without a test":    {strings.Replace(page, row, "| mutex | yes | |\n", 1), tests, "no test shows"},
		"a row that is said away": {strings.Replace(page, row, "| mutex | yes | - |\n", 1), tests, "no test shows"},
		"a lock is left out":      {strings.Replace(page, row, "", 1), tests, "a table has the locks"},
		"a table is left out":     {strings.Replace(page, "| lock |", "| locks |", 1), tests, "tables have locks"},
		"a test that is gone":     {page, slices.DeleteFunc(slices.Clone(tests), func(name string) bool { return name == one }), "there is no " + one},
		"a test without a row":    {page, append(slices.Clone(tests), "TestNew"), "TestNew shows"},
	} {
		if found := checkChoosing(c.page, c.tests); !slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("%s: found %q, want %q", broken, found, c.want)
		}
	}
}

// checkEnforcement says what is wrong with docs/enforcement.md, given the tests by folder and the text that names the drills.
func checkEnforcement(page string, tests func(folder string) []string, drills string) (wrong []string) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	test := regexp.MustCompile("`([a-z/0-9]+): ((?:Test|Example|Fuzz)\\w+)`")
	drill := regexp.MustCompile("`tenure drill ([a-z-]+)")
	for _, table := range tables(page) {
		for _, row := range table.rows {
			if by := row[len(row)-1]; !test.MatchString(by) && !drill.MatchString(by) {
				complain("nothing shows the row %q", row[0])
			}
		}
	}
	for _, found := range test.FindAllStringSubmatch(page, -1) {
		if !slices.Contains(tests(found[1]), found[2]) {
			complain("%s has no %s", found[1], found[2])
		}
	}
	for _, found := range drill.FindAllStringSubmatch(page, -1) {
		if !strings.Contains(drills, `"`+found[1]+`"`) {
			complain("there is no drill %s", found[1])
		}
	}
	return wrong
}

// TestPageOfEnforcement holds docs/enforcement.md to the tests and drills that it names.
func TestPageOfEnforcement(t *testing.T) {
	page := read(t, docs+"enforcement.md")
	tests := func(folder string) []string { return testsIn(t, "../../"+folder) }
	for _, wrong := range checkEnforcement(page, tests, read(t, "../../drill/scenario.go")) {
		t.Error(wrong)
	}
	if len(tables(page)) == 0 {
		t.Error("the page has no table")
	}

	none := func(string) []string { return nil }
	for broken, found := range map[string][]string{
		"a row without a test":     checkEnforcement("| point | shown by |\n|---|---|\n| x | |\n", none, ""),
		"a test that is not":       checkEnforcement("`fence: TestNone`", none, ""),
		"a drill that is not":      checkEnforcement("`tenure drill none`", none, `"pause"`),
		"only half a drill's name": checkEnforcement("`tenure drill pau`", none, `"pause"`),
	} {
		if len(found) != 1 {
			t.Errorf("%s: found %q", broken, found)
		}
	}
}
