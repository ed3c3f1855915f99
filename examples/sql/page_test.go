//go:build unix

package sql_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/store/postgres"
)

// section is what the page says under one heading of a function.
type section struct {
	role string // of the heading above it
	text string
}

// sections are those of the functions, by heading.
func sections(t *testing.T) map[string]section {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]section{}
	for _, part := range strings.Split(string(text), "\n## Functions of ")[1:] {
		part, _, _ = strings.Cut(part, "\n## ")
		role, body, _ := strings.Cut(part, "\n")
		for _, s := range strings.Split(body, "\n### ")[1:] {
			name, body, _ := strings.Cut(s, "\n")
			all[name] = section{role, body}
		}
	}
	return all
}

// signatures are the functions that the page gives sections to, with the role that may call them.
func signatures(t *testing.T) (all []string) {
	t.Helper()
	for name, s := range sections(t) {
		for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(s.text, -1) {
			for _, signature := range strings.Split("\n"+block[1], "\ntenure.")[1:] {
				function, _, _ := strings.Cut(signature, "(")
				if !slices.Contains(strings.Split(name, " and "), function) {
					t.Errorf("tenure.%s is described under the heading %s", function, name)
				}
				all = append(all, s.role+": tenure."+strings.Join(strings.Fields(signature), " "))
			}
		}
	}
	return all
}

// catalogSQL describes every function that somebody may call as the page writes it. Of who may call it, the one with the fewest rights.
const catalogSQL = `
SELECT CASE WHEN has_function_privilege('tenure_user', p.oid, 'EXECUTE') THEN 'tenure_user'
		WHEN has_function_privilege('tenure_operator', p.oid, 'EXECUTE') THEN 'tenure_operator' ELSE 'tenure_owner' END,
	p.oid::regprocedure::text,
	'tenure.' || p.proname || '(' || (SELECT coalesce(string_agg(a, ', ' ORDER BY o), '')
		FROM regexp_split_to_table(regexp_replace(pg_get_function_arguments(p.oid), '::[a-z ]+(\[\])?', '', 'g'), ', ') WITH ORDINALITY x (a, o) WHERE a <> '' AND a NOT LIKE 'OUT %')
	|| ') -> ' || CASE
		WHEN p.proretset AND t.typrelid <> 0 THEN 'TABLE (' || (SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, NULL), ', ' ORDER BY a.attnum)
			FROM pg_attribute a WHERE a.attrelid = t.typrelid) || ')'
		WHEN pg_get_function_result(p.oid) LIKE 'TABLE(%' THEN replace(pg_get_function_result(p.oid), 'TABLE(', 'TABLE (')
		WHEN p.proargmodes IS NOT NULL AND 'o' = ANY (p.proargmodes) THEN CASE WHEN p.proretset THEN 'TABLE ' ELSE '' END || '(' || (SELECT string_agg(p.proargnames[i] || ' ' || format_type(p.proallargtypes[i], NULL), ', ' ORDER BY i)
			FROM generate_subscripts(p.proargmodes, 1) i WHERE p.proargmodes[i] = 'o') || ')'
		ELSE pg_get_function_result(p.oid) END
FROM pg_proc p JOIN pg_type t ON t.oid = p.prorettype WHERE p.pronamespace = 'tenure'::regnamespace ORDER BY 2`

// function is one that somebody may call.
type function struct{ role, procedure, signature string }

func (f function) name() string {
	name, _, _ := strings.Cut(f.procedure, "(")
	return name
}

// callable are the functions of the schema in a database.
func callable(t *testing.T, conn *pgx.Conn) (all []function) {
	t.Helper()
	rows, err := conn.Query(t.Context(), catalogSQL)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var f function
		if err := rows.Scan(&f.role, &f.procedure, &f.signature); err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPageKnowsEveryFunction holds the page to the catalog: each function that tenure_user or tenure_operator may call has a section, or a
// row among the Go store's; each section and row is of a function that is there, with the arguments, result and role that it has.
func TestPageKnowsEveryFunction(t *testing.T) {
	t.Parallel()
	described, purposes := signatures(t), purposes(t)
	table := "| function | for |\n|---|---|\n"
	for _, f := range callable(t, connect(t, "", database(t))) {
		if at := slices.Index(described, f.role+": "+f.signature); at >= 0 {
			described = slices.Delete(described, at, at+1)
			continue
		}
		if f.role == "tenure_owner" {
			continue // and nobody else's: a part of other functions
		}
		if purposes[f.name()] == "" {
			t.Errorf("docs/sql.md does not have, for %s: %s", f.role, f.signature)
		}
		table += "| `" + strings.ReplaceAll(f.procedure, ",", ", ") + "` | " + purposes[f.name()] + " |\n"
	}
	for _, extra := range described {
		t.Errorf("docs/sql.md describes what the schema does not have: %s", extra)
	}
	hold(t, "store", table)
}

// TestPageKnowsTheHalf: what may be called where the fence half alone is installed is described, and is listed under Installing; nothing else is.
func TestPageKnowsTheHalf(t *testing.T) {
	t.Parallel()
	conn := connect(t, "", testdb.Shared(t).Database(t))
	if _, err := postgres.Migrate(t.Context(), conn, postgres.MigrateOptions{FenceOnly: true}); err != nil {
		t.Fatal(err)
	}
	described, purposes := signatures(t), purposes(t)
	has := map[string]bool{}
	for _, f := range callable(t, conn) {
		if f.role == "tenure_owner" || purposes[f.name()] != "" {
			continue
		}
		if !slices.Contains(described, f.role+": "+f.signature) {
			t.Errorf("docs/sql.md does not have, for %s: %s", f.role, f.signature)
		}
		has[strings.TrimPrefix(f.name(), "tenure.")] = true
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "The half has")
	list, _, _ = strings.Cut(list, ";")
	listed := strings.Fields(strings.NewReplacer(",", " ", " and ", " ").Replace(list))
	slices.Sort(listed)
	if want := slices.Sorted(maps.Keys(has)); !slices.Equal(listed, want) {
		t.Errorf("docs/sql.md says that the half has %q; it has %q", listed, want)
	}
}

// purposes are what the Go store's functions are for, by name, as the page has it.
func purposes(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	_, rest, _ := strings.Cut(string(text), "<!-- store begins -->")
	rest, _, _ = strings.Cut(rest, "<!-- store ends -->")
	for _, row := range regexp.MustCompile("(?m)^\\| `(tenure\\.[a-z_]+)\\([^`]*` \\| (.+) \\|$").FindAllStringSubmatch(rest, -1) {
		all[row[1]] = row[2]
	}
	return all
}

// TestPageKnowsEveryState: each SQLSTATE of class TN in the schema has its row, and no other has.
func TestPageKnowsEveryState(t *testing.T) {
	t.Parallel()
	const schema = "../../store/postgres/schema"
	files, err := os.ReadDir(schema)
	if err != nil {
		t.Fatal(err)
	}
	raised := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(schema + "/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range regexp.MustCompile(`'(TN\d{3})'`).FindAllStringSubmatch(string(text), -1) {
			raised[code[1]] = true
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile(`(?m)^\| (TN\d{3}) \|`).FindAllStringSubmatch(string(text), -1) {
		if !raised[row[1]] {
			t.Errorf("docs/sql.md explains %s, which nothing raises", row[1])
		}
		delete(raised, row[1])
	}
	for code := range raised {
		t.Errorf("docs/sql.md does not explain %s", code)
	}
}
