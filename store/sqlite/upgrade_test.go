package sqlite

import (
	"strconv"
	"testing"
	"time"

	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/operation"
)

// fileOfVersion1 makes a file as the release before protected tables left it, with a lease in force, and returns its holder's session.
func fileOfVersion1(t *testing.T) (path string, p *party) {
	t.Helper()
	newer := newPath(t)
	s := openPath(t, newer)
	p = join(t, s, time.Hour)
	p.take("kept")
	path = newPath(t)
	plainExec(t, path, schemaV1, `PRAGMA application_id = `+plainValue(t, newer, `PRAGMA application_id`), `ATTACH `+literal(newer)+` AS newer;
		INSERT INTO main.tenure_authority SELECT * FROM newer.tenure_authority; INSERT INTO main.tenure_session SELECT * FROM newer.tenure_session;
		INSERT INTO main.tenure_lease SELECT * FROM newer.tenure_lease; DETACH newer`)
	return path, p
}

// A file of the version before is brought up to date where it is, when it is opened: it is then as one that was made today.
func TestUpgradeFromVersion1(t *testing.T) {
	t.Parallel()
	path, p := fileOfVersion1(t)
	const schema = `SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema ORDER BY name)`
	db := plainDB(t, path, "?_pragma=foreign_keys(ON)&_txlock=immediate")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = Present(t.Context(), tx, p.take("presented"))
	wantKind(t, err, ErrOlderSchema, path, "open it once")
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	s := openPath(t, path)
	if info := look(t, s, "kept"); !info.Held || info.Session != p.session {
		t.Errorf("the lease of before: %+v", info)
	}
	if got := plainValue(t, path, `SELECT version FROM tenure_schema`); got != strconv.Itoa(SchemaVersion) {
		t.Errorf("version %s", got)
	}
	if got, want := plainValue(t, path, schema), plainValue(t, openPath(t, newPath(t)).path, schema); got != want {
		t.Errorf("the schema became\n%s\nwant\n%s", got, want)
	}
	again := openPath(t, path) // another store, while the first has it open
	if info := look(t, again, "kept"); !info.Held {
		t.Errorf("the lease, opened again: %+v", info)
	}
	p.s = s
	if err := p.renew(); err != nil {
		t.Errorf("the session of before: %v", err)
	}
}

// withoutMail takes away what version 5 has added.
const withoutMail = `DROP TABLE tenure_message; DROP TABLE tenure_message_body; DROP TABLE tenure_message_error; DROP TABLE tenure_outbox; DROP TABLE tenure_paused; DROP TABLE tenure_inbox; `

// withoutHolds takes away what versions 4 and 5 have added.
const withoutHolds = withoutMail + `DROP TABLE tenure_line; DROP TABLE tenure_hold; DROP TABLE tenure_item; `

// withoutOperations takes away what versions 3 to 5 have added.
const withoutOperations = withoutHolds + `DROP VIEW tenure_attempts; DROP TABLE tenure_body; DROP TABLE tenure_conflict; DROP TABLE tenure_attempt; DROP TABLE tenure_operation; `

// A file of version 2, with a lease in force and a protected table, is brought up to date when it is opened; a store of that version that has it open goes on.
func TestUpgradeFromVersion2(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	older := openPath(t, path)
	p := join(t, older, time.Hour)
	plainExec(t, path, `CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT) STRICT`)
	if err := older.Protect(t.Context(), Protection{Table: "orders", Name: orderName}); err != nil {
		t.Fatal(err)
	}
	p.take("a")
	plainExec(t, path, withoutOperations+`UPDATE tenure_schema SET version = 2`)
	newer := openPath(t, path)
	if got := plainValue(t, path, `SELECT version FROM tenure_schema`); got != strconv.Itoa(SchemaVersion) {
		t.Errorf("version %s", got)
	}
	p.take("b")
	if info := look(t, newer, "a"); !info.Held {
		t.Errorf("granted before: %+v", info)
	}
	if _, err := newer.Operations().Submit(t.Context(), submission("op")); err != nil {
		t.Errorf("a submission: %v", err)
	}
	protected, err := newer.Protected(t.Context())
	if err != nil || len(protected) != 1 {
		t.Errorf("protected: %v, %v", protected, err)
	}
	const schema = `SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema WHERE name LIKE 'tenure_%' AND name NOT LIKE 'tenure_protect_%' ORDER BY name)`
	if got, want := plainValue(t, path, schema), plainValue(t, openPath(t, newPath(t)).path, schema); got != want {
		t.Errorf("the schema became\n%s\nwant\n%s", got, want)
	}
}

// A file of version 3, with an operation that is at work, is brought up to date when it is opened, and keeps holds then; a store of that version that has it open goes on.
func TestUpgradeFromVersion3(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	older := openPath(t, path)
	d := &desk{t, older.Operations()}
	d.submit("op")
	job := d.claim()
	plainExec(t, path, withoutHolds+`UPDATE tenure_schema SET version = 3`)
	o := &office{t, openPath(t, path).Holds()}
	if got := plainValue(t, path, `SELECT version FROM tenure_schema`); got != strconv.Itoa(SchemaVersion) {
		t.Errorf("version %s", got)
	}
	o.stock(1, "seat")
	o.place(1, time.Hour, "seat")
	o.confirm(1, hold.Confirmed)
	if errs, err := d.ops.Complete(t.Context(), []operation.Completion{done(job.Ref)}); err != nil || errs[0] != nil {
		t.Errorf("the attempt of before: %v, %v", errs, err)
	}
	const schema = `SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema WHERE name LIKE 'tenure_%' ORDER BY name)`
	if got, want := plainValue(t, path, schema), plainValue(t, openPath(t, newPath(t)).path, schema); got != want {
		t.Errorf("the schema became\n%s\nwant\n%s", got, want)
	}
}

// A file of version 4, with a hold that is live, is brought up to date when it is opened, and keeps messages and notes then; a store of that version that has it open goes on.
func TestUpgradeFromVersion4(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	older := openPath(t, path)
	o := &office{t, older.Holds()}
	o.stock(1, "seat")
	o.place(1, time.Hour, "seat")
	plainExec(t, path, withoutMail+`UPDATE tenure_schema SET version = 4`)
	newer := openPath(t, path)
	if got := plainValue(t, path, `SELECT version FROM tenure_schema`); got != strconv.Itoa(SchemaVersion) {
		t.Errorf("version %s", got)
	}
	p := &post{t: t, mail: newer.Outbox()}
	p.append(letterTo(1, "key"))
	p.settle(published(p.claim(1, 1)))
	o.confirm(1, hold.Confirmed)
	const schema = `SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema WHERE name LIKE 'tenure_%' ORDER BY name)`
	if got, want := plainValue(t, path, schema), plainValue(t, openPath(t, newPath(t)).path, schema); got != want {
		t.Errorf("the schema became\n%s\nwant\n%s", got, want)
	}
}

// A store of the version before that has the file open goes on beside one that brings it up to date.
func TestUpgradeBesideAnOpenStore(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	older := openPath(t, path)
	p := join(t, older, time.Hour)
	// What is left is version 1, and the statements of the older store are those of version 1.
	plainExec(t, path, withoutOperations+`DROP VIEW tenure_in_force; DROP TABLE tenure_presented; DROP TABLE tenure_protected; UPDATE tenure_schema SET version = 1`)
	p.take("a")
	newer := openPath(t, path)
	p.take("b")
	if err := p.renew(); err != nil {
		t.Error(err)
	}
	if info := look(t, newer, "b"); !info.Held {
		t.Errorf("granted by the older: %+v", info)
	}
}
