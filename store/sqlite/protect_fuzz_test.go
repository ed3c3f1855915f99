package sqlite

import (
	"database/sql"
	"testing"
)

// What is let through as a name expression stays where it is put: whatever it is, the statement around it reads one expression and does nothing else.
func FuzzNameExpression(f *testing.F) {
	for _, seed := range []string{orderName, `1); DELETE FROM canary; --`, `'a' || "id"`, "`id`]", `[id]`, `"id'`, `x'00'`, `(id)) (`, `CASE WHEN id THEN 1 END`, `1e5.`, `'it''s'`, "id\n", `"a""b"`} {
		f.Add(seed)
	}
	db, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`CREATE TABLE canary (id, code); INSERT INTO canary VALUES (1, 'c')`); err != nil {
		f.Fatal(err)
	}
	columns := []column{{Name: "id"}, {Name: "code"}}
	f.Fuzz(func(t *testing.T, expression string) {
		used, err := checkName(expression, columns)
		if err != nil {
			return
		}
		g := guard{table: table{Name: "canary", Columns: columns}, name: expression, columns: used}
		var count int
		statement := "SELECT count(*) FROM (SELECT " + g.nameOf("canary") + " AS n FROM canary WHERE 0) HAVING true"
		// Most are no expressions, and then it is an error.
		if err := db.QueryRowContext(t.Context(), statement).Scan(&count); err == nil && count != 0 {
			t.Errorf("%q: the statement around it counts %d rows", expression, count)
		}
		var n, objects int
		if err := db.QueryRowContext(t.Context(), `SELECT count(*), (SELECT count(*) FROM sqlite_schema) FROM canary`).Scan(&n, &objects); err != nil || n != 1 || objects != 1 {
			t.Fatalf("%q led out of its statement: %d rows, %d objects, %v", expression, n, objects, err)
		}
	})
}
