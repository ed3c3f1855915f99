//go:build unix

package sqlite

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/fence"
)

// pythonScript is a program with another driver and another SQLite, which has never heard of leases: it runs each statement of the list that it reads
// and says how it went. A row of the answer: the statement's error and its class, or nothing.
const pythonScript = `
import json, sqlite3, sys
job = json.load(sys.stdin)
db = sqlite3.connect(job["path"], isolation_level=None, timeout=30)
for setting in job["settings"]:
    db.execute(setting)
answers = []
for statement in job["statements"]:
    try:
        if statement == "blob":
            if hasattr(db, "blobopen"):
                with db.blobopen("orders", "state", 1) as blob:
                    blob.write(b"old")
        elif statement == "executemany":
            db.executemany("INSERT INTO orders (id, code) VALUES (?, ?)", [(20, "m"), (21, "n")])
        else:
            db.execute(statement).fetchall()
        answers.append("")
    except sqlite3.Error as e:
        answers.append(type(e).__name__ + ": " + str(e))
        if db.in_transaction:
            db.execute("ROLLBACK")
print(json.dumps({"version": sqlite3.sqlite_version, "answers": answers}))
`

// python runs the statements in a program of its own, on a connection with the settings, and returns the errors.
func python(t testing.TB, path string, settings []string, statements ...string) []string {
	t.Helper()
	job, err := json.Marshal(map[string]any{"path": path, "settings": append([]string{}, settings...), "statements": statements})
	if err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		program = "python3"
	}
	cmd := exec.CommandContext(t.Context(), program, "-c", pythonScript)
	cmd.Stdin = strings.NewReader(string(job))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	var answer struct {
		Version string
		Answers []string
	}
	if err := json.Unmarshal(out, &answer); err != nil || len(answer.Answers) != len(statements) {
		t.Fatalf("%s: %v", out, err)
	}
	t.Logf("SQLite %s", answer.Version)
	return answer.Answers
}

// Another program, by another driver, writes nothing, whatever it sets on its connection, and is told what to do.
func TestAnotherProgramWritesNothing(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.p.take("orders/1")
	before := g.content("orders")
	statements := []string{steal, `DELETE FROM orders`, `INSERT INTO orders (id, code) VALUES (9, 'x')`, `REPLACE INTO orders (id, code) VALUES (1, 'x')`, `UPDATE OR REPLACE orders SET code = 'two' WHERE id = 1`,
		`INSERT INTO orders (id, code) VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET state = 'stolen'`, "executemany"}
	for _, settings := range [][]string{
		nil,
		{`PRAGMA foreign_keys = ON`, `PRAGMA recursive_triggers = ON`},
		{`PRAGMA trusted_schema = OFF`, `PRAGMA defer_foreign_keys = ON`},
		{`PRAGMA ignore_check_constraints = ON`, `PRAGMA case_sensitive_like = ON`, `PRAGMA reverse_unordered_selects = ON`},
		// Names of its own in front of ours: the triggers look in their own file.
		{`CREATE TEMP TABLE tenure_in_force (name)`, `INSERT INTO tenure_in_force VALUES ('orders/1'), ('orders/2'), ('orders/3'), ('orders/9')`,
			`CREATE TEMP TABLE tenure_presented (name, acquisition, token, mark)`, `CREATE TEMP TABLE tenure_authority (one, mark)`, `CREATE TEMP VIEW tenure_lease AS SELECT 1`},
	} {
		for i, answer := range python(t, g.s.path, settings, statements...) {
			if !strings.HasPrefix(answer, `IntegrityError: tenure: refused a row of "orders", written under the lease "'orders/' || id": `) || !strings.Contains(answer, "nothing was written") {
				t.Errorf("%v, %s: %q", settings, statements[i], answer)
			}
		}
	}
	if after := g.content("orders"); after != before {
		t.Errorf("refused, and changed\n%sinto\n%s", before, after)
	}
	// The file as one of several of its connection, under another name.
	for i, answer := range python(t, newPath(t), []string{`ATTACH ` + literal(g.s.path) + ` AS theirs`, `CREATE TABLE tenure_in_force (name)`, `INSERT INTO tenure_in_force VALUES ('orders/1')`},
		`UPDATE theirs.orders SET state = 'stolen' WHERE id = 1`, `DELETE FROM theirs.orders`) {
		if !strings.HasPrefix(answer, "IntegrityError: tenure: refused") {
			t.Errorf("attached, statement %d: %q", i, answer)
		}
	}
	// It reads, and writes what is not protected.
	for i, answer := range python(t, g.s.path, nil, `SELECT * FROM orders`, `CREATE TABLE notes (a)`, `INSERT INTO notes VALUES (1)`, `PRAGMA integrity_check`, `PRAGMA foreign_key_check`) {
		if answer != "" {
			t.Errorf("statement %d: %s", i, answer)
		}
	}
}

