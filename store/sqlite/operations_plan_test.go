package sqlite

import (
	"strconv"
	"strings"
	"testing"
)

// What a claim, a reconciler and an operator look for is found by an index: no statement walks over what is decided, however much of that is stored.
func TestOperationsAreFoundByIndexes(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	list := `SELECT ` + opColumns + ` FROM tenure_operation o WHERE o.id > '' AND `
	for statement, index := range map[string]string{
		selectWork:      "tenure_operation_work",
		anyWork:         "tenure_operation_work",
		selectWatch:     "tenure_operation_watch",
		selectDesk:      "tenure_operation_desk",
		selectPrunable:  "tenure_operation_decided",
		unblockNext:     "tenure_operation_order",
		insertOperation: "tenure_operation_order",
		statRows:        "tenure_operation_",
		list + `o.conflicts > 0 ORDER BY o.id LIMIT 1`: "tenure_operation_conflicts",
		list + `o.state = 3 ORDER BY o.id LIMIT 1`:     "tenure_operation_uncertain",
		list + `o.wished = 1 ORDER BY o.id LIMIT 1`:    "tenure_operation_wished",
	} {
		for _, step := range plan(t, s, statement) {
			table := strings.Contains(step, "tenure_operation") || strings.Contains(step, " o ")
			byID := strings.HasSuffix(step, "(id=?)") // one row, such as what a compensation undoes
			if table && !byID && !strings.Contains(step, index) && !strings.Contains(step, "INTEGER PRIMARY KEY") {
				t.Errorf("%s\n\tis planned as %q, want the index %s", statement, step, index)
			}
		}
	}
}

// plan is how SQLite runs a statement.
func plan(t *testing.T, s *Store, statement string) (steps []string) {
	t.Helper()
	args := 0
	for n := range 10 {
		if strings.Contains(statement, "?"+strconv.Itoa(n)) {
			args = n
		}
	}
	rows, err := s.readDB.QueryContext(t.Context(), `EXPLAIN QUERY PLAN `+statement, make([]any, max(args, strings.Count(statement, "= ? ")))...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps
}
