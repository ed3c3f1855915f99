package tenure_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// source is one parsed Go file.
type source struct {
	name string // relative to the root, with slashes
	pkg  string // the folder, "." for the root
	test bool   // *_test.go
	text string
	fset *token.FileSet
	file *ast.File
}

// finding is one place that breaks a rule.
type finding struct {
	file string
	line int
	what string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.what) }

func (s *source) at(pos token.Pos, format string, args ...any) finding {
	return finding{file: s.name, line: s.fset.Position(pos).Line, what: fmt.Sprintf(format, args...)}
}

func parse(name, text string) (*source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{
		name: name,
		pkg:  path.Dir(name),
		test: strings.HasSuffix(name, "_test.go"),
		text: text,
		fset: fset,
		file: file,
	}, nil
}

// loadTree parses every Go file under root whatever platform it is for; those of nested modules only
// when asked. Generated files are left out: they are their generator's to answer for.
func loadTree(t *testing.T, root string, nested bool) []*source {
	t.Helper()
	var sources []*source
	err := walk(root, func(name string, entry fs.DirEntry) error {
		if entry.IsDir() {
			if _, err := os.Stat(filepath.Join(root, name, "go.mod")); err == nil && name != "." && !nested {
				return filepath.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		parsed, err := parse(name, string(text))
		if err != nil {
			return err
		}
		if !ast.IsGenerated(parsed.file) {
			sources = append(sources, parsed)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// walk visits what the repository holds, and nothing that was built or that git or Go passes over.
func walk(root string, visit func(name string, entry fs.DirEntry) error) error {
	built := []string{"bin", "bench/out", "spec/out", ".git"}
	return filepath.WalkDir(root, func(full string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, full)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(relative)
		if entry.IsDir() && slices.Contains(built, name) {
			return filepath.SkipDir
		}
		return visit(name, entry)
	})
}

type textFile struct{ name, text string }

func loadTexts(t *testing.T, root string) []textFile {
	t.Helper()
	const largest = 1 << 20 // bytes; beyond it a file is data, not something that a person wrote
	var files []textFile
	err := walk(root, func(name string, entry fs.DirEntry) error {
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > largest {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err == nil && utf8.Valid(text) {
			files = append(files, textFile{name, string(text)})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func checkWords(name, text string, words []forbiddenWord) []finding {
	var found []finding
	patterns := make([]*regexp.Regexp, len(words))
	letters := regexp.MustCompile(`^[A-Za-z]+$`)
	for i, w := range words {
		pattern := regexp.QuoteMeta(w.word)
		if letters.MatchString(w.word) {
			pattern = `\b` + pattern + `\b`
		}
		patterns[i] = regexp.MustCompile(pattern)
	}
	for i, line := range strings.Split(text, "\n") {
		for j, w := range words {
			if patterns[j].MatchString(line) {
				found = append(found, finding{name, i + 1, fmt.Sprintf("contains %q: %s", w.word, w.why)})
			}
		}
	}
	return found
}

// within reports whether pkg is the row's package: "x/..." stands for x and all below it.
func within(pkg, pattern string) bool {
	if pattern == "..." {
		return true
	}
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == below || strings.HasPrefix(pkg, below+"/")
	}
	return pkg == pattern
}

// importCheck makes the check of the two import tables.
func importCheck(table, testTable []importRow) func([]*source) []finding {
	return func(sources []*source) []finding {
		var found []finding
		seen := map[string]bool{}
		for _, s := range sources {
			row := slices.IndexFunc(table, func(r importRow) bool { return within(s.pkg, r.pkg) })
			if row < 0 {
				found = append(found, s.at(s.file.Package, "package %s has no row in the import table", s.pkg))
				continue
			}
			seen[table[row].pkg] = true
			allowed := table[row].imports
			if s.test {
				allowed = append(slices.Clone(allowed), s.pkg)
				for _, r := range testTable {
					if within(s.pkg, r.pkg) {
						allowed = append(allowed, r.imports...)
					}
				}
			}
			found = append(found, forbiddenImports(s, allowed, table[row].why)...)
		}
		for _, r := range table {
			if !seen[r.pkg] {
				found = append(found, finding{file: r.pkg, what: "row of the import table without a package"})
			}
		}
		return found
	}
}

func forbiddenImports(s *source, allowed []string, why string) []finding {
	var found []finding
	for _, spec := range s.file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			found = append(found, s.at(spec.Pos(), "import path %s", spec.Path.Value))
			continue
		}
		if !slices.ContainsFunc(allowed, func(a string) bool { return covers(a, imported) }) && !standard(imported) {
			found = append(found, s.at(spec.Pos(), "package %s may not import %s (%s)", s.pkg, imported, why))
		}
	}
	return found
}

// standard reports whether an import path is the standard library's: its first element has no dot.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// covers reports whether an entry of a row allows an import: a folder of this module, or another
// module with all its packages.
func covers(entry, imported string) bool {
	first, _, _ := strings.Cut(entry, "/")
	if strings.Contains(strings.Trim(first, "."), ".") {
		return imported == entry || strings.HasPrefix(imported, entry+"/")
	}
	if imported == module {
		return entry == "."
	}
	folder, ours := strings.CutPrefix(imported, module+"/")
	return ours && within(folder, entry)
}

func checkPackageComments(sources []*source) []finding {
	type state struct {
		first *source
		has   bool
	}
	packages := map[string]*state{}
	var order []string
	for _, s := range sources {
		if s.test {
			continue
		}
		p := packages[s.pkg]
		if p == nil {
			p = &state{first: s}
			packages[s.pkg] = p
			order = append(order, s.pkg)
		}
		want := "Package " + s.file.Name.Name + " "
		if s.file.Name.Name == "main" {
			want = "" // a command is described under its own name, in whatever form
		}
		p.has = p.has || s.file.Doc != nil && strings.HasPrefix(s.file.Doc.Text(), want)
	}
	var found []finding
	for _, pkg := range order {
		if p := packages[pkg]; !p.has {
			found = append(found, p.first.at(p.first.file.Package, "package %s has no package comment", pkg))
		}
	}
	return found
}
