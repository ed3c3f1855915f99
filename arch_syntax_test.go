package tenure_test

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// funcs calls visit for each function and method that a file declares.
func (s *source) funcs(visit func(*ast.FuncDecl)) {
	for _, decl := range s.file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			visit(f)
		}
	}
}

// vars calls visit for each package-level variable declaration.
func (s *source) vars(visit func(*ast.GenDecl, *ast.ValueSpec)) {
	for _, decl := range s.file.Decls {
		if g, ok := decl.(*ast.GenDecl); ok && g.Tok == token.VAR {
			for _, spec := range g.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					visit(g, v)
				}
			}
		}
	}
}

// importName is the name under which a file knows an imported package, or "" if it does not import it.
func (s *source) importName(importPath string) string {
	for _, spec := range s.file.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

// isCallOf reports whether expr is a call of name in the package imported from importPath.
func (s *source) isCallOf(expr ast.Expr, importPath, name string) bool {
	call, ok := expr.(*ast.CallExpr)
	return ok && s.isSelector(call.Fun, importPath, name)
}

func (s *source) isSelector(expr ast.Expr, importPath, name string) bool {
	selector, ok := expr.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != name {
		return false
	}
	ident, ok := selector.X.(*ast.Ident)
	known := s.importName(importPath)
	return ok && known != "" && ident.Name == known
}

func checkNoInit(sources []*source) []finding {
	var found []finding
	for _, s := range sources {
		s.funcs(func(f *ast.FuncDecl) {
			if f.Name.Name == "init" && f.Recv == nil {
				found = append(found, s.at(f.Pos(), "func init"))
			}
		})
	}
	return found
}

func checkNoPackageVars(sources []*source) []finding {
	var found []finding
	for _, s := range sources {
		if s.test {
			continue // a test binary's variables reach nobody else
		}
		s.vars(func(g *ast.GenDecl, v *ast.ValueSpec) {
			if !s.harmless(g, v) {
				found = append(found, s.at(v.Pos(), "package variable %s", v.Names[0].Name))
			}
		})
	}
	return found
}

// harmless reports whether a package variable is a sentinel error, a compile-time assertion or an
// embedded file: things that are written once, by the compiler.
func (s *source) harmless(g *ast.GenDecl, v *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{g.Doc, v.Doc} {
		if doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") }) {
			return true
		}
	}
	assertion := func(name *ast.Ident) bool { return name.Name == "_" }
	if !slices.ContainsFunc(v.Names, func(n *ast.Ident) bool { return !assertion(n) }) {
		return true
	}
	return s.isSentinel(v)
}

func (s *source) isSentinel(v *ast.ValueSpec) bool {
	if len(v.Values) == 0 {
		return false
	}
	return !slices.ContainsFunc(v.Values, func(e ast.Expr) bool { return !s.isCallOf(e, "errors", "New") })
}

func checkSentinelsInErrorsFile(sources []*source) []finding {
	var found []finding
	for _, s := range sources {
		if s.test || path.Base(s.name) == "errors.go" {
			continue
		}
		s.vars(func(_ *ast.GenDecl, v *ast.ValueSpec) {
			if s.isSentinel(v) {
				found = append(found, s.at(v.Pos(), "sentinel %s", v.Names[0].Name))
			}
		})
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == "Error" && f.Recv != nil && f.Name.IsExported() && exportedReceiver(f) {
				found = append(found, s.at(f.Pos(), "error type %s", receiverName(f)))
			}
		}
	}
	return found
}

func receiverName(f *ast.FuncDecl) string {
	expr := f.Recv.List[0].Type
	if star, ok := expr.(*ast.StarExpr); ok {
		expr = star.X
	}
	if ident, ok := expr.(*ast.Ident); ok {
		return ident.Name
	}
	return ""
}

func exportedReceiver(f *ast.FuncDecl) bool { return ast.IsExported(receiverName(f)) }

func checkFunctionSize(sources []*source) []finding {
	var found []finding
	for _, s := range sources {
		s.funcs(func(f *ast.FuncDecl) {
			lines := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
			if lines > maxFunctionLines {
				found = append(found, s.at(f.Pos(), "function %s is longer than %d lines", f.Name.Name, maxFunctionLines))
			}
		})
	}
	return found
}