// A claim that another program writes by hand where claims are presented proves nothing unless it holds, and is not committed.
func TestAnotherProgramForges(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	old := g.p.take("orders/1")
	g.p.drop(old)
	valid := g.p.take("orders/1")
	before := g.content("orders")
	row := func(c fence.Claim, mark string) string {
		return fmt.Sprintf(`INSERT OR REPLACE INTO tenure_presented (name, acquisition, token, mark, at) VALUES (%s, x'%x', %d, %s, %[4]s)`, literal(c.Name), c.Acquisition[:], c.Token, mark)
	}
	const now = `(SELECT mark FROM tenure_authority)`
	other, noToken := valid, valid
	other.Name, noToken.Token = "orders/2", valid.Token+1
	on := []string{`PRAGMA foreign_keys = ON`}
	for what, forged := range map[string]string{
		"a superseded claim": row(old, now), "another name": row(other, now), "another token": row(noToken, now), "the acquisition of another": row(fence.Claim{Name: "orders/1", Acquisition: old.Acquisition, Token: valid.Token}, now),
		"a mark of before": row(valid, now+` - 1`), "a mark to come": row(valid, now+` + 1`), "no reference": `INSERT INTO tenure_presented VALUES ('orders/1', x'00', 1, 1, 1, 1)`,
	} {
		answers := python(t, g.s.path, on, forged, steal)
		if !strings.Contains(answers[0], "Error") || !strings.Contains(answers[1], "tenure: refused") {
			t.Errorf("%s: %q", what, answers)
		}
	}
	answers := python(t, g.s.path, on, `BEGIN`, row(valid, now), steal, `COMMIT`, steal)
	if answers[1] != "" || answers[2] != "" || !strings.Contains(answers[3], "FOREIGN KEY") || !strings.Contains(answers[4], "tenure: refused") {
		t.Errorf("the holder's own claim, by hand: %q", answers)
	}
	if after := g.content("orders"); after != before {
		t.Errorf("it changed\n%sinto\n%s", before, after)
	}
}

// What ProtectionGaps says is so: who wants to can, and the list is not longer than the truth.
func TestGapsAreTrue(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	ignoring := []string{`CREATE TEMP TRIGGER ignoring AFTER INSERT ON orders BEGIN SELECT RAISE(IGNORE); END`,
		`CREATE TEMP TRIGGER too AFTER UPDATE ON orders BEGIN SELECT RAISE(IGNORE); END`}
	if answers := python(t, g.s.path, ignoring, `INSERT INTO orders VALUES (9, 'nine', 's', 'p9', 'new')`, steal, `DELETE FROM orders`); answers[0] != "" ||
		!strings.Contains(answers[1], "tenure: refused") || !strings.Contains(answers[2], "tenure: refused") {
		t.Errorf("%q", answers)
	}
	if answers := python(t, g.s.path, nil, "blob", `DROP TRIGGER tenure_protect_update_orders`, `DELETE FROM orders`, steal); answers[0] != "" || answers[1] != "" || !strings.Contains(answers[2], "tenure: refused") || answers[3] != "" {
		t.Errorf("%q", answers)
	}
	if got := g.listed(); !strings.Contains(got, "tenure_protect_update_orders is missing") {
		t.Errorf("and the list does not say so: %s", got)
	}
}

// While the holder writes again and again, a program beside it tries as often: not one of its writes gets through, and none of the holder's is lost.
func TestHolderAndAnotherProgramAtOnce(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, `CREATE TABLE counts (n INTEGER)`, `INSERT INTO counts VALUES (0)`)
	claim := []fence.Claim{g.p.take("orders/1")}
	const tries = 50
	statements := make([]string, tries)
	for i := range statements {
		statements[i] = steal
	}
	answered := make(chan []string, 1)
	go func() { answered <- python(t, g.s.path, nil, statements...) }()
	written := 0
	var answers []string
	for answers == nil {
		if err := g.write(claim, `UPDATE orders SET state = 'paid' WHERE id = 1 AND state IS NOT 'stolen'`, `UPDATE counts SET n = n + 1`); err != nil {
			t.Fatal(err)
		}
		written++
		select {
		case answers = <-answered:
		default:
		}
	}
	for i, answer := range answers {
		if !strings.Contains(answer, "tenure: refused") {
			t.Fatalf("try %d: %q", i, answer)
		}
	}
	if n := g.count(`SELECT n FROM counts`); n != written || g.count(`SELECT count(*) FROM orders WHERE state = 'stolen'`) != 0 {
		t.Errorf("%d of %d writes, and %s", n, written, g.content("orders"))
	}
	t.Logf("%d writes beside %d refused ones", written, tries)
}