func checkFileSize(sources []*source) []finding {
	var found []finding
	for _, s := range sources {
		if strings.Count(s.text, "\n") > maxFileLines {
			found = append(found, s.at(s.file.Package, "file is longer than %d lines", maxFileLines))
		}
	}
	return found
}

func checkInterfaceSize(sources []*source) []finding {
	var found []finding
	for _, s := range sources {
		ast.Inspect(s.file, func(n ast.Node) bool {
			named, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if i, ok := named.Type.(*ast.InterfaceType); ok && methods(s, sources, i) > maxInterfaceMethods {
				found = append(found, s.at(named.Pos(), "interface %s has more than %d methods", named.Name.Name, maxInterfaceMethods))
			}
			return true
		})
	}
	return found
}

// methods counts the methods of an interface, those of embedded interfaces of the same package
// included; any other embedded one counts as one.
func methods(s *source, sources []*source, i *ast.InterfaceType) int {
	n := 0
	for _, field := range i.Methods.List {
		if len(field.Names) > 0 {
			n += len(field.Names)
			continue
		}
		embedded := declaredInterface(s, sources, field.Type)
		if embedded == nil || embedded == i {
			n++
			continue
		}
		n += methods(s, sources, embedded)
	}
	return n
}

func declaredInterface(s *source, sources []*source, expr ast.Expr) *ast.InterfaceType {
	ident, ok := expr.(*ast.Ident)
	if !ok {
		return nil
	}
	var declared *ast.InterfaceType
	for _, other := range sources {
		if other.pkg != s.pkg {
			continue
		}
		ast.Inspect(other.file, func(n ast.Node) bool {
			if named, ok := n.(*ast.TypeSpec); ok && named.Name.Name == ident.Name {
				declared, _ = named.Type.(*ast.InterfaceType)
			}
			return declared == nil
		})
	}
	return declared
}

func checkNoSleepInTests(sources []*source) []finding {
	var found []finding
	for _, s := range sources {
		if !s.test && !within(s.pkg, "lease/leasetest") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok && s.isSelector(selector, "time", "Sleep") {
				found = append(found, s.at(n.Pos(), "time.Sleep"))
			}
			return true
		})
	}
	return found
}

// checkNoSkip looks for Skip, Skipf and SkipNow on what a function was handed as a testing type.
// rapid's Skip is another thing: it says that an action does not apply in the present state.
func checkNoSkip(sources []*source) []finding {
	var found []finding
	for _, s := range sources {
		for _, decl := range s.file.Decls {
			skips(s, decl, nil, &found)
		}
	}
	return found
}

// skips walks node with the names that stand for a testing type there.
func skips(s *source, node ast.Node, names []string, found *[]finding) {
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil {
				skips(s, n.Body, s.testingParams(n.Type, names), found)
			}
			return false
		case *ast.FuncLit:
			skips(s, n.Body, s.testingParams(n.Type, names), found)
			return false
		case *ast.SelectorExpr:
			ident, ok := n.X.(*ast.Ident)
			if ok && slices.Contains(names, ident.Name) && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, n.Sel.Name) {
				*found = append(*found, s.at(n.Pos(), "%s.%s", ident.Name, n.Sel.Name))
			}
		}
		return true
	})
}

// testingParams are the names known in a function: those from outside that its own parameters do not
// hide, and its parameters of type *testing.T, B, F or testing.TB.
func (s *source) testingParams(signature *ast.FuncType, outer []string) []string {
	names := slices.Clone(outer)
	for _, field := range signature.Params.List {
		expr := field.Type
		if star, ok := expr.(*ast.StarExpr); ok {
			expr = star.X
		}
		isTesting := slices.ContainsFunc([]string{"T", "B", "F", "TB"}, func(n string) bool { return s.isSelector(expr, "testing", n) })
		for _, name := range field.Names {
			names = slices.DeleteFunc(names, func(n string) bool { return n == name.Name })
			if isTesting {
				names = append(names, name.Name)
			}
		}
	}
	return names
}
